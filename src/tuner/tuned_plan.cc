#include "perseus/tuner/tuned_plan.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "perseus/plan/evaluation.h"

namespace perseus {

Result<TunedPlan> TunedPlan::Make(const SweepJob& sweep, const PlannedJob& job,
                                  const Target& target, std::span<const MeasuredOption> measured) {
  auto made = PlanFromSweep(sweep, measured, target);
  if (!made) return Fail(made);
  PlanFile file = MakePlanFile(made->planner, made->plan, job);
  TunedPlan plan(std::move(made->plan), std::move(file));
  auto profile = ProfileOf(sweep, measured, Scale());
  if (!profile) return Fail(profile);
  if (auto judged = plan.Judge(sweep, *std::move(profile)); !judged) return Fail(judged);
  return plan;
}

Result<void> TunedPlan::JudgeBy(const SweepJob& sweep, std::span<const MeasuredOption> measured,
                                const SeenSteps& seen) {
  const auto scale = ScaleOf(sweep, measured, seen);
  if (!scale) return Fail(scale);
  auto profile = ProfileOf(sweep, measured, *scale);
  if (!profile) return Fail(profile);
  return Judge(sweep, *std::move(profile));
}

Result<Profile> TunedPlan::ProfileForPlans(const SweepJob& sweep,
                                           std::span<const MeasuredOption> measured,
                                           const SeenSteps* seen) const {
  Result<Scale> scale = Scale();
  if (seen != nullptr) scale = ScaleOf(sweep, measured, *seen);
  if (!scale) return Fail(scale);
  return ProfileOf(sweep, measured, *scale, Margins::kAsPlanned);
}

Result<TunedPlan::Scale> TunedPlan::ScaleOf(const SweepJob& sweep,
                                            std::span<const MeasuredOption> measured,
                                            const SeenSteps& seen) const {
  const auto unscaled = ProfileOf(sweep, measured, Scale());
  if (!unscaled) return Fail(unscaled);
  const auto judge = PlannerOf(sweep, *unscaled);
  if (!judge) return Fail(judge);
  return ScaleTo(seen, *judge);
}

Result<Profile> TunedPlan::ProfileOf(const SweepJob& sweep,
                                     std::span<const MeasuredOption> measured, const Scale& scale,
                                     Margins margins) {
  PlanningProfileSpec spec;
  if (margins == Margins::kNone) spec.time_margin = 0;
  const auto profile = PlanningProfile(sweep, measured, spec);
  if (!profile) return Fail(profile);
  std::vector<ProfileEntry> entries(profile->entries().begin(), profile->entries().end());
  for (ProfileEntry& entry : entries) {
    const int highest = sweep.clocks_mhz[static_cast<std::size_t>(entry.stage)].back();
    for (Option& option : entry.options) {
      option.energy_j *= option.frequency_mhz == highest ? scale.highest : scale.other;
    }
  }
  return Profile(profile->name(), {}, std::move(entries));
}

Result<void> TunedPlan::Judge(const SweepJob& sweep, Profile profile) {
  const auto judge = PlannerOf(sweep, profile);
  if (!judge) return Fail(judge);
  const auto options = FindOptions(file_, judge->graph(), "the plan");
  if (!options) return Fail(options);
  Plan judged = plan_;
  judged.options = *options;
  judged.evaluation = Evaluator(judge->graph(), judge->model()).Evaluate(*options);
  judged.deadline = std::max(judged.deadline, judged.evaluation.time);
  if (const auto bound = judge->BoundFor(judged.deadline)) judged.lower_bound_j = *bound;
  PlannedJob job = file_.job;
  job.model = sweep.model;
  file_ = MakePlanFile(*judge, judged, std::move(job));
  profile_ = std::move(profile);
  return {};
}

// So that
//
//   seen = highest * (energy of options at the highest clocks) + other * (of the rest) + waiting
//
// holds of the baseline, which has no others, and of the plan.
Result<TunedPlan::Scale> TunedPlan::ScaleTo(const SeenSteps& seen, const Planner& judge) const {
  const auto options = FindOptions(file_, judge.graph(), "the plan");
  if (!options) return Fail(options);
  const Evaluation plan = Evaluator(judge.graph(), judge.model()).Evaluate(*options);
  const std::vector<int> highest = BaselineOptions(judge.graph());
  double plan_highest_j = 0;
  for (std::size_t i = 0; i < options->size(); ++i) {
    if ((*options)[i] == highest[i]) plan_highest_j += plan.energies_j[i];
  }
  // Of one pipeline. Between iterations, while pipelines wait for each other, all wait.
  const auto computing_j = [&](double energy_j, double time_s, const Evaluation& evaluation) {
    const double between_s = std::max(0.0, time_s - ToSeconds(evaluation.time));
    return energy_j / file_.job.pipelines - evaluation.blocking_energy_j -
           between_s * judge.ranks() * judge.model().blocking_power_w;
  };
  const Evaluation& baseline = judge.baseline();
  Scale scale;
  scale.highest = computing_j(seen.baseline_energy_j, seen.baseline_time_s, baseline) /
                  baseline.operation_energy_j;
  const double others_j = plan.operation_energy_j - plan_highest_j;
  if (others_j > 0) {
    scale.other =
        (computing_j(seen.energy_j, seen.time_s, plan) - scale.highest * plan_highest_j) / others_j;
  }
  constexpr double kMost = 1.25;
  for (const double factor : {scale.highest, scale.other}) {
    if (!(factor > 1 / kMost && factor < kMost)) return Scale();
  }
  return scale;
}

}  // namespace perseus
