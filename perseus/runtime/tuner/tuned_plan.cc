#include "perseus/runtime/tuner/tuned_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/planning/discrete_bound/discrete_bound.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan/make_plan_file.h"

namespace perseus::tuner {
namespace {

// The error of the options of one group, with the variance 1 at each clock.
class SharedError {
 public:
  explicit SharedError(std::mt19937_64& random) : first_(Normal(random)), last_(Normal(random)) {}
  // `place` is from 0 (the first clock) to 1 (the last clock).
  double At(double place, std::mt19937_64& random) const {
    const double shared = ((1 - place) * first_ + place * last_) / std::hypot(1 - place, place);
    return (shared + Normal(random)) / std::sqrt(2.0);
  }

 private:
  double first_;
  double last_;
};

// Takes the measured options as the truth, and draws noisy measurements from it.
class Bootstrap {
 public:
  Bootstrap(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
            const plan::Target& target, profile::Profile truth, plan::Planner planner)
      : sweep_(sweep),
        job_(job),
        target_(target),
        truth_(std::move(truth)),
        planner_(std::move(planner)) {}

  struct Outcome {
    double promised = 0;  // The saving by the profile of the plan.
    double saved = 0;     // The saving by the truth.
  };
  // Returns the outcome of a plan for the truth itself.
  Result<Outcome> WithoutNoise() const { return Judge(truth_, truth_); }
  // Returns the mean outcome if standard errors are `scale` times as large.
  Result<Outcome> WithNoise(double scale, std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    // More draws of a large job would take too long. The many instructions of such a job average
    // the noise.
    constexpr std::size_t kLargeJob = 200;
    const int draws = planner_.graph().instructions.size() > kLargeJob ? 2 : 6;
    Outcome mean;
    for (int draw = 0; draw < draws; ++draw) {
      const auto [measured, planned] = Draw(scale, random);
      PERSEUS_ASSIGN_OR_RETURN(const Outcome outcome, Judge(measured, planned));
      mean.promised += outcome.promised / draws;
      mean.saved += outcome.saved / draws;
    }
    return mean;
  }

 private:
  // Returns the measurements without and with the margins of plans.
  std::pair<profile::Profile, profile::Profile> Draw(double scale, std::mt19937_64& random) const {
    std::vector<profile::ProfileEntry> measured(truth_.entries().begin(), truth_.entries().end());
    std::vector<profile::ProfileEntry> planned = measured;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const int highest = sweep_.clocks_mhz[static_cast<std::size_t>(measured[i].pp_rank)].back();
      const SharedError shared_time(random);
      const SharedError shared_power(random);
      const auto count = static_cast<double>(measured[i].options.size());
      for (std::size_t j = 0; j < measured[i].options.size(); ++j) {
        profile::Option& option = measured[i].options[j];
        const double place = static_cast<double>(j) / std::max(1.0, count - 1);
        const double time_s = ToSeconds(option.time);
        const double errors = profiler::kStandardErrorsOf95;
        const double time_error = scale * option.time_ci_s / errors / time_s;
        const double energy_error = scale * option.energy_ci_j / errors / option.energy_j;
        const double power_error =
            std::sqrt(std::max(0.0, energy_error * energy_error - time_error * time_error));
        const double slower = std::max(0.5, 1 + time_error * shared_time.At(place, random));
        const double stronger = std::max(0.5, 1 + power_error * shared_power.At(place, random));
        // TunedPlan::Make uses the same margins.
        const bool has_margin = option.frequency_mhz != highest && plan::LimitsTime(target_.kind);
        const double margin = has_margin ? time_error : 0;
        option.time = ToNanoseconds(time_s * slower);
        option.energy_j *= slower * stronger;
        planned[i].options[j].time = ToNanoseconds(time_s * slower * (1 + margin));
        planned[i].options[j].energy_j = option.energy_j;
      }
    }
    return {profile::Profile("a draw", {}, std::move(measured)),
            profile::Profile("a draw with margins", {}, std::move(planned))};
  }

  Result<Outcome> Judge(const profile::Profile& measured, const profile::Profile& planned) const {
    PERSEUS_ASSIGN_OR_RETURN(const plan::Planner maker, profiler::PlannerOf(sweep_, planned));
    PERSEUS_ASSIGN_OR_RETURN(const plan::Plan plan,
                             profiler::PlanWith(maker, target_, sweep_.change_limit));
    const plan_file::PlanFile file = plan::DescribePlan(maker, plan, job_);
    PERSEUS_ASSIGN_OR_RETURN(const plan::Planner own, profiler::PlannerOf(sweep_, measured));
    PERSEUS_ASSIGN_OR_RETURN(const double promised, SavingBy(own, file));
    PERSEUS_ASSIGN_OR_RETURN(const double saved, SavingBy(planner_, file));
    return Outcome{promised, saved};
  }

  static Result<double> SavingBy(const plan::Planner& judge, const plan_file::PlanFile& file) {
    PERSEUS_ASSIGN_OR_RETURN(const auto options,
                             plan_file::FindOptions(file, judge.graph(), "the plan"));
    const plan::Evaluation actual = plan::Evaluator(judge.graph(), judge.model()).Evaluate(options);
    return 1 - actual.energy_j / judge.baseline().energy_j;
  }

