// Starts an agent for this user on a node without one: a `perseus agent` process that all ranks of
// the user on the node share. It ends soon after its last client.
//
// So in this mode, too, a killed rank leaves no clock locked, and only the agent sets clocks.
#pragma once

#include <filesystem>
#include <string>

#include "perseus/base/result.h"

namespace perseus::client {

// Returns the socket of an agent that listens: the node's agent (`nodes_socket`), or this user's
// agent. If neither listens, starts this user's agent. If several processes try at once, one of
// them starts it. Its files are in $XDG_RUNTIME_DIR/perseus or /tmp/perseus-UID. `devices` is its
// --devices. Takes at most 5 s. Fails if the program is missing, if the directory belongs to
// another user, or if the agent fails. The error has the cause and the remedy.
Result<std::filesystem::path> FindOrStartOwnAgent(const std::filesystem::path& nodes_socket,
                                                  const std::string& devices);

}  // namespace perseus::client
