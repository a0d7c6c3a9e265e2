// What a child of the agent does first, so that it holds nothing open that is not its own: the
// agent's locks, its GPUs, and other clients' connections.
#pragma once

#include <span>

namespace perseus::agent {

// Closes every descriptor of this process except `kept`, which is in ascending order. Only makes
// system calls, so a child of a process with threads may call it between fork() and _exit().
void CloseAllDescriptorsBut(std::span<const int> kept);

}  // namespace perseus::agent
