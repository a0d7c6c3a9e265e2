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
  auto text = ReadFile("/proc/sys/kernel/random/boot_id");
  if (!text) return Fail(text);
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *std::move(text);
}

}  // namespace perseus
