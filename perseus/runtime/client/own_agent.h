// An agent of this user, for nodes without one: a `perseus agent` process that all ranks of the
// user on the node share. It ends soon after its last client.
//
// So in this mode, too, a killed rank leaves no clock locked, and only the agent sets clocks.
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
