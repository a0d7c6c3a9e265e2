#include "perseus/base/host.h"

#include <unistd.h>

#include <utility>

#include "perseus/base/file.h"

namespace perseus {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

Result<std::string> BootId() {
  PERSEUS_ASSIGN_OR_RETURN(auto text, ReadFile("/proc/sys/kernel/random/boot_id"));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace perseus
