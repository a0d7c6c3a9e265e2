#include "perseus/simulation/emulator/remarks.h"

#include <algorithm>
#include <string_view>

#include "perseus/simulation/emulator/execution.h"

namespace perseus::emulator {
namespace {

// The lowest clock that instructions run at because no clock within the throttle was measured: the
// highest one over all instructions. 0: all instructions have a clock within the throttle.
double LowestClockAbove(const schedule::InstructionGraph& graph, const Disturbance& throttle) {
  double highest = 0;
  if (throttle.kind != Disturbance::Kind::kThrottle) return highest;
  for (const schedule::InstructionNode& instruction : graph.instructions) {
    const schedule::OptionSet& set =
        graph.option_sets[static_cast<std::size_t>(instruction.option_set)];
    if (!set.HasClock()) continue;
    if (throttle.pp_rank >= 0 && instruction.pp_rank != throttle.pp_rank) continue;
    const double lowest =
        std::ranges::min_element(set.options, {}, &profile::Option::frequency_mhz)->frequency_mhz;
    if (lowest > throttle.value) highest = std::max(highest, lowest);
  }
  return highest;
}

std::string_view WhatDidNotBegin(Disturbance::Kind kind) {
  return kind == Disturbance::Kind::kInput ? "iteration" : "computation of its ranks";
}

}  // namespace

std::vector<std::string> RemarksOn(const plan::Planner& planner, const EmulationSpec& spec,
                                   Nanoseconds time, const Noticed& noticed) {
  std::vector<std::string> remarks;
  const std::string job =
      fmt::format("the job's {} iterations take {} s", spec.iterations, ToSeconds(time));
  for (std::size_t i = 0; i < spec.disturbances.size(); ++i) {
    const Disturbance& disturbance = spec.disturbances[i];
    if (!noticed.disturbances[i]) {
      remarks.push_back(fmt::format("{}: this straggler had no effect: no {} began meanwhile ({})",
                                    NameOf(disturbance), WhatDidNotBegin(disturbance.kind), job));
    } else if (const double lowest = LowestClockAbove(planner.graph(), disturbance); lowest > 0) {
      remarks.push_back(fmt::format(
          "{}: some instructions were not measured at {} MHz or less: they ran at their lowest "
          "clock (up to {} MHz)",
          NameOf(disturbance), disturbance.value, lowest));
    }
  }
  const auto add = [&](const std::string& where, std::string_view what) {
    remarks.push_back(
        fmt::format("{}this {} was never in force: no iteration began while it was the latest one "
                    "({})",
                    where.empty() ? "" : where + ": ", what, job));
  };
  for (std::size_t i = 0; i < spec.changes.size(); ++i) {
    if (!noticed.changes[i]) add(spec.changes[i].where, "plan");
  }
  for (std::size_t i = 0; i < spec.power_caps.size(); ++i) {
    if (!noticed.power_caps[i]) add(spec.power_caps[i].where, "power cap");
  }
  return remarks;
}

}  // namespace perseus::emulator
