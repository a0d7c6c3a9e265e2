#include "perseus/profiler/sweep_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "perseus/profiler/option_model.h"

namespace perseus {

std::vector<InstructionGroup> GroupsOf(const Schedule& schedule) {
  std::vector<InstructionGroup> groups;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const Action& action : schedule.ranks[rank]) {
      if (!IsComputation(action.kind)) continue;
      const int chunk = schedule.chunk_of_stage[static_cast<std::size_t>(action.stage)];
      groups.push_back({static_cast<int>(rank), chunk, action.kind});
    }
  }
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

Result<Profile> PlanningProfile(const SweepJob& job, std::span<const MeasuredOption> measured,
                                const PlanningProfileSpec& spec) {
  const OptionModel model(measured, job.sharing);
  std::vector<ProfileEntry> entries;
  for (const InstructionGroup& group : GroupsOf(job.schedule)) {
    ProfileEntry entry{group.rank, group.chunk, group.kind, {}};
    const std::vector<int>& clocks = job.clocks_mhz[static_cast<std::size_t>(group.rank)];
    for (const int mhz : clocks) {
      const MeasuredOption* known = model.Measured(group, mhz);
      const bool is_measured = known != nullptr && known->power_w > 0;
      if (!is_measured && spec.options == PlanningProfileSpec::Options::kMeasured) continue;
      if (!model.Knows(group.kind)) continue;
      const OptionModel::Prediction p = model.At(group, mhz);
      const double margin = mhz == clocks.back() ? 0 : spec.time_margin * p.time_deviation;
      Option option;
      option.frequency_mhz = mhz;
      option.time = ToNanoseconds(p.time_s * (1 + margin));
      option.energy_j = p.energy_j();
      option.samples = is_measured ? known->samples : 0;
      option.time_ci_s = kStandardErrorsOf95 * p.time_deviation * p.time_s;
      option.energy_ci_j =
          kStandardErrorsOf95 * p.energy_j() * std::hypot(p.time_deviation, p.power_deviation);
      entry.options.push_back(std::move(option));
    }
    if (entry.options.empty()) {
      return Fail("nothing was measured of {} on rank {} (chunk {}) yet (let the job train on)",
                  Name(group.kind), group.rank, group.chunk);
    }
    entries.push_back(std::move(entry));
  }
  return Profile("the profiler's measurements", {}, std::move(entries));
}

namespace {

// Standard error of the time of the iteration at the highest clocks: each option's own error, as
// far as the iteration feels it; they are independent.
double BaselineErrorS(OperationGraph graph, const ExecutionModel& model) {
  const std::vector<int> baseline = BaselineOptions(graph);
  const Nanoseconds time = Evaluator(graph, model).Evaluate(baseline).time;
  double squares = 0;
  for (OptionSet& set : graph.option_sets) {
    if (!IsComputation(set.kind)) continue;
    Option& highest = set.options[static_cast<std::size_t>(set.baseline)];
    const Nanoseconds own = highest.time;
    highest.time += ToNanoseconds(highest.time_ci_s / kStandardErrorsOf95);
    const double felt_s = ToSeconds(Evaluator(graph, model).Evaluate(baseline).time - time);
    squares += felt_s * felt_s;
    highest.time = own;
  }
  return std::sqrt(squares);
}

// For targets that allow a time: the plan for one that is shorter by as much, or if a switching
// latency makes that impossible, for all of it.
Result<Plan> PlanWithMargin(const Planner& planner, const Target& target, Nanoseconds margin) {
  const auto deadline = DeadlineOf(planner, target);
  if (!deadline) return Fail(deadline);
  if (*deadline) {
    const Nanoseconds shorter =
        std::max(**deadline - margin, std::min(**deadline, planner.least_time()));
    Result<Plan> plan = planner.PlanFor(shorter);
    if (!plan && plan.error().kind == ErrorKind::kUnreachable && shorter < **deadline) {
      plan = planner.PlanFor(**deadline);
    }
    if (plan) plan->target = Describe(target);
    return plan;
  }
  if (!NeedsFrontier(target.kind)) return PlanForTarget(planner, nullptr, target);
  const Result<Frontier> frontier = planner.ComputeFrontier();
  if (!frontier) return Fail(frontier);
  return PlanForTarget(planner, &*frontier, target);
}

}  // namespace

Result<Planner> PlannerOf(const SweepJob& job, const Profile& profile) {
  Result<OperationGraph> graph = BuildOperationGraph(job.schedule, profile, job.model);
  if (!graph) return Fail(graph);
  return Planner::Create(*std::move(graph),
                         {.blocking_power_w = job.model.blocking_power_w * job.model.gpus_per_stage,
                          .switch_latency = job.switch_latency});
}

Result<SweepPlan> PlanFromSweep(const SweepJob& job, std::span<const MeasuredOption> measured,
                                const Target& target, const PlanningProfileSpec& spec) {
  const Result<Profile> profile = PlanningProfile(job, measured, spec);
  if (!profile) return Fail(profile);
  Result<Planner> planner = PlannerOf(job, *profile);
  if (!planner) return Fail(planner);
  const double margin_s =
      spec.time_margin > 0 ? spec.time_margin * BaselineErrorS(planner->graph(), planner->model())
                           : 0;
  Result<Plan> plan = PlanWithMargin(*planner, target, ToNanoseconds(margin_s));
  if (!plan) return Fail(plan);
  return SweepPlan{*std::move(planner), *std::move(plan)};
}

}  // namespace perseus
