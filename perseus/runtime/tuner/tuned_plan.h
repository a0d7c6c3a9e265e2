// Makes a plan from measurements, and computes what it promises.
//
// A plan is made with margins (profiler/sweep_plan.h), and from the options that seemed best, which
// look better than they are. So its promise is computed separately: with its clocks, without
// margins, from the options that were measured later, and with energies that are scaled to those of
// whole steps.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "perseus/base/result.h"
#include "perseus/planning/noise/noise_margin.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/profiler/measured_option.h"
#include "perseus/runtime/profiler/sweep_plan.h"
#include "perseus/runtime/tuner/step_costs.h"

namespace perseus::tuner {

// Why the plan has to be earlier than its target.
struct TimeMargin {
  std::optional<noise::Noise> noise;  // Of the instructions. Empty: unknown.
  double earlier = 0;                 // Further time, as a fraction of the baseline's.
};

class TunedPlan {
 public:
  // Makes a plan for that target. `job` is the content of the plan's file, except for the model,
  // which comes from `sweep`. The promise is computed from the options of the plan itself. If no
  // plan keeps the target on average under noise, the plan has no margin. Fails as PlanFromSweep
  // does.
  static Result<TunedPlan> Make(const profiler::SweepJob& sweep, const plan_file::PlannedJob& job,
                                const plan::Target& target,
                                std::span<const profiler::MeasuredOption> measured,
                                const TimeMargin& margin);

  // From now on, the promise is computed from these options, with energies scaled so that whole
  // steps need what was observed. (A difference of a quarter is no error of measurement: another
  // consumer appeared or vanished. Then nothing is scaled.)
  Result<void> JudgeBy(const profiler::SweepJob& sweep,
                       std::span<const profiler::MeasuredOption> measured, const SeenSteps& seen);

  // The profile for other plans of the job (another target, a straggler). Like the profile of this
  // plan, it has all of these options, with margins. Its energies are scaled so that this plan
  // would save what was observed. If `seen` is null, they are as measured, and promise as much too
  // much as any plan that was not followed.
  Result<profile::Profile> ProfileForPlans(const profiler::SweepJob& sweep,
                                           std::span<const profiler::MeasuredOption> measured,
                                           const SeenSteps* seen) const;

  // The plan with its latest promise.
  const plan_file::PlanFile& file() const { return file_; }
  // All options that it could use, with their latest values.
  const profile::Profile& profile() const { return profile_; }
  double saving() const { return 1 - file_.energy_j / file_.baseline_energy_j; }
  double slowdown() const { return ToSeconds(file_.time) / ToSeconds(file_.baseline_time) - 1; }
  // The means under noise, by the options that it was made from. Empty without noise.
  const std::optional<noise::NoisyPlan>& under_noise() const { return under_noise_; }

 private:
  // Factors on the energies of options at the highest clock of their group, and of all others.
  struct Scale {
    double highest = 1;
    double other = 1;
  };
  TunedPlan(plan::Plan plan, plan_file::PlanFile file)
      : plan_(std::move(plan)), file_(std::move(file)) {}
  enum class Margins { kNone, kAsPlanned };
  static Result<profile::Profile> ProfileOf(const profiler::SweepJob& sweep,
                                            std::span<const profiler::MeasuredOption> measured,
                                            const Scale& scale, Margins margins = Margins::kNone);
  Result<Scale> ScaleOf(const profiler::SweepJob& sweep,
                        std::span<const profiler::MeasuredOption> measured,
                        const SeenSteps& seen) const;
  Result<Scale> ScaleTo(const SeenSteps& seen, const plan::Planner& judge) const;
  Result<void> Judge(const profiler::SweepJob& sweep, profile::Profile profile);

  plan::Plan plan_;
  plan_file::PlanFile file_;
  std::optional<noise::NoisyPlan> under_noise_;
  profile::Profile profile_{"", {}, {}};
};

}  // namespace perseus::tuner
