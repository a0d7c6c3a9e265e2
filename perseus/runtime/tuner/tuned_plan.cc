#include "perseus/runtime/tuner/tuned_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan/make_plan_file.h"

namespace perseus::tuner {

Result<TunedPlan> TunedPlan::Make(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                                  const plan::Target& target,
                                  std::span<const profiler::MeasuredOption> measured,
                                  const std::optional<noise::Noise>& noise) {
  profiler::SweepJob without_limit = sweep;
  without_limit.change_limit = {};
  // Margins are for plans that promise a time. With longer times, a plan would seem to draw less
  // power than it does.
  profiler::PlanningProfileSpec spec;
  if (!plan::LimitsTime(target.kind)) spec.time_margin = 0;
  PERSEUS_ASSIGN_OR_RETURN(auto made,
                           profiler::PlanFromSweep(without_limit, measured, target, spec));
  PERSEUS_ASSIGN_OR_RETURN(auto kept,
                           few_switches::KeepChangeLimit(made.planner, std::move(made.plan), target,
                                                         sweep.change_limit));
  made.plan = std::move(kept.plan);
  bool has_margin = false;
  if (noise) {
    noise::MarginLimits limits;
    if (!sweep.change_limit.IsNone()) limits.changes = noise::MarginLimits::Changes::kNoMore;
    auto noisy = noise::AddNoiseMargin(made.planner, made.plan, target, *noise, limits);
    if (!noisy && noisy.error().kind != ErrorKind::kUnreachable) return Fail(noisy);
    has_margin = noisy.has_value();
    if (has_margin) made.plan = std::move(noisy->plan);
  }
  PERSEUS_ASSIGN_OR_RETURN(auto file, plan::MakePlanFile(made.planner, made.plan, target, job));
  TunedPlan plan(std::move(made), std::move(file));
  plan.has_margin_ = has_margin;
  PERSEUS_ASSIGN_OR_RETURN(auto profile, ProfileOf(sweep, measured, Scale()));
  PERSEUS_RETURN_IF_ERROR(plan.Judge(sweep, std::move(profile)));
  return plan;
}

double TunedPlan::NoiseThatExplains(double slowdown, const noise::Noise& noise) const {
  constexpr double kMost = 0.05;  // Much more than any process is late.
  constexpr int kHalvings = 9;    // To 0.01 %.
  noise::MarginLimits samples;
  samples.check_samples = 500;
  const auto is_slower_with = [&](double further) {
    const noise::Noise all{std::hypot(noise.independent, further), noise.common};
    return noise::CompareWithBaseline(planner_, plan_.options, all, samples).slowdown >= slowdown;
  };
  if (is_slower_with(0)) return 0;
  double low = 0;
  double high = kMost;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (is_slower_with(middle) ? high : low) = middle;
  }
  return high;
}

Result<void> TunedPlan::JudgeBy(const profiler::SweepJob& sweep,
                                std::span<const profiler::MeasuredOption> measured,
                                const SeenSteps& seen) {
  PERSEUS_ASSIGN_OR_RETURN(const auto scale, ScaleOf(sweep, measured, seen));
  PERSEUS_ASSIGN_OR_RETURN(auto profile, ProfileOf(sweep, measured, scale));
  return Judge(sweep, std::move(profile));
}

Result<profile::Profile> TunedPlan::ProfileForPlans(
    const profiler::SweepJob& sweep, std::span<const profiler::MeasuredOption> measured,
    const SeenSteps* seen) const {
  Result<Scale> scale = Scale();
  if (seen != nullptr) scale = ScaleOf(sweep, measured, *seen);
  if (!scale) return Fail(scale);
  return ProfileOf(sweep, measured, *scale, Margins::kAsPlanned);
}

Result<TunedPlan::Scale> TunedPlan::ScaleOf(const profiler::SweepJob& sweep,
                                            std::span<const profiler::MeasuredOption> measured,
                                            const SeenSteps& seen) const {
  PERSEUS_ASSIGN_OR_RETURN(const auto unscaled, ProfileOf(sweep, measured, Scale()));
  PERSEUS_ASSIGN_OR_RETURN(const auto judge, profiler::PlannerOf(sweep, unscaled));
  return ScaleTo(seen, judge);
}

