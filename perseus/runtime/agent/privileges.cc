#include "perseus/runtime/agent/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "perseus/base/system_cause.h"

namespace perseus::agent {
namespace {

constexpr std::uint64_t Bit(int capability) { return std::uint64_t{1} << capability; }
constexpr std::uint64_t kNeeded = Bit(CAP_SYS_ADMIN) | Bit(CAP_SYS_PTRACE) | Bit(CAP_SETUID) |
                                  Bit(CAP_SETGID) | Bit(CAP_DAC_OVERRIDE);

Result<void> FailHere(const char* what) {
  return SystemFail(errno, fmt::format("cannot give up capabilities ({})", what));
}

}  // namespace

Result<void> KeepOnlyNeededCapabilities() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return FailHere("no new privileges");
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  // data[0] has the lower 32 capabilities, and data[1] the upper 32.
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return FailHere("read them");
  for (int half = 0; half < 2; ++half) {
    const auto needed = static_cast<std::uint32_t>(kNeeded >> (32 * half));
    data[half].permitted &= needed;
    data[half].effective = data[half].permitted;
    data[half].inheritable = 0;
  }
  if (syscall(SYS_capset, &header, data) != 0) return FailHere("set them");
  return {};
}

}  // namespace perseus::agent
