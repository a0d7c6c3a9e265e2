#include "perseus/cli/verbs/facts_table.h"

#include <fmt/core.h>

#include <optional>

#include "perseus/cli/terminal/table.h"

namespace perseus::cli {
namespace {

using hardware_facts::Estimate;
using hardware_facts::HardwareFacts;

std::string FormatEstimate(const Estimate& estimate, const char* number, const char* unit = "") {
  return fmt::format("{} ({} to {}){}", fmt::format(fmt::runtime(number), estimate.value),
                     fmt::format(fmt::runtime(number), estimate.low),
                     fmt::format(fmt::runtime(number), estimate.high), unit);
}

std::string FormatEstimate(const std::optional<Estimate>& estimate, const char* number,
                           const char* unit) {
  return estimate ? FormatEstimate(*estimate, number, unit) : "-";
}

std::string FormatSwitches(const HardwareFacts& facts) {
  if (facts.switches.empty()) return "";
  Table table({"switch", "of", "latency", "95 % of them", "call", "stall", "samples"});
  for (const auto& one : facts.switches) {
    table.AddRow(
        {fmt::format("{}, {}", one.is_far ? "far" : "near",
                     one.direction == hardware_facts::Direction::kUp ? "up" : "down"),
         one.all_gpus ? "all GPUs" : "one GPU", FormatEstimate(one.latency_ms, "{:.2f}", " ms"),
         fmt::format("{:.2f} ms", one.p95_latency_ms), FormatEstimate(one.call_ms, "{:.2f}", " ms"),
         FormatEstimate(one.stall_ms, "{:.3f}", " ms"), std::to_string(one.latency_ms.samples)});
  }
  return table.Format() + "\n";
}

std::string FormatPower(const HardwareFacts& facts) {
  if (facts.power.empty()) return "";
  Table table({"SM clock", "idle", "blocked", "busy"});
  for (const auto& one : facts.power) {
    table.AddRow({fmt::format("{} MHz", one.sm_clock_mhz),
                  FormatEstimate(one.idle_w, "{:.1f}", " W"),
                  FormatEstimate(one.blocked_w, "{:.1f}", " W"),
                  FormatEstimate(one.busy_w, "{:.1f}", " W")});
  }
  return table.Format() + "\n";
}

std::string FormatInterference(const HardwareFacts& facts) {
  if (facts.interference.empty()) return "";
  Table table({"operation", "changes/s", "reads/s and GPU", "takes longer by"});
  for (const auto& one : facts.interference) {
    const Estimate percent{100 * one.slowdown.value, 100 * one.slowdown.low,
                           100 * one.slowdown.high, one.slowdown.samples};
    table.AddRow({one.kind, fmt::format("{:g}", one.changes_per_s),
                  fmt::format("{:g}", one.reads_per_s), FormatEstimate(percent, "{:.2f}", " %")});
  }
  return table.Format() + "\n";
}

}  // namespace

std::string FormatFacts(const HardwareFacts& facts) {
  std::string text = fmt::format("{}: {} x {}, driver {}\n\n", facts.host, facts.gpu_count,
                                 facts.gpu_name, facts.driver_version);
  text += FormatSwitches(facts) + FormatPower(facts) + FormatInterference(facts);
  if (facts.energy_counter) {
    text += fmt::format(
        "energy counter: changes every {} ms by multiples of {:g} J; counts {} % "
        "more than the power readings\n",
        FormatEstimate(facts.energy_counter->period_ms, "{:.1f}"),
        facts.energy_counter->resolution_j,
        FormatEstimate(
            {100 * facts.energy_counter->bias.value, 100 * facts.energy_counter->bias.low,
             100 * facts.energy_counter->bias.high, facts.energy_counter->bias.samples},
            "{:.2f}"));
  }
  if (facts.max_changes_per_s) {
    const Estimate& rate = *facts.max_changes_per_s;
    text += fmt::format("changes without harm: at least {:g} a second, of the whole node ({})\n",
                        rate.value,
                        rate.high > rate.value ? fmt::format("not shown for {:g}", rate.high)
                                               : "the greatest rate that was tried");
  }
  if (facts.range_lock_saves) {
    text += fmt::format("a lock with min < max {} power while a GPU waits\n",
                        *facts.range_lock_saves ? "saves" : "saves no");
  }
  for (const std::string& limit : facts.limits) text += "limit: " + limit + "\n";
  return text;
}

}  // namespace perseus::cli