Result<profile::Profile> TunedPlan::ProfileOf(const profiler::SweepJob& sweep,
                                              std::span<const profiler::MeasuredOption> measured,
                                              const Scale& scale, Margins margins) {
  profiler::PlanningProfileSpec spec;
  if (margins == Margins::kNone) spec.time_margin = 0;
  const auto profile = profiler::PlanningProfile(sweep, measured, spec);
  if (!profile) return Fail(profile);
  std::vector<profile::ProfileEntry> entries(profile->entries().begin(), profile->entries().end());
  for (profile::ProfileEntry& entry : entries) {
    const int highest = sweep.clocks_mhz[static_cast<std::size_t>(entry.stage)].back();
    for (profile::Option& option : entry.options) {
      option.energy_j *= option.frequency_mhz == highest ? scale.highest : scale.other;
    }
  }
  return profile::Profile(profile->name(), {}, std::move(entries));
}

Result<void> TunedPlan::Judge(const profiler::SweepJob& sweep, profile::Profile profile) {
  PERSEUS_ASSIGN_OR_RETURN(const auto judge, profiler::PlannerOf(sweep, profile));
  PERSEUS_ASSIGN_OR_RETURN(const auto options,
                           plan_file::FindOptions(file_, judge.graph(), "the plan"));
  plan::Plan judged = plan_;
  judged.options = options;
  judged.evaluation = plan::Evaluator(judge.graph(), judge.model()).Evaluate(options);
  judged.deadline = std::max(judged.deadline, judged.evaluation.time);
  if (const auto bound = judge.BoundFor(judged.deadline)) judged.lower_bound_j = *bound;
  plan_file::PlannedJob job = file_.job;
  job.model = sweep.model;
  file_ = plan::DescribePlan(judge, judged, std::move(job));
  profile_ = std::move(profile);
  return {};
}

// Chooses the scale so that the following equation holds for the baseline, which has no other
// clocks, and for the plan:
//
//   seen = highest * (energy of options at the highest clocks) + other * (energy of the other
//   options)
//          + waiting
Result<TunedPlan::Scale> TunedPlan::ScaleTo(const SeenSteps& seen,
                                            const plan::Planner& judge) const {
  PERSEUS_ASSIGN_OR_RETURN(const auto options,
                           plan_file::FindOptions(file_, judge.graph(), "the plan"));
  const plan::Evaluation plan = plan::Evaluator(judge.graph(), judge.model()).Evaluate(options);
  const std::vector<int> highest = schedule::BaselineOptions(judge.graph());
  double plan_highest_j = 0;
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (options[i] == highest[i]) plan_highest_j += plan.energies_j[i];
  }
  // For one pipeline. Between iterations, while pipelines wait for each other, all its ranks wait.
  const auto computing_j = [&](double energy_j, double time_s, const plan::Evaluation& evaluation) {
    const double between_s = std::max(0.0, time_s - ToSeconds(evaluation.time));
    return energy_j / file_.job.pipelines - evaluation.blocking_energy_j -
           between_s * judge.pp_ranks() * judge.model().blocking_power_w;
  };
  const plan::Evaluation& baseline = judge.baseline();
  Scale scale;
  scale.highest = computing_j(seen.baseline_energy_j, seen.baseline_time_s, baseline) /
                  baseline.instruction_energy_j;
  const double others_j = plan.instruction_energy_j - plan_highest_j;
  if (others_j > 0) {
    scale.other =
        (computing_j(seen.energy_j, seen.time_s, plan) - scale.highest * plan_highest_j) / others_j;
  }
  constexpr double kMost = 1.25;
  scale.highest = std::clamp(scale.highest, 1 / kMost, kMost);
  scale.other = std::clamp(scale.other, 1 / kMost, kMost);
  return scale;
}

}  // namespace perseus::tuner
