#include "perseus/planning/hardware_facts/hardware_facts.h"

#include <algorithm>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/statistics.h"

namespace perseus::hardware_facts {
namespace {

std::optional<Estimate> OverClocks(const HardwareFacts& facts,
                                   std::optional<Estimate> PowerFacts::*field) {
  std::vector<Estimate> estimates;
  for (const PowerFacts& at_clock : facts.power) {
    if (at_clock.*field) estimates.push_back(*(at_clock.*field));
  }
  if (estimates.empty()) return std::nullopt;
  return Combine(estimates);
}

}  // namespace

Result<HardwareFacts> Read(const std::filesystem::path& path) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(path));
  return Parse(text, path.string());
}

Result<void> Write(const std::filesystem::path& path, const HardwareFacts& facts) {
  const std::string text = Format(facts);
  PERSEUS_RETURN_IF_ERROR(Parse(text, path.string()));
  return WriteFileAtomically(path, text);
}

Estimate Combine(const std::vector<Estimate>& estimates) {
  std::vector<double> values;
  Estimate all = LeastOf(estimates);
  for (const Estimate& estimate : estimates) {
    values.push_back(estimate.value);
    all.high = std::max(all.high, estimate.high);
  }
  all.value = Median(std::move(values));
  return all;
}

Estimate LeastOf(const std::vector<Estimate>& estimates) {
  Estimate least = estimates.front();
  long long samples = 0;
  for (const Estimate& estimate : estimates) {
    least.value = std::min(least.value, estimate.value);
    least.low = std::min(least.low, estimate.low);
    least.high = std::min(least.high, estimate.high);
    samples += estimate.samples;
  }
  least.samples = static_cast<int>(std::min<long long>(samples, kMostSamples));
  return least;
}

const SwitchFacts* SlowestSwitch(const HardwareFacts& facts) {
  const auto slowest = std::max_element(facts.switches.begin(), facts.switches.end(),
                                        [](const SwitchFacts& left, const SwitchFacts& right) {
                                          return left.latency_ms.value < right.latency_ms.value;
                                        });
  return slowest == facts.switches.end() ? nullptr : &*slowest;
}

std::optional<Nanoseconds> SwitchLatencyForPlanning(const HardwareFacts& facts) {
  const SwitchFacts* slowest = SlowestSwitch(facts);
  if (slowest == nullptr) return std::nullopt;
  return FromMilliseconds(slowest->latency_ms.value);
}

std::optional<Nanoseconds> SwitchStallForPlanning(const HardwareFacts& facts) {
  std::optional<Nanoseconds> longest;
  for (const SwitchFacts& one : facts.switches) {
    if (!one.stall_ms) continue;
    longest = std::max(longest.value_or(0), FromMilliseconds(one.stall_ms->value));
  }
  return longest;
}

std::optional<Estimate> BlockingPower(const HardwareFacts& facts) {
  return OverClocks(facts, &PowerFacts::blocked_w);
}

std::optional<Estimate> IdlePower(const HardwareFacts& facts) {
  return OverClocks(facts, &PowerFacts::idle_w);
}

std::optional<double> MostChangesOfGpu(const HardwareFacts& facts) {
  if (!facts.max_changes_per_s) return std::nullopt;
  return facts.max_changes_per_s->value / facts.gpu_count;
}

}  // namespace perseus::hardware_facts
