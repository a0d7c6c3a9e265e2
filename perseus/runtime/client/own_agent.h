// An agent of this user's own, for nodes where nobody runs one: `perseus agent` as a process that
// all of the user's ranks on the node share, and that ends by itself soon after its last client.
//
// So also in this mode a rank that is killed leaves no clock behind, and there is one way in which
// clocks are set.
#pragma once

#include <filesystem>
#include <string>

#include "perseus/base/result.h"

namespace perseus::client {

// The socket of an agent that listens, the node's (`nodes_socket`) or this user's, which is started
// if there is none; of several processes that try at once, one does. Its files lie in
// $XDG_RUNTIME_DIR/perseus, or /tmp/perseus-UID. `devices` is its --devices. Takes at most 5 s.
// Fails with cause and remedy: no program, a directory that is somebody else's, what the agent
// itself said.
Result<std::filesystem::path> FindOrStartOwnAgent(const std::filesystem::path& nodes_socket,
                                                  const std::string& devices);

}  // namespace perseus::client
