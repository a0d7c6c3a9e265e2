#include "perseus/runtime/profiler/sweep_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/runtime/profiler/option_model.h"

namespace perseus::profiler {

std::vector<InstructionGroup> GroupsOf(const schedule::Schedule& schedule) {
  std::vector<InstructionGroup> groups;
  for (std::size_t rank = 0; rank < schedule.pp_ranks.size(); ++rank) {
    for (const schedule::Instruction& instruction : schedule.pp_ranks[rank]) {
      if (!IsComputation(instruction.kind)) continue;
      const int chunk = schedule.chunk_of_stage[static_cast<std::size_t>(instruction.stage)];
      groups.push_back({static_cast<int>(rank), chunk, instruction.kind});
    }
  }
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

namespace {

// Memory limits the optimizer's step, so its times at different clocks differ by their errors only.
// With such an error, no lower clock would be as fast as the highest one. A step of the optimizer
// that is longer by less than this fraction counts as equally long. It is a small part of a step.
constexpr double kAsLong = 0.002;

double PlannedTime(InstructionKind kind, double time_s, double margin, double at_highest_s) {
  const bool is_as_long =
      kind == InstructionKind::kOptimizerStep && time_s < (1 + kAsLong) * at_highest_s;
  return is_as_long ? at_highest_s : time_s * (1 + margin);
}

// Where the options of a group come from: they are this part of those of `group`.
struct Source {
  InstructionGroup group;
  double part = 1;
};

// A step of the optimizer may be too short for its power to be measured. Then it counts as a small
// part of a backward. So a plan gives it the clock of the backward, and changes no clock for it.
std::optional<Source> SourceOf(const OptionModel& model, const InstructionGroup& group,
                               const std::vector<int>& clocks_mhz) {
  constexpr double kUnmeasuredPart = 1e-4;
  if (model.Knows(group.kind)) return Source{group};
  const InstructionGroup backward{group.rank, group.chunk, InstructionKind::kBackward};
  if (group.kind != InstructionKind::kOptimizerStep || !model.Knows(backward.kind)) return {};
  for (const int mhz : clocks_mhz) {
    const MeasuredOption* known = model.Measured(group, mhz);
    if (known != nullptr) return Source{backward, known->time_s / model.At(backward, mhz).time_s};
  }
  return Source{backward, kUnmeasuredPart};
}

}  // namespace

Result<profile::Profile> PlanningProfile(const SweepJob& job,
                                         std::span<const MeasuredOption> measured,
                                         double time_margin) {
  const OptionModel model(measured);
  std::vector<profile::ProfileEntry> entries;
  for (const InstructionGroup& group : GroupsOf(job.schedule)) {
    profile::ProfileEntry entry{group.rank, group.chunk, group.kind, {}};
    const std::vector<int>& clocks = job.clocks_mhz[static_cast<std::size_t>(group.rank)];
    const std::optional<Source> source = SourceOf(model, group, clocks);
    for (const int mhz : clocks) {
      const MeasuredOption* known = model.Measured(group, mhz);
      const bool is_measured = known != nullptr && known->power_w > 0;
      if (!source) continue;
      OptionModel::Prediction p = model.At(source->group, mhz);
      p.time_s *= source->part;
      const double margin = mhz == clocks.back() ? 0 : time_margin * p.time_deviation;
      const double at_highest_s = source->part * model.At(source->group, clocks.back()).time_s;
      profile::Option option;
      option.frequency_mhz = mhz;
      option.time = ToNanoseconds(PlannedTime(source->group.kind, p.time_s, margin, at_highest_s));
      option.energy_j = p.energy_j();
      option.samples = is_measured ? known->samples : 0;
      option.time_ci_s = kStandardErrorsOf95 * p.time_deviation * p.time_s;
      option.energy_ci_j =
          kStandardErrorsOf95 * p.energy_j() * std::hypot(p.time_deviation, p.power_deviation);
      const auto longest = job.longest.find(group);
      const bool is_too_long = longest != job.longest.end() && option.time > longest->second;
      if (is_too_long && mhz != clocks.back()) continue;
      entry.options.push_back(std::move(option));
    }
    if (entry.options.empty()) {
      return Fail("no {} on rank {} (chunk {}) was measured yet (let the job train longer)",
                  Name(group.kind), group.rank, group.chunk);
    }
    entries.push_back(std::move(entry));
  }
  return profile::Profile("the profiler's measurements", {}, std::move(entries));
}

Result<plan::Planner> PlannerOf(const SweepJob& job, const profile::Profile& profile) {
  PERSEUS_ASSIGN_OR_RETURN(schedule::InstructionGraph graph,
                           schedule::BuildInstructionGraph(job.schedule, profile, job.model));
  return plan::Planner::Create(std::move(graph),
                               plan::ModelOf(job.model, job.switch_latency, job.switch_cost),
                               plan::Planner::FewOptions::kAccept);
}

Result<plan::Plan> PlanWith(const plan::Planner& planner, const plan::Target& target,
                            const few_switches::ChangeLimit& limit) {
  std::optional<plan::Frontier> frontier;
  if (plan::NeedsFrontier(target.kind)) {
    PERSEUS_ASSIGN_OR_RETURN(frontier, planner.ComputeFrontier());
  }
  PERSEUS_ASSIGN_OR_RETURN(plan::Plan plan,
                           plan::PlanForTarget(planner, frontier ? &*frontier : nullptr, target));
  PERSEUS_ASSIGN_OR_RETURN(auto kept,
                           few_switches::KeepChangeLimit(planner, std::move(plan), target, limit));
  return std::move(kept.plan);
}

}  // namespace perseus::profiler
