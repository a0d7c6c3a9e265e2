// The plans of all pipelines of a job. They wait for the slowest one in each step. So the slowest
// pipelines get the plan for the target, and all others a plan that ends together with it.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/noise/noise_margin.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/recipe/recipe.h"
#include "perseus/runtime/profiler/sweep_plan.h"
#include "perseus/runtime/tuner/pipeline_speeds.h"
#include "perseus/runtime/tuner/pooled_measurements.h"
#include "perseus/runtime/tuner/step_costs.h"
#include "perseus/runtime/tuner/tuned_plan.h"

namespace perseus::tuner {

using MeasuredGpus = std::map<protocol::RankId, profiler::KnownGpu>;

// What the plans promise for a step of the whole job. Energies are those of the mean pipeline, with
// the time in which it waits for others.
struct JobPromise {
  double time_s = 0;
  double energy_j = 0;
  double baseline_time_s = 0;  // At the highest clocks.
  double baseline_energy_j = 0;
  double saving() const { return 1 - energy_j / baseline_energy_j; }
  double slowdown() const { return time_s / baseline_time_s - 1; }
};

// The promise for a job with `pipelines` pipelines. Those in `faster` (by dp_rank) have plans of
// their own, and all others follow `plan`.
JobPromise PromiseOf(const plan_file::PlanFile& plan, int pipelines,
                     const std::map<int, plan_file::PlanFile>& faster);

// Where pipelines wait for each other.
enum class Meeting {
  kOnceAStep,       // DDP: when all gradients are computed.
  kInInstructions,  // FSDP: before each layer.
};

// When the pipelines that are faster than `pace` have to end on average. A step takes as long as
// the slowest pipeline in it. If n pipelines ended together on average, one of them would be late
// in most steps: by sqrt(2 ln n) standard deviations at most, for large n. So they end that much
// earlier.
Nanoseconds DeadlineOfOthers(const plan_file::PlanFile& pace, int pipelines,
                             const std::optional<noise::Noise>& noise);

// At most this many plans are made. More would save little: GPUs that share one differ by a 16th of
// the range of all.
inline constexpr int kMostPlans = 16;

class PacedPlans {
 public:
  // Fails in the same cases as TunedPlan::Make. If the target does not limit the time, or if the
  // GPUs differ by less than the measurements can tell, all pipelines have one plan.
  //
  // If pipelines wait for each other within instructions, a slow forward cannot be made up for by a
  // fast backward. So each instruction of a faster pipeline ends with that of the slowest one.
  static Result<PacedPlans> Make(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                                 const plan::Target& target, const MeasuredGpus& gpus,
                                 const ClocksOfRanks& clocks_mhz,
                                 const std::optional<noise::Noise>& noise,
                                 const recipe::ChangeRules& changes, Meeting meeting);
  // The same for groups of pipelines that are already known. The target limits the time, or there
  // is one group.
  static Result<PacedPlans> Make(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                                 const plan::Target& target, std::vector<AlikePipelines> groups,
                                 const std::optional<noise::Noise>& noise,
                                 const recipe::ChangeRules& changes, Meeting meeting);

  // Computes the promise from the times that were measured while the plans were followed, and from
  // the energies of whole steps (TunedPlan::JudgeBy).
  Result<void> JudgeBy(const profiler::SweepJob& sweep, const MeasuredGpus& followed,
                       const ClocksOfRanks& clocks_mhz, const SeenSteps& seen);

  // The plan of the slowest pipelines. It sets the pace.
  const TunedPlan& pace() const { return plans_.front().plan; }
  // The plans of the other pipelines, by dp_rank.
  std::map<int, plan_file::PlanFile> FasterPlans() const;
  // As TunedPlan::ProfileForPlans, for the slowest pipelines.
  Result<profile::Profile> ProfileForPlans(const profiler::SweepJob& sweep,
                                           const std::optional<SeenSteps>& seen) const;
  JobPromise Promise() const;

  struct PipelinesPlan {
    AlikePipelines pipelines;
    TunedPlan plan;
  };
  // The slowest pipelines come first.
  const std::vector<PipelinesPlan>& plans() const { return plans_; }

 private:
  std::vector<PipelinesPlan> plans_;
};

}  // namespace perseus::tuner
