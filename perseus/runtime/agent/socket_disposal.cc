#include "perseus/runtime/agent/socket_disposal.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "perseus/runtime/access/child_descriptors.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"

namespace perseus::agent {

void SocketDisposal::Close(FileDescriptor socket) {
  if (!socket || (protocol::RefusesDescriptors(socket.get()) && !assumes_descriptors_)) return;
  ::shutdown(socket.get(), SHUT_RDWR);
  waiting_.push_back(std::move(socket));
}

void SocketDisposal::Tick() {
  std::erase_if(children_, [](pid_t child) { return ::waitpid(child, nullptr, WNOHANG) == child; });
  int ends[2];
  if (waiting_.empty() || children_.size() >= kMostChildren || ::pipe2(ends, O_CLOEXEC) != 0)
    return;
  const FileDescriptor until_closed(ends[0]);
  const FileDescriptor open_here(ends[1]);
  std::vector<int> kept = {until_closed.get()};
  for (const FileDescriptor& socket : waiting_) kept.push_back(socket.get());
  std::ranges::sort(kept);
  const pid_t child = ::fork();
  if (child == 0) {
    CloseAllDescriptorsBut(kept);
    // The pipe ends when the agent has closed its copies of the sockets. Then this process has the
    // last references, and its end closes the sockets.
    char byte = 0;
    while (::read(until_closed.get(), &byte, 1) < 0 && errno == EINTR) {
    }
    ::_exit(0);
  }
  if (child < 0) return;
  children_.push_back(child);
  waiting_.clear();
}

}  // namespace perseus::agent
