#include "perseus/base/host.h"

#include <unistd.h>

#include "perseus/base/file.h"

namespace perseus {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

Result<std::string> BootId() {
  constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
  PERSEUS_ASSIGN_OR_RETURN(auto text, ReadFile(kPath));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.empty()) {
    return FailAs(ErrorKind::kSystem, "{} is empty (mount the /proc of the kernel here)", kPath);
  }
  return text;
}

}  // namespace perseus
