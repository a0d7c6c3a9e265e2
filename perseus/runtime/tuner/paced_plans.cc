#include "perseus/runtime/tuner/paced_plans.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace perseus::tuner {
namespace {

MeasuredGpus GpusOf(const MeasuredGpus& gpus, const std::vector<int>& dp_ranks) {
  MeasuredGpus found;
  for (const auto& [name, gpu] : gpus) {
    if (std::ranges::binary_search(dp_ranks, name.dp_rank)) found.emplace(name, gpu);
  }
  return found;
}

// The relative standard deviation of a step's time, for the rank on which it varies most.
double DeviationOfStep(const plan_file::PlanFile& plan, const noise::Noise& noise) {
  double most = 0;
  for (const plan_file::PlannedRank& rank : plan.pp_ranks) {
    double squares = 0;
    for (const plan_file::PlannedInstruction& instruction : rank.instructions) {
      squares += std::pow(ToSeconds(instruction.duration), 2);
    }
    most = std::max(most, std::sqrt(squares) / ToSeconds(plan.time));
  }
  return std::hypot(noise.independent * most, noise.common);
}

// How much earlier the faster pipelines have to end on average. All take as long as the slowest
// one. If n pipelines ended together on average, one of them would be late most of the time: by
// sqrt(2 ln n) standard deviations at most, for large n. So they end that much earlier.
Nanoseconds Earlier(Nanoseconds time, int pipelines, double deviation) {
  const double margin = std::sqrt(2 * std::log(std::max(1, pipelines))) * deviation;
  return static_cast<Nanoseconds>(static_cast<double>(time) * (1 - std::min(margin, 0.5)));
}

// The longest times of the instructions of faster pipelines.
std::map<profiler::InstructionGroup, Nanoseconds> LongestOfOthers(
    const plan_file::PlanFile& pace, int pipelines, const std::optional<noise::Noise>& noise) {
  const double deviation = noise ? std::hypot(noise->independent, noise->common) : 0;
  std::map<profiler::InstructionGroup, Nanoseconds> longest;
  for (std::size_t rank = 0; rank < pace.pp_ranks.size(); ++rank) {
    for (const plan_file::PlannedInstruction& planned : pace.pp_ranks[rank].instructions) {
      if (planned.kind == InstructionKind::kOptimizerStep) continue;  // Nobody waits in it.
      const Nanoseconds time = Earlier(planned.duration, pipelines, deviation);
      const auto [place, is_new] =
          longest.try_emplace({static_cast<int>(rank), planned.chunk, planned.kind}, time);
      place->second = std::min(place->second, time);
    }
  }
  return longest;
}

Result<Nanoseconds> BaselineTime(const profiler::SweepJob& sweep,
                                 const std::vector<profiler::MeasuredOption>& options) {
  PERSEUS_ASSIGN_OR_RETURN(const auto profile,
                           profiler::PlanningProfile(sweep, options, /*time_margin=*/0));
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, profiler::PlannerOf(sweep, profile));
  return planner.baseline().time;
}

// The slowest pipelines come first.
Result<std::vector<AlikePipelines>> SlowestFirst(const profiler::SweepJob& sweep,
                                                 std::vector<AlikePipelines> groups) {
  std::size_t slowest = 0;
  Nanoseconds most = 0;
  for (std::size_t i = 0; groups.size() > 1 && i < groups.size(); ++i) {
    PERSEUS_ASSIGN_OR_RETURN(const Nanoseconds time, BaselineTime(sweep, groups[i].options));
    if (time > std::exchange(most, std::max(most, time))) slowest = i;
  }
  std::swap(groups.front(), groups[slowest]);
  return groups;
}

}  // namespace

Nanoseconds DeadlineOfOthers(const plan_file::PlanFile& pace, int pipelines,
                             const std::optional<noise::Noise>& noise) {
  return noise ? Earlier(pace.time, pipelines, DeviationOfStep(pace, *noise)) : pace.time;
}

JobPromise PromiseOf(const plan_file::PlanFile& plan, int pipelines,
                     const std::map<int, plan_file::PlanFile>& faster) {
  // The plans, each with the part of the pipelines that follow it.
  std::vector<std::pair<const plan_file::PlanFile*, double>> all;
  for (const auto& [dp_rank, file] : faster) all.emplace_back(&file, 1.0 / pipelines);
  all.emplace_back(&plan, 1 - static_cast<double>(faster.size()) / pipelines);
  JobPromise promise;
  for (const auto& [file, part] : all) {
    promise.time_s = std::max(promise.time_s, ToSeconds(file->time));
    promise.baseline_time_s = std::max(promise.baseline_time_s, ToSeconds(file->baseline_time));
  }
  for (const auto& [file, part] : all) {
    const double waiting_w = static_cast<double>(file->pp_ranks.size()) *
                             file->job.model.gpus_per_stage * file->job.model.blocking_power_w;
    promise.energy_j +=
        part * (file->energy_j + waiting_w * (promise.time_s - ToSeconds(file->time)));
    promise.baseline_energy_j +=
        part * (file->baseline_energy_j +
                waiting_w * (promise.baseline_time_s - ToSeconds(file->baseline_time)));
  }
  return promise;
}

