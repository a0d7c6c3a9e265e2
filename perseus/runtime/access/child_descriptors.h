// The first actions of a child of the agent. After them, the child holds open none of the agent's
// locks and GPUs, and no connection of another client.
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

#include "perseus/base/file_descriptor.h"

namespace perseus::agent {

// Closes every descriptor of this process except `kept`, which is in ascending order. Makes only
// system calls, so a child of a process with threads may call it between fork() and _exit().
void CloseAllDescriptorsBut(std::span<const int> kept);

// Why a child starts with the agent's table of descriptors. Suppose a child has a copy of a
// client's socket. The child may then be the last process to close the socket, and this close may
// wait for a hostile client (socket_disposal.h). A child that works for another client must never
// have such a copy. So the child starts with the agent's own table of descriptors, and then takes a
// new table. The kernel copies a table in words of 64 descriptors, and leaves out words without
// open descriptors. So the kernel copies only the first 64 descriptors, and none of them belongs to
// a client.

// Occupies all free descriptors below 64, so that everything opened later has a higher number. If
// the limit on open files is lower, occupies fewer.
class LowDescriptors {
 public:
  LowDescriptors();

 private:
  std::vector<FileDescriptor> occupied_;
};

// Does the same as fork(), but the child shares the agent's table of descriptors. If it fails,
// returns -1 and sets errno.
pid_t ForkWithSharedDescriptors();
// Call it in this child. Closes the child's descriptors, and not the agent's. Before Linux 5.9 it
// has no effect. The child then shares the descriptors until its end, and its end closes none of
// them.
void LeaveSharedDescriptors();

}  // namespace perseus::agent
