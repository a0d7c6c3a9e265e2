#include "perseus/runtime/tuner/expectation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan/make_plan_file.h"

namespace perseus::tuner {
namespace {

// The error of the options of one group, with the variance 1 at each clock.
class SharedError {
 public:
  explicit SharedError(std::mt19937_64& random) : first_(Normal(random)), last_(Normal(random)) {}
  // `place`: 0 for the first clock to 1 for the last one.
  double At(double place, std::mt19937_64& random) const {
    const double shared = ((1 - place) * first_ + place * last_) / std::hypot(1 - place, place);
    return (shared + Normal(random)) / std::sqrt(2.0);
  }

 private:
  double first_;
  double last_;
};

// The measured options as a truth from which noisy measurements are drawn.
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
    double promised = 0;  // The saving by the profile from which the plan was made.
    double saved = 0;     // The saving by the truth.
  };
  // The outcome of a plan for the truth itself.
  Result<Outcome> WithoutNoise() const { return Judge(truth_, truth_); }
  // The mean outcome if standard errors are `scale` times as large.
  Result<Outcome> WithNoise(double scale, std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    // More draws of a large job would take too long. Its many instructions average the noise.
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
  // The measurements, and the same with the margins that plans are made with.
  std::pair<profile::Profile, profile::Profile> Draw(double scale, std::mt19937_64& random) const {
    std::vector<profile::ProfileEntry> measured(truth_.entries().begin(), truth_.entries().end());
    std::vector<profile::ProfileEntry> planned = measured;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const int highest = sweep_.clocks_mhz[static_cast<std::size_t>(measured[i].stage)].back();
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
        // As the plan is made (tuned_plan.cc).
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
                           profiler::PlanningProfile(sweep, measured, {.time_margin = 0}));
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

}  // namespace perseus::tuner
