#include "perseus/runtime/tuner/following.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "perseus/base/wording.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/runtime/tuner/conductor.h"

namespace perseus::tuner {
namespace {

// How many plans are followed. A plan is made from the options that seem best, and these options
// seem better than they are. So the first plan is activated and measured at its own clocks. Then a
// second plan is made with these measurements. The promise of the second plan is computed from the
// times that were measured while it ran, and from the energy of its whole steps.
constexpr int kPlansFollowed = 2;
// If the second plan makes steps longer than promised by more than this part, and the first one did
// not, the first one is in force again. At a power limit, clocks wander, so the second plan was up
// to 0.5 % too slow in some runs.
constexpr double kMostLonger = 0.001;

}  // namespace

// Writes the plans of all pipelines.
Result<protocol::Assignment> Following::AssignPlans() const {
  protocol::Assignment assignment;
  PERSEUS_ASSIGN_OR_RETURN(assignment.plan,
                           job_.conductor().AddPlan(plan_file::FormatPlan(plans_->pace().file())));
  for (const auto& [dp_rank, plan] : plans_->FasterPlans()) {
    PERSEUS_ASSIGN_OR_RETURN(assignment.plans[dp_rank],
                             job_.conductor().AddPlan(plan_file::FormatPlan(plan), dp_rank));
  }
  return assignment;
}

// Runs the steps with which the plan is compared, directly before the plan.
Result<UsualCost> Following::RunBaseline() {
  protocol::Assignment assignment;
  for (const profiler::InstructionGroup& group : profiler::GroupsOf(job_.options().job.schedule)) {
    const int highest = job_.highest_mhz(group.rank);
    assignment.clocks.push_back({group.rank, group.chunk, group.kind, highest});
  }
  job_.Say(fmt::format("measuring steps at the highest clocks{} to compare with",
                       job_.reached().empty() ? "" : " that the power limit permits"));
  PERSEUS_ASSIGN_OR_RETURN(
      const auto ran,
      job_.conductor().RunWith(std::move(assignment), job_.options().steps_followed, 0));
  job_.Measure(ran);
  job_.WarnOfDisturbances(ran);
  job_.LookForPowerLimit();
  job_.MeasureWithoutPlan(ran);
  auto cost = UsualCostOfSteps(job_.conductor().logs(), job_.conductor().ranks(), ran.counted());
  job_.conductor().ForgetBefore(ran.last);
  return cost;
}

// Activates the plan until it is measured.
Result<Following::Followed> Following::Follow() {
  job_.Say("following a plan to measure it");
  PERSEUS_ASSIGN_OR_RETURN(auto assignment, AssignPlans());
  // The number of steps is enough to evaluate the plan, and for the ranks to read the next
  // assignment.
  const auto spare_steps = static_cast<int>(2 * job_.conductor().Ahead());
  PERSEUS_ASSIGN_OR_RETURN(
      const auto ran,
      job_.conductor().RunWith(std::move(assignment), job_.options().steps_followed, spare_steps));
  Followed followed;
  profiler::InstructionNoise of_plan;
  job_.WarnOfDisturbances(ran);
  job_.Measure(followed.gpus, of_plan, ran, TunedJob::Alarms::kIgnored);
  job_.Measure(ran);
  PERSEUS_ASSIGN_OR_RETURN(
      followed.cost,
      UsualCostOfSteps(job_.conductor().logs(), job_.conductor().ranks(), ran.counted()));
  job_.conductor().ForgetBefore(ran.last);
  PERSEUS_RETURN_IF_ERROR(job_.SaveState());
  return followed;
}

// If whole steps were slower than the noise explains, the remaining slowdown counts as additional
// noise for the next plan. The additional noise covers other causes: switches that sometimes take
// longer than stated, and processes that wake up late. Two standard errors are subtracted first.
// Otherwise, plans would get an expensive margin by chance.
void Following::Explain(const SeenSteps& seen) {
  if (!plan::LimitsTime(job_.options().target.kind)) return;
  const double error = seen.time_error_s / seen.baseline_time_s;
  const double further = plans_->pace().NoiseThatExplains(
      seen.slowdown() - 2 * error, job_.MeasuredNoise().value_or(noise::Noise{}));
  double& known = job_.state().further_noise;  // The plan has a margin for it.
  known = std::hypot(known, further);
}

// Whether steps are certainly longer than the plan promised before it ran.
bool Following::IsTooSlow() const {
  if (!plan::LimitsTime(job_.options().target.kind)) return false;
  const double error = seen_->time_error_s / seen_->baseline_time_s;
  const double promised = std::max(0.0, plans_->Promise().slowdown());
  return seen_->slowdown() - 2 * error > promised + kMostLonger;
}

Result<void> Following::FollowPlans(const std::string& reason) {
  PERSEUS_ASSIGN_OR_RETURN(const auto baseline, RunBaseline());
  std::optional<Followed> followed;
  struct Before {
    PacedPlans plans;
    Followed followed;
    SeenSteps seen;
  };
  std::optional<Before> before;
  for (int i = 0; i < kPlansFollowed; ++i) {
    if (followed && !IsTooSlow()) before = {*std::move(plans_), *std::move(followed), *seen_};
    if (auto made = MakePlan(reason); !made) return made;
    PERSEUS_ASSIGN_OR_RETURN(followed, Follow());
    // This saving differs from the saving that the plan promises, because noise made the plan's
    // options look good.
    seen_ = SeenStepsOf(followed->cost, baseline);
    if (i == 0) WarnIfStepsOverlap();
    job_.Say(fmt::format("plan {} of {} saves {} of the energy at {} time in whole steps", i + 1,
                         kPlansFollowed, FormatPercent(seen_->saving()),
                         FormatChange(seen_->slowdown())));
    if (i + 1 < kPlansFollowed) Explain(*seen_);
  }
  if (before && IsTooSlow()) {
    job_.Say("the last plan makes steps longer than the one before, which is in force again");
    plans_ = std::move(before->plans);
    followed = std::move(before->followed);
    seen_ = before->seen;
  }
  PERSEUS_RETURN_IF_ERROR(
      plans_->JudgeBy(job_.Job(), followed->gpus, job_.reachable_mhz(), *seen_));
  WarnAboveTarget();
  PERSEUS_RETURN_IF_ERROR(CheckSeen(*seen_, std::max(0.0, plans_->Promise().slowdown())));
  WarnIfUnexplained();
  return LeaveInForce();
}

// Warns if whole steps need more than the target allows. They may need more than the sum of their
// measured instructions.
void Following::WarnAboveTarget() const {
  const plan_file::PlanFile& file = plans_->pace().file();
  plan::Evaluation judged;
  judged.time = file.time;
  judged.energy_j = file.energy_j;
  if (plan::IsWithin(job_.options().target, judged)) return;
  job_.Say(fmt::format(
      "warning: by the energy of whole steps, the plan needs {:.6g} J and {:.6g} W, "
      "which is more than its target, {} (run again with a lower one)",
      judged.energy_j, judged.average_power_w(), plan::Describe(job_.options().target)));
}

// Between two steps, a rank may not have to wait for the others, as with V-shaped schedules. Such
// a rank begins the next step early. Then a step takes less time than in the plan's model. The
// plan counts the difference as time for which ranks wait.
void Following::WarnIfStepsOverlap() const {
  if (!seen_->StepsOverlap()) return;
  const double share = seen_->overlap_s / seen_->baseline_time_s;
  job_.Say(
      fmt::format("warning: ranks begin a step {:.1f} % of its time before others have ended the "
                  "last one, but plans assume that they begin together: a plan may slow the job by "
                  "up to {:.1f} % (this cannot happen if all ranks wait for each other once in a "
                  "step, as for the norm of all gradients)",
                  100 * share, 100 * share));
}

// Warns if the profile does not explain whole steps. The values of whole steps are correct. But
// other plans (of the server, for a straggler) use the profile.
void Following::WarnIfUnexplained() const {
  constexpr double kOnePoint = 0.01;
  const double promised = plans_->Promise().saving();
  if (std::abs(promised - seen_->saving()) <= kOnePoint) return;
  job_.Say(fmt::format(
      "warning: by the energies of single instructions, the plan saves {}, but whole steps "
      "show {}: do not use this profile for other plans (measure more "
      "steps; does another program use these GPUs?)",
      FormatPercent(promised), FormatPercent(seen_->saving())));
}

Result<void> Following::LeaveInForce() {
  PERSEUS_ASSIGN_OR_RETURN(auto assignment, AssignPlans());
  PERSEUS_ASSIGN_OR_RETURN(const auto left, job_.conductor().LeaveInForce(std::move(assignment)));
  version_ = left.version;
  plan_from_step_ = left.step;
  return {};
}

std::vector<OutlookRow> Following::Outlook(double optimism) const {
  const TuningOptions& options = job_.options();
  if (options.job.schedule.pp_ranks.size() > 1) return {};
  return OutlookOf({job_.Job(), options.job, job_.RunningGpus(), job_.reachable_mhz(),
                    job_.MeasuredNoise(), options.changes, job_.meeting(), optimism, options.target,
                    plans_->Promise().saving()});
}

Result<void> Following::MakePlan(const std::string& reason) {
  const std::optional<noise::Noise> noise = job_.MeasuredNoise();
  auto made =
      PacedPlans::Make(job_.Job(), job_.options().job, job_.options().target, job_.RunningGpus(),
                       job_.reachable_mhz(), noise, job_.options().changes, job_.meeting());
  if (!made) {
    return FailAs(made.error().kind, "measuring ended because {}, and this gives no plan: {}",
                  reason, made.error().Message());
  }
  plans_ = *std::move(made);
  const std::size_t faster = plans_->FasterPlans().size();
  if (faster > 0 && !std::exchange(has_named_faster_, true)) {
    job_.Say(
        fmt::format("{} of {} pipelines are faster than the slowest, and get plans that end "
                    "together with it",
                    faster, job_.options().job.pipelines));
  }
  return {};
}

}  // namespace perseus::tuner
