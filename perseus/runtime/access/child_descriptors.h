// What a child of the agent does first, so that it holds nothing open that is not its own: the
// agent's locks, its GPUs, and other clients' connections.
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

#include "perseus/base/file_descriptor.h"

namespace perseus::agent {

// Closes every descriptor of this process except `kept`, which is in ascending order. Only makes
// system calls, so a child of a process with threads may call it between fork() and _exit().
void CloseAllDescriptorsBut(std::span<const int> kept);

// A child that closes its copy of a client's socket may be the last to close it, and this close may
// wait for a hostile client (socket_disposal.h). A child that works for another client must never
// have such a copy. So it starts with the agent's own table of descriptors, and then takes a new
// one. The kernel copies a table in words of 64 descriptors, and leaves out words without open
// descriptors. So only the first 64 descriptors are ever copied, and none is a client's.

// Occupies all free descriptors below 64, so that everything opened later has a higher number.
// Fewer, if the limit on open files is lower.
class LowDescriptors {
 public:
  LowDescriptors();

 private:
  std::vector<FileDescriptor> occupied_;
};

// As fork(), but the child shares the agent's table of descriptors. -1 and errno if it fails.
pid_t ForkWithSharedDescriptors();
// For this child: closes its descriptors, and not the agent's. Before Linux 5.9 it has no effect,
// and the child shares the descriptors until its end, which closes none of them.
void LeaveSharedDescriptors();

}  // namespace perseus::agent
