// A library that is preloaded into the agent. It hides the socket option SO_PASSRIGHTS, which Linux
// has since 6.16. So the agent's sockets accept descriptors, as on an older kernel.
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr int kPassRights = 83;

}  // namespace

extern "C" {

int setsockopt(int socket, int level, int name, const void* value, socklen_t size) noexcept {
  if (level == SOL_SOCKET && name == kPassRights) {
    errno = ENOPROTOOPT;
    return -1;
  }
  return static_cast<int>(syscall(SYS_setsockopt, socket, level, name, value, size));
}

int getsockopt(int socket, int level, int name, void* __restrict value,
               socklen_t* __restrict size) noexcept {
  if (level == SOL_SOCKET && name == kPassRights) {
    errno = ENOPROTOOPT;
    return -1;
  }
  return static_cast<int>(syscall(SYS_getsockopt, socket, level, name, value, size));
}

}  // extern "C"
