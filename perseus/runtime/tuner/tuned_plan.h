// Makes a plan from measurements, and computes what it promises.
//
// A plan is made with margins (profiler/sweep_plan.h), and from the options that seemed best. Such
// options look better than they are. So the promise is computed separately. This computation uses
// the clocks of the plan without margins, the times that were measured later, and scaled energies.
// The scale makes the energies agree with the energy of whole steps.
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
// The problem. A planner prefers options that look better than they are because of noise (the
// winner's curse). So a plan seems to save more than it really saves. Also, a better plan exists,
// but the planner cannot find it yet.
//
// The estimate is a parametric bootstrap (Efron & Tibshirani, An Introduction to the Bootstrap,
// chapter 10). The measured options are taken as the truth. They are measured again a few times,
// with random noise of their standard errors. Each of these new measurements is a draw. For each
// draw, a plan is made for the target of `tune`, within the limit of the job, but without a margin
// and without a choice among limits. Then all of these values are known:
//
//     optimism   what the plan seems to save by its own draw - what it saves by the truth
//     left       what the plan of the truth saves            - what it saves by the truth
//     twice      `left`, minus what is left with errors that are smaller by sqrt(2)
//
// Errors. Half of the variance of an option is its own. The other half changes linearly over the
// clocks of its group, because the fitted model shares errors between neighboring clocks. The truth
// of the draws is itself measured, and seems to save too much. The differences above remove this
// error only in part.
//
// Thread safety: pure. An estimate takes as long as making 25 plans.

// Each value is a fraction of the energy of an iteration at the highest clocks. No value is
// negative.
struct Expectation {
  double optimism = 0;  // The promised saving minus the real one, before a plan is followed.
  double left = 0;      // The further saving of a plan without errors of measurement.
  double twice = 0;     // The part of `left` that twice as many measured steps would find.
};

// Fails in the same cases as PlanWith.
Result<Expectation> ExpectFrom(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                               const plan::Target& target,
                               std::span<const profiler::MeasuredOption> measured,
                               std::uint64_t seed = 1);

class TunedPlan {
 public:
  // Makes a plan for `target`, as planning/recipe does. `changes` has the rules that the user
  // requested. `sweep` has the rules of the job. `job` is the content of the plan file, except for
  // the model, which comes from `sweep`. The promise is computed from the options of the plan
  // itself. Fails in the same cases as PlanJob of the recipe.
  static Result<TunedPlan> Make(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                                const plan::Target& target,
                                std::span<const profiler::MeasuredOption> measured,
                                const std::optional<noise::Noise>& noise,
                                const recipe::ChangeRules& changes = {});

  // Computes the promise from these options from now on. Scales their energies so that the energy
  // of whole steps is the observed energy. Scales by a quarter at most, because a greater
  // difference is not an error of measurement. In that case, the promise differs from the observed
  // energy.
  Result<void> JudgeBy(const profiler::SweepJob& sweep,
                       std::span<const profiler::MeasuredOption> measured, const SeenSteps& seen);

  // Returns the profile for other plans of the job (another target, a straggler). Like the profile
  // of this plan, it has all of these options, with margins. Its energies are scaled so that this
  // plan would save what was observed. If `seen` is null, the energies are the measured energies.
  // Plans from this profile then promise too much, like any plan that was not followed.
  Result<profile::Profile> ProfileForPlans(const profiler::SweepJob& sweep,
                                           std::span<const profiler::MeasuredOption> measured,
                                           const SeenSteps* seen) const;

  // The plan with its latest promise.
  const plan_file::PlanFile& file() const { return file_; }
  // All options that the plan could use, with their latest values.
  const profile::Profile& profile() const { return profile_; }
  double saving() const { return 1 - file_.energy_j / file_.baseline_energy_j; }
  double slowdown() const { return ToSeconds(file_.time) / ToSeconds(file_.baseline_time) - 1; }
  // Returns the additional independent noise that would make the plan slower by the fraction
  // `slowdown` on average. If `noise` alone explains this slowdown, 0.
  double NoiseThatExplains(double slowdown, const noise::Noise& noise) const;

 private:
  // Factors for the energies of options: at the highest clock of their group, and at all other
  // clocks.
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

  plan::Planner planner_;  // The planner that made the plan, with margins in its times.
  plan::Plan plan_;
  plan_file::PlanFile file_;
  profile::Profile profile_{"", {}, {}};
};

}  // namespace perseus::tuner