Result<PacedPlans> PacedPlans::Make(const profiler::SweepJob& sweep,
                                    const plan_file::PlannedJob& job, const plan::Target& target,
                                    const MeasuredGpus& gpus, const ClocksOfRanks& clocks_mhz,
                                    const std::optional<noise::Noise>& noise,
                                    const recipe::ChangeRules& changes, Meeting meeting) {
  const int most = plan::LimitsTime(target.kind) ? kMostPlans : 1;
  return Make(sweep, job, target, GroupAlike(gpus, PooledOptions(gpus, clocks_mhz), most), noise,
              changes, meeting);
}

Result<PacedPlans> PacedPlans::Make(const profiler::SweepJob& sweep,
                                    const plan_file::PlannedJob& job, const plan::Target& target,
                                    std::vector<AlikePipelines> groups,
                                    const std::optional<noise::Noise>& noise,
                                    const recipe::ChangeRules& changes, Meeting meeting) {
  PERSEUS_ASSIGN_OR_RETURN(groups, SlowestFirst(sweep, std::move(groups)));
  PacedPlans plans;
  std::size_t pipelines = 0;
  for (const AlikePipelines& group : groups) pipelines += group.dp_ranks.size();
  for (AlikePipelines& group : groups) {
    plan::Target of_group = target;
    profiler::SweepJob sweep_of_group = sweep;
    if (!plans.plans_.empty()) {
      const plan_file::PlanFile& pace = plans.pace().file();
      if (meeting == Meeting::kInInstructions) {
        sweep_of_group.longest = LongestOfOthers(pace, static_cast<int>(pipelines), noise);
      }
      const Nanoseconds deadline = DeadlineOfOthers(pace, static_cast<int>(pipelines), noise);
      PERSEUS_ASSIGN_OR_RETURN(const Nanoseconds least, BaselineTime(sweep, group.options));
      of_group = {plan::Target::Kind::kDeadline, ToSeconds(std::max(deadline, least))};
    }
    PERSEUS_ASSIGN_OR_RETURN(
        auto plan, TunedPlan::Make(sweep_of_group, job, of_group, group.options, noise, changes));
    plans.plans_.push_back({std::move(group), std::move(plan)});
  }
  return plans;
}

Result<void> PacedPlans::JudgeBy(const profiler::SweepJob& sweep, const MeasuredGpus& followed,
                                 const ClocksOfRanks& clocks_mhz, const SeenSteps& seen) {
  for (PipelinesPlan& one : plans_) {
    const std::vector<profiler::MeasuredOption> known = WithTimesOf(
        PooledOptions(GpusOf(followed, one.pipelines.dp_ranks), clocks_mhz), one.pipelines.options);
    PERSEUS_RETURN_IF_ERROR(
        one.plan.JudgeBy(sweep, known, seen.OfPipelines(one.pipelines.dp_ranks)));
  }
  return {};
}

std::map<int, plan_file::PlanFile> PacedPlans::FasterPlans() const {
  std::map<int, plan_file::PlanFile> plans;
  for (const PipelinesPlan& one : plans_) {
    if (&one == &plans_.front()) continue;
    for (const int dp_rank : one.pipelines.dp_ranks) plans.emplace(dp_rank, one.plan.file());
  }
  return plans;
}

Result<profile::Profile> PacedPlans::ProfileForPlans(const profiler::SweepJob& sweep,
                                                     const std::optional<SeenSteps>& seen) const {
  const PipelinesPlan& slowest = plans_.front();
  std::optional<SeenSteps> own;
  if (seen) own = seen->OfPipelines(slowest.pipelines.dp_ranks);
  return slowest.plan.ProfileForPlans(sweep, slowest.pipelines.options, own ? &*own : nullptr);
}

JobPromise PacedPlans::Promise() const {
  std::size_t pipelines = 0;
  for (const PipelinesPlan& one : plans_) pipelines += one.pipelines.dp_ranks.size();
  return PromiseOf(pace().file(), static_cast<int>(pipelines), FasterPlans());
}

}  // namespace perseus::tuner
