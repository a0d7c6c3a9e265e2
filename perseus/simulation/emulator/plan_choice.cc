#include "perseus/simulation/emulator/plan_choice.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::emulator {
namespace {

// How many plans are tried for a pipeline that is slow, but not the slowest. Their times are
// multiples of this part of the base plan's time, so that many nearly equal pipelines share a plan.
// (A plan takes a tenth of a second, everything else is fast.)
constexpr int kMostAttempts = 3;
constexpr Nanoseconds kParts = 32;

// time * up / down, rounded down.
Nanoseconds Scaled(Nanoseconds time, Nanoseconds up, Nanoseconds down) {
  __extension__ using Wide = __int128;
  return static_cast<Nanoseconds>(static_cast<Wide>(time) * up / std::max<Nanoseconds>(down, 1));
}

// The index of the event that came last of those that hold in that iteration, if there is one.
template <typename Event, typename Holds>
std::optional<std::size_t> Latest(const std::vector<Event>& events, const JobClock& clock,
                                  int iteration, Holds holds) {
  std::optional<std::size_t> latest;
  Nanoseconds arrival = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (!clock.HasCome(events[i].from, iteration) || !holds(events[i])) continue;
    const Nanoseconds time = *clock.TimeOf(events[i].from, iteration);
    if (latest && time < arrival) continue;
    latest = i;
    arrival = time;
  }
  return latest;
}

}  // namespace

PlanChoice::PlanChoice(const plan::Planner& planner, const EmulationSpec& spec,
                       const JobClock& clock, PipelineRuns& runs)
    : planner_(planner),
      spec_(spec),
      clock_(clock),
      runs_(runs),
      plan_(runs.AddPlan(spec.options)),
      change_in_force_(spec.changes.size()),
      cap_in_force_(spec.power_caps.size()) {
  for (const PlanChange& change : spec.changes) {
    plan_of_change_.push_back(runs.AddPlan(change.options));
  }
  for (const PowerCap& cap : spec.power_caps) plan_of_cap_.push_back(runs.AddPlan(cap.options));
}

Result<std::vector<int>> PlanChoice::PlansIn(int iteration) {
  PERSEUS_ASSIGN_OR_RETURN(const auto base, BaseIn(iteration));
  std::vector<int> plans(At(spec_.pipelines), base.plan);
  // The controller knows what happened `delay` iterations ago.
  const int known = iteration - spec_.delay;
  if (spec_.reaction == Reaction::kNone || known < 0) return plans;
  PERSEUS_ASSIGN_OR_RETURN(const auto base_known, BaseIn(known));
  if (base_known.plan != base.plan) return plans;
  PERSEUS_ASSIGN_OR_RETURN(const auto slowest, SlowestIn(known, base.plan));
  PERSEUS_ASSIGN_OR_RETURN(const auto undisturbed, runs_.StateUndisturbed(base.plan));
  if (slowest <= runs_.run(undisturbed).time) return plans;
  std::optional<int> of_undisturbed;
  for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
    if (!runs_.IsDisturbed(pipeline) && of_undisturbed) {
      plans[At(pipeline)] = *of_undisturbed;
      continue;
    }
    PERSEUS_ASSIGN_OR_RETURN(const auto plan, PlanBeside(slowest, known, pipeline, base));
    plans[At(pipeline)] = plan;
    if (!runs_.IsDisturbed(pipeline)) of_undisturbed = plan;
  }
  return plans;
}

Result<PlanChoice::Base> PlanChoice::BaseIn(int iteration) {
  Base base{plan_, std::numeric_limits<double>::infinity()};
  const auto change = Latest(spec_.changes, clock_, iteration, [](const auto&) { return true; });
  if (change) {
    base.plan = plan_of_change_[*change];
    change_in_force_[*change] = true;
  }
  const auto cap = Latest(spec_.power_caps, clock_, iteration,
                          [&](const PowerCap& of) { return !clock_.HasCome(of.until, iteration); });
  if (!cap) return base;
  cap_in_force_[*cap] = true;
  base.most_w = spec_.power_caps[*cap].watts / spec_.pipelines;
  PERSEUS_ASSIGN_OR_RETURN(const auto power_w, PowerOf(base.plan));
  if (power_w > base.most_w) base.plan = plan_of_cap_[*cap];
  return base;
}

