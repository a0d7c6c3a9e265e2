// Closes the sockets of untrusted peers without waiting for what a peer put into them.
//
// A peer may send descriptors with a message (SCM_RIGHTS). The agent takes none of these
// descriptors, so closing the socket closes them. Suppose a descriptor is the last reference to a
// locked file on the peer's FUSE file system, or to a TCP socket with SO_LINGER. Then close() waits
// for the peer. In the FUSE case, not even SIGKILL ends the wait.
//
// From Linux 6.16 a socket can refuse descriptors (SO_PASSRIGHTS; protocol::Listen sets it). The
// close of such a socket waits for nothing. On older kernels, a child process closes the sockets.
// The child may wait for as long as the peer wants.
//
// Rejected alternative: read the queue until it is empty, and close the socket in this process if
// the queue has no descriptors. An empty message looks like the end of the queue. So the agent
// would never know when the queue is empty.
//
// Not thread safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "perseus/base/file_descriptor.h"

namespace perseus::agent {

class SocketDisposal {
 public:
  // The most children that wait at the same time. Further sockets wait until a child ends.
  static constexpr std::size_t kMostChildren = 64;

  // Closes the socket. The peer sees the end at once. On an older kernel, Tick() closes the
  // descriptor.
  void Close(FileDescriptor socket);
  // Starts at most one child, and reaps the children that have ended.
  void Tick();
  std::size_t children() const { return children_.size(); }
  std::size_t waiting() const { return waiting_.size(); }

  // For tests: treats every socket as if the kernel were older.
  void AssumeDescriptors() { assumes_descriptors_ = true; }

 private:
  std::vector<FileDescriptor> waiting_;
  std::vector<pid_t> children_;
  bool assumes_descriptors_ = false;
};

}  // namespace perseus::agent