  const profiler::SweepJob& sweep_;
  const plan_file::PlannedJob& job_;
  const plan::Target& target_;
  profile::Profile truth_;
  plan::Planner planner_;
};

}  // namespace

Result<Expectation> ExpectFrom(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                               const plan::Target& target,
                               std::span<const profiler::MeasuredOption> measured,
                               std::uint64_t seed) {
  PERSEUS_ASSIGN_OR_RETURN(auto truth,
                           profiler::PlanningProfile(sweep, measured, /*time_margin=*/0));
  PERSEUS_ASSIGN_OR_RETURN(auto planner, profiler::PlannerOf(sweep, truth));
  const Bootstrap bootstrap(sweep, job, target, std::move(truth), std::move(planner));
  PERSEUS_ASSIGN_OR_RETURN(const auto once, bootstrap.WithNoise(1, seed));
  Expectation expected;
  expected.optimism = std::max(0.0, once.promised - once.saved);
  PERSEUS_ASSIGN_OR_RETURN(const auto best, bootstrap.WithoutNoise());
  PERSEUS_ASSIGN_OR_RETURN(const auto twice, bootstrap.WithNoise(1 / std::sqrt(2.0), seed));
  expected.left = std::max(0.0, best.saved - once.saved);
  expected.twice = std::clamp(twice.saved - once.saved, 0.0, expected.left);
  return expected;
}

Result<TunedPlan> TunedPlan::Make(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                                  const plan::Target& target,
                                  std::span<const profiler::MeasuredOption> measured,
                                  const std::optional<noise::Noise>& noise,
                                  const recipe::ChangeRules& changes) {
  // Margins are only for plans that promise a time. Margins make times longer, and with longer
  // times, a plan would seem to draw less power than it really draws.
  const double time_margin = plan::LimitsTime(target.kind) ? 1 : 0;
  PERSEUS_ASSIGN_OR_RETURN(const auto with_margins,
                           profiler::PlanningProfile(sweep, measured, time_margin));
  PERSEUS_ASSIGN_OR_RETURN(auto planner, profiler::PlannerOf(sweep, with_margins));
  const recipe::Wishes wishes{
      .targets = {target},
      .changes = recipe::RulesFor(changes, sweep.change_limit, job, planner.graph()),
      .noise = noise};
  recipe::Progress silent;
  PERSEUS_ASSIGN_OR_RETURN(auto plans, recipe::PlanJob(planner, wishes, silent));
  plan::Plan made = plans.Find(target)->plan;
  PERSEUS_ASSIGN_OR_RETURN(auto file, plan::MakePlanFile(planner, made, target, job));
  const double bound_j = file.lower_bound_j;
  TunedPlan plan(std::move(planner), std::move(made), std::move(file));
  PERSEUS_ASSIGN_OR_RETURN(auto profile, ProfileOf(sweep, measured, Scale()));
  PERSEUS_RETURN_IF_ERROR(plan.Judge(sweep, std::move(profile)));
  // Without margins, this profile is the profile from which the plan was made. So the plan's own
  // bound, which includes its limit of clock changes, is valid, too.
  if (time_margin == 0) plan.file_.lower_bound_j = std::max(plan.file_.lower_bound_j, bound_j);
  return plan;
}

double TunedPlan::NoiseThatExplains(double slowdown, const noise::Noise& noise) const {
  constexpr double kMost = 0.05;  // Far more than any delay of a process.
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
  return ProfileOf(sweep, measured, *scale, /*time_margin=*/1);
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
                                              const Scale& scale, double time_margin) {
  PERSEUS_ASSIGN_OR_RETURN(const auto profile,
                           profiler::PlanningProfile(sweep, measured, time_margin));
  std::vector<profile::ProfileEntry> entries(profile.entries().begin(), profile.entries().end());
  for (profile::ProfileEntry& entry : entries) {
    const int highest = sweep.clocks_mhz[static_cast<std::size_t>(entry.pp_rank)].back();
    for (profile::Option& option : entry.options) {
      option.energy_j *= option.frequency_mhz == highest ? scale.highest : scale.other;
    }
  }
  return profile::Profile(profile.name(), {}, std::move(entries));
}

Result<void> TunedPlan::Judge(const profiler::SweepJob& sweep, profile::Profile profile) {
  PERSEUS_ASSIGN_OR_RETURN(const auto judge, profiler::PlannerOf(sweep, profile));
  PERSEUS_ASSIGN_OR_RETURN(const auto options,
                           plan_file::FindOptions(file_, judge.graph(), "the plan"));
  plan::Plan judged = plan_;
  judged.options = options;
  judged.evaluation = plan::Evaluator(judge.graph(), judge.model()).Evaluate(options);
  judged.deadline = std::max(judged.deadline, judged.evaluation.time);
  if (const auto bound = judge.BoundFor(judged.deadline)) {
    judged.lower_bound_j = *bound;
    discrete_bound::RaiseBound(judge, judged);
  }
  plan_file::PlannedJob job = file_.job;
  job.model = sweep.model;
  file_ = plan::DescribePlan(judge, judged, std::move(job));
  profile_ = std::move(profile);
  return {};
}

// Chooses the scale so that the following equation holds for the baseline, which uses only the
// highest clocks, and for the plan:
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
  // The energy of computations of one pipeline. Between iterations, while pipelines wait for each
  // other, all ranks of the pipeline wait.
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
