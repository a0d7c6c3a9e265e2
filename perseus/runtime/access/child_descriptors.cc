#include "perseus/runtime/access/child_descriptors.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <utility>

namespace perseus::agent {
namespace {

// [first, last]
void CloseRange(unsigned first, unsigned last) {
  if (first > last || ::syscall(SYS_close_range, first, last, 0U) == 0) return;
  // Before Linux 5.9.
  rlimit limit{};
  constexpr rlim_t kMost = 1 << 20;
  const rlim_t end =
      ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::min(limit.rlim_cur, kMost) : kMost;
  for (rlim_t fd = first; fd <= last && fd < end; ++fd) ::close(static_cast<int>(fd));
}

}  // namespace

void CloseAllDescriptorsBut(std::span<const int> kept) {
  unsigned next = 0;
  for (const int fd : kept) {
    if (fd > 0) CloseRange(next, static_cast<unsigned>(fd) - 1);
    next = static_cast<unsigned>(fd) + 1;
  }
  CloseRange(next, std::numeric_limits<unsigned>::max());
}

LowDescriptors::LowDescriptors() {
  constexpr int kCopiedTogether = 64;
  FileDescriptor next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  while (next && next.get() < kCopiedTogether) {
    const int low = next.get();
    occupied_.push_back(std::move(next));
    next = FileDescriptor(::fcntl(low, F_DUPFD_CLOEXEC, 0));
  }
}

pid_t ForkWithSharedDescriptors() {
  // The C library has no function for this.
  return static_cast<pid_t>(
      ::syscall(SYS_clone, CLONE_FILES | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

void LeaveSharedDescriptors() {
  ::syscall(SYS_close_range, 0U, std::numeric_limits<unsigned>::max(), CLOSE_RANGE_UNSHARE);
}

}  // namespace perseus::agent
