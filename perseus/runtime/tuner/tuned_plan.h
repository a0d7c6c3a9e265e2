// Makes a plan from measurements, and computes what it promises.
//
// A plan is made with margins (profiler/sweep_plan.h), and from the options that seemed best. Such
// options look better than they are. So the promise is computed separately. It uses the clocks of
// the plan without margins, the times that were measured later, and energies that are scaled to
// those of whole steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "perseus/base/result.h"
#include "perseus/planning/noise/noise_margin.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/recipe/recipe.h"
#include "perseus/runtime/profiler/measured_option.h"
#include "perseus/runtime/profiler/sweep_plan.h"
#include "perseus/runtime/tuner/step_costs.h"

namespace perseus::tuner {

// How much a plan from noisy measurements really saves, and how much the noise costs.
//
// The problem. A planner prefers options that noise makes look better than they are (the winner's
// curse). So a plan seems to save more than it does, and a better plan exists that cannot be found
// yet.
//
// The estimate is a parametric bootstrap (Efron & Tibshirani, An Introduction to the Bootstrap,
// chapter 10): the measured options are taken as the truth, and measured again with noise of their
// standard errors, a few times. For each draw, a plan is made for the target of `tune`, within the
// limit of the job, but without a margin and without a choice among limits. Then all of these are
// known:
//
//     optimism   what the plan seems to save by its own draw - what it saves by the truth
//     left       what the plan of the truth saves            - what it saves by the truth
//     twice      `left`, minus what is left with errors that are smaller by sqrt(2)
//
// Errors. Half of the variance of an option is its own. The other half changes linearly over the
// clocks of its group, because the fitted model shares errors between neighboring clocks. The truth
// of the draws is itself measured, and seems to save too much. This cancels in the differences only
// in part.
//
// Thread safety: pure. Takes as long as 25 plans.

// Fractions of the energy of an iteration at the highest clocks. None is negative.
struct Expectation {
  double optimism = 0;  // The promised saving minus the real one, before a plan is followed.
  double left = 0;      // The further saving of a plan without errors of measurement.
  double twice = 0;     // The part of `left` that twice as many measured steps would find.
};

// Fails as PlanWith does.
Result<Expectation> ExpectFrom(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                               const plan::Target& target,
                               std::span<const profiler::MeasuredOption> measured,
                               std::uint64_t seed = 1);

class TunedPlan {
 public:
  // Makes a plan for `target`, as planning/recipe does. `changes` are the rules that the user asks
  // for. The rules in `sweep` are those of the job. `job` is the content of the plan file, except
  // for the model, which comes from `sweep`. The promise is computed from the options of the plan
  // itself. Fails as PlanJob of the recipe does.
  static Result<TunedPlan> Make(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                                const plan::Target& target,
                                std::span<const profiler::MeasuredOption> measured,
                                const std::optional<noise::Noise>& noise,
                                const recipe::ChangeRules& changes = {});

  // From now on, computes the promise from these options. Scales their energies so that whole steps
  // need the observed energy, but by a quarter at most. A greater difference is not an error of
  // measurement. The promise then differs from the observed energy.
  Result<void> JudgeBy(const profiler::SweepJob& sweep,
                       std::span<const profiler::MeasuredOption> measured, const SeenSteps& seen);

  // Returns the profile for other plans of the job (another target, a straggler). Like the profile
  // of this plan, it has all of these options, with margins. Its energies are scaled so that this
  // plan would save what was observed. If `seen` is null, the energies are as measured. They then
  // promise too much, as for any plan that was not followed.
  Result<profile::Profile> ProfileForPlans(const profiler::SweepJob& sweep,
                                           std::span<const profiler::MeasuredOption> measured,
                                           const SeenSteps* seen) const;

  // The plan with its latest promise.
  const plan_file::PlanFile& file() const { return file_; }
  // All options that the plan could use, with their latest values.
  const profile::Profile& profile() const { return profile_; }
  double saving() const { return 1 - file_.energy_j / file_.baseline_energy_j; }
  double slowdown() const { return ToSeconds(file_.time) / ToSeconds(file_.baseline_time) - 1; }
  // The additional independent noise that would make the plan slower by the fraction `slowdown` on
  // average. 0 if `noise` alone is sufficient.
  double NoiseThatExplains(double slowdown, const noise::Noise& noise) const;

 private:
  // Factors on the energies of options at the highest clock of their group, and of all others.
  struct Scale {
    double highest = 1;
    double other = 1;
  };
  TunedPlan(plan::Planner planner, plan::Plan plan, plan_file::PlanFile file)
      : planner_(std::move(planner)), plan_(std::move(plan)), file_(std::move(file)) {}
  static Result<profile::Profile> ProfileOf(const profiler::SweepJob& sweep,
                                            std::span<const profiler::MeasuredOption> measured,
                                            const Scale& scale, double time_margin = 0);
  Result<Scale> ScaleOf(const profiler::SweepJob& sweep,
                        std::span<const profiler::MeasuredOption> measured,
                        const SeenSteps& seen) const;
  Result<Scale> ScaleTo(const SeenSteps& seen, const plan::Planner& judge) const;
  Result<void> Judge(const profiler::SweepJob& sweep, profile::Profile profile);

  plan::Planner planner_;  // It made the plan, with margins in its times.
  plan::Plan plan_;
  plan_file::PlanFile file_;
  profile::Profile profile_{"", {}, {}};
};

}  // namespace perseus::tuner
