#include "perseus/runtime/agent/privileges.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace perseus::agent {
namespace {

// The capabilities of this process as the kernel reports them, in hexadecimal.
std::string CapabilityLine(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return line.substr(key.size() + 2);
  }
  return "no such line";
}

TEST(Privileges, OnlyTheNeededOnesRemain) {
  const std::uint64_t before = std::stoull(CapabilityLine("CapEff"), nullptr, 16);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_done = KeepOnlyNeededCapabilities().has_value();
    const std::uint64_t after = std::stoull(CapabilityLine("CapEff"), nullptr, 16);
    constexpr std::uint64_t kNeeded = 1U << 21 | 1U << 19 | 1U << 7 | 1U << 6 | 1U << 1;
    const bool is_right = after == (before & kNeeded) &&
                          std::stoull(CapabilityLine("CapPrm"), nullptr, 16) == after &&
                          CapabilityLine("NoNewPrivs") == "1";
    _exit(is_done && is_right ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  // This affects the child only.
  EXPECT_EQ(std::stoull(CapabilityLine("CapEff"), nullptr, 16), before);
}

}  // namespace
}  // namespace perseus::agent
