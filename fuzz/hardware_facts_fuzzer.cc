// Checks that no TOML makes hardware_facts::Parse crash, that what it accepts survives a round
// trip, and that facts that parse can be used.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace {

namespace facts = perseus::hardware_facts;

using perseus::fuzz::Require;

void RequireGood(const facts::Estimate& estimate) {
  Require(std::isfinite(estimate.low) && std::isfinite(estimate.high));
  Require(estimate.low <= estimate.value && estimate.value <= estimate.high);
  Require(estimate.samples >= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto read = facts::Parse(text, "fuzz");
  if (!read) {
    perseus::fuzz::RequireOneLine(read.error());
    return 0;
  }
  const std::string written = facts::Format(*read);
  const auto again = facts::Parse(written, "again");
  Require(again.has_value() && *again == *read && facts::Format(*again) == written);

  if (const auto latency = facts::SwitchLatencyForPlanning(*read)) Require(*latency >= 0);
  for (const auto& watts : {facts::BlockingPower(*read), facts::IdlePower(*read)}) {
    if (!watts) continue;
    RequireGood(*watts);
    Require(watts->low >= 0);
  }
  return 0;
}