Result<double> PlanChoice::PowerOf(int plan) {
  PERSEUS_ASSIGN_OR_RETURN(const auto state, runs_.StateUndisturbed(plan));
  return runs_.run(state).average_power_w();
}

// The time of the slowest pipeline in that iteration if all run that plan.
Result<Nanoseconds> PlanChoice::SlowestIn(int iteration, int plan) {
  PERSEUS_ASSIGN_OR_RETURN(const auto undisturbed, runs_.StateUndisturbed(plan));
  Nanoseconds slowest = 0;
  bool are_all_disturbed = true;
  for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
    if (!runs_.IsDisturbed(pipeline)) {
      are_all_disturbed = false;
      continue;
    }
    PERSEUS_ASSIGN_OR_RETURN(const auto state, runs_.StateIn(iteration, pipeline, plan));
    slowest = std::max(slowest, runs_.run(state).time);
  }
  return are_all_disturbed ? slowest : std::max(slowest, runs_.run(undisturbed).time);
}

// The plan of a pipeline beside a straggler of that time, as known in `iteration`. If the pipeline
// is slow itself, the time for its plan is found by trial.
Result<int> PlanChoice::PlanBeside(Nanoseconds straggler, int iteration, int pipeline,
                                   const Base& base) {
  PERSEUS_ASSIGN_OR_RETURN(const auto own, runs_.StateIn(iteration, pipeline, base.plan));
  PERSEUS_ASSIGN_OR_RETURN(const auto undisturbed, runs_.StateUndisturbed(base.plan));
  const Nanoseconds base_time = runs_.run(undisturbed).time;
  Nanoseconds time = Scaled(base_time, straggler, runs_.run(own).time);
  for (int attempt = 0; attempt < kMostAttempts && time > base_time; ++attempt) {
    const Nanoseconds part = std::max<Nanoseconds>(base_time / kParts, 1);
    const bool is_healthy = time == straggler;
    PERSEUS_ASSIGN_OR_RETURN(
        const auto plan,
        PlanFollowing(is_healthy ? time : std::max(time / part * part, base_time)));
    PERSEUS_ASSIGN_OR_RETURN(const auto state, runs_.StateIn(iteration, pipeline, plan));
    if (runs_.run(state).time > straggler) {
      time = Scaled(time, straggler, runs_.run(state).time);
      continue;
    }
    PERSEUS_ASSIGN_OR_RETURN(const auto power_w, PowerOf(plan));
    const bool keeps_to_cap =
        power_w <= base.most_w && runs_.run(state).average_power_w() <=
                                      std::max(base.most_w, runs_.run(own).average_power_w());
    return keeps_to_cap && EnergyUntil(straggler, state) < EnergyUntil(straggler, own) ? plan
                                                                                       : base.plan;
  }
  return base.plan;
}

double PlanChoice::EnergyUntil(Nanoseconds time, int state) const {
  const RunSummary& run = runs_.run(state);
  return run.energy_j +
         planner_.model().blocking_power_w * planner_.pp_ranks() * ToSeconds(time - run.time);
}

// The plan for a straggler of that time.
Result<int> PlanChoice::PlanFollowing(Nanoseconds time) {
  const auto known = following_.find(time);
  if (known != following_.end()) return known->second;
  if (spec_.plan_beside) {
    PERSEUS_ASSIGN_OR_RETURN(auto options, spec_.plan_beside(time));
    return following_[time] = runs_.AddPlan(std::move(options));
  }
  PERSEUS_ASSIGN_OR_RETURN(auto plan, planner_.PlanForStraggler(time));
  return following_[time] = runs_.AddPlan(std::move(plan.options));
}

}  // namespace perseus::emulator
