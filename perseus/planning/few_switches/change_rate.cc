#include "perseus/planning/few_switches/change_rate.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "perseus/base/wording.h"

namespace perseus::few_switches {
namespace {

constexpr double kUsedPartOfRate = 0.95;
// More changes than any iteration has. It ensures that the product fits into an int.
constexpr double kMostChanges = 1e9;
// The deadlines to try, relative to the deadline of the plan without a limit.
constexpr double kLongerTimes[] = {1.001, 1.002, 1.005, 1.01, 1.02, 1.04, 1.08, 1.16, 1.32, 1.64};

int MostAllowed(const ChangeLimit& limit, Nanoseconds time) {
  return limit.most_changes ? *limit.most_changes : MostChanges(*limit.changes_per_s, time);
}

bool IsPowerCap(const plan::Target& target) { return target.kind == plan::Target::Kind::kPowerCap; }

// Returns a plan within the limit, or nullopt if none is found. If a plan is faster than its
// deadline, a rate allows fewer changes in it. So the limit falls until the plan keeps it. For a
// power cap, the plan has the least energy until the deadline: more time lowers the power.
Result<std::optional<KeptPlan>> LimitChanges(const plan::Planner& planner, Nanoseconds deadline,
                                             std::span<const plan::Plan> known,
                                             const plan::Target& target, const ChangeLimit& limit,
                                             SwitchLimits limits) {
  if (IsPowerCap(target)) limits.waiting = SwitchLimits::Waiting::kUntilDeadline;
  for (int most = MostAllowed(limit, deadline);;) {
    PERSEUS_ASSIGN_OR_RETURN(
        auto limited, PlanFewSwitches(planner, deadline, std::span(&most, 1), known, limits));
    std::optional<plan::Plan>& found = limited.front().plan;
    if (!found) return std::nullopt;
    const plan::Evaluation& evaluation = found->evaluation;
    const int allowed = MostAllowed(limit, evaluation.time);
    if (MostSwitches(evaluation) <= allowed) {
      // The bound of a plan with a power cap has no waiting after the end of the plan.
      if (IsPowerCap(target)) {
        found->lower_bound_j -= planner.EnergyUntil(deadline, evaluation) - evaluation.energy_j;
      }
      return KeptPlan{*std::move(found), most};
    }
    most = allowed;  // Less than before: the plan has at most `most` changes.
  }
}

// Returns the plan with all instructions at one clock that is the fastest within the power cap. If
// none is within the cap, returns the plan of least power. Returns nullopt if no clock was measured
// for all instructions. (The search within a limit only has options of useful energy, and the least
// power may need slower ones: slow_plans.h.)
std::optional<KeptPlan> PlanAtOneClock(const plan::Planner& planner, const plan::Target& target) {
  const schedule::InstructionGraph& graph = planner.graph();
  const plan::Evaluator evaluator(graph, planner.model());
  const auto rank = [&](const plan::Evaluation& evaluation) {
    return plan::IsWithin(target, evaluation) ? std::pair(0, ToSeconds(evaluation.time))
                                              : std::pair(1, evaluation.average_power_w());
  };
  std::vector<profile::Option> clocks;
  for (const schedule::OptionSet& set : graph.option_sets) {
    if (clocks.empty() && set.HasClock()) clocks = set.options;
  }
  std::optional<KeptPlan> best;
  for (const profile::Option& clock : clocks) {
    std::vector<int> options;
    for (const schedule::InstructionNode& instruction : graph.instructions) {
      const schedule::OptionSet& set =
          graph.option_sets[static_cast<std::size_t>(instruction.option_set)];
      const auto same =
          std::ranges::find_if(set.options, [&](const auto& one) { return one.SameKnobs(clock); });
      if (same == set.options.end() && set.HasClock()) break;
      options.push_back(same == set.options.end() ? 0
                                                  : static_cast<int>(same - set.options.begin()));
    }
    if (options.size() < graph.instructions.size()) continue;
    plan::Evaluation evaluation = evaluator.Evaluate(options);
    if (best && rank(best->plan.evaluation) <= rank(evaluation)) continue;
    best = KeptPlan{{.target = {},
                     .deadline = evaluation.time,
                     .options = std::move(options),
                     .evaluation = std::move(evaluation)},
                    0};
    best->plan.lower_bound_j = planner.BoundOf(best->plan.deadline, 0);
  }
  return best;
}

// Tries longer times in steps, up to the time of `slowest`. Returns the first plan that keeps the
// limit and the target. If none keeps both, returns `slowest`, the plan of least energy within the
// limit.
Result<KeptPlan> FindForLongerTime(const plan::Planner& planner, const plan::Plan& plan,
                                   const plan::Target& target, const ChangeLimit& limit,
                                   const SwitchLimits& limits, KeptPlan slowest) {
  for (const double longer : kLongerTimes) {
    const auto deadline = static_cast<Nanoseconds>(longer * static_cast<double>(plan.deadline));
    if (deadline >= slowest.plan.evaluation.time) break;
    PERSEUS_ASSIGN_OR_RETURN(
        auto found, LimitChanges(planner, deadline, std::span(&plan, 1), target, limit, limits));
    if (found && plan::IsWithin(target, found->plan.evaluation)) return *std::move(found);
  }
  return slowest;
}

// `nearest` is the plan within the limit that misses the target by the least, or nullopt.
tl::unexpected<Error> FailToKeep(const plan::Plan& plan, const plan::Target& target,
                                 const ChangeLimit& limit, const std::optional<KeptPlan>& nearest) {
  const std::string with_limit = fmt::format(
      "at most {} per GPU{}", Counted(MostAllowed(limit, plan.deadline), "switch"),
      limit.most_changes ? ""
                         : fmt::format(", which {:.4g} clock changes per second and GPU allow",
                                       *limit.changes_per_s));
  if (!nearest) {
    return FailAs(ErrorKind::kUnreachable,
                  "{}: found no plan with {}, whatever its time (allow more changes)", plan.target,
                  with_limit);
  }
  const plan::Evaluation& evaluation = nearest->plan.evaluation;
  using Kind = plan::Target::Kind;
  const auto [least, unit] =
      target.kind == Kind::kEnergyBudget ? std::pair(evaluation.energy_j, "J")
      : target.kind == Kind::kPowerCap   ? std::pair(evaluation.average_power_w(), "W")
                                         : std::pair(ToSeconds(evaluation.time), "s");
  return FailAs(ErrorKind::kUnreachable,
                "{}: found no plan with {}: the least found is {} {} (allow that much, or more "
                "changes)",
                plan.target, with_limit, plan::RoundedUp(least), unit);
}

// KeepChangeLimit. But with a latency or a cost of changes, the plan for an energy budget or a
// power cap may be slower than necessary.
Result<KeptPlan> KeepLimit(const plan::Planner& planner, plan::Plan plan,
                           const plan::Target& target, const ChangeLimit& limit,
                           const SwitchLimits& limits) {
  if (limit.IsNone() || MostSwitches(plan.evaluation) <= MostAllowed(limit, plan.evaluation.time)) {
    return KeptPlan{std::move(plan), std::nullopt};
  }
  PERSEUS_ASSIGN_OR_RETURN(
      auto found, LimitChanges(planner, plan.deadline, std::span(&plan, 1), target, limit, limits));
  if (found && plan::IsWithin(target, found->plan.evaluation)) {
    // The bound without a limit is also valid with the limit, if it does not depend on the time of
    // the plan.
    if (!IsPowerCap(target)) {
      found->plan.lower_bound_j = std::max(found->plan.lower_bound_j, plan.lower_bound_j);
    }
    found->plan.target = NameWithLimit(plan.target, *found->most_changes);
    return *std::move(found);
  }
  std::optional<KeptPlan> slowest;
  if (IsPowerCap(target)) slowest = PlanAtOneClock(planner, target);
  if (!slowest || !plan::IsWithin(target, slowest->plan.evaluation)) {
    PERSEUS_ASSIGN_OR_RETURN(
        const Nanoseconds longest,
        plan::DeadlineOf(planner, nullptr, {.kind = plan::Target::Kind::kMinEnergy}));
    // The known plans are left out, so that this plan does not depend on the target. If the user
    // then asks for the value in the message below, this plan meets it.
    PERSEUS_ASSIGN_OR_RETURN(auto searched,
                             LimitChanges(planner, longest, {}, target, limit, limits));
    if (!slowest || (searched && searched->plan.evaluation.average_power_w() <
                                     slowest->plan.evaluation.average_power_w())) {
      slowest = std::move(searched);
    }
  }
  if (!slowest || !(target.or_nearest || plan::IsWithin(target, slowest->plan.evaluation))) {
    return FailToKeep(plan, target, limit, slowest);
  }
  PERSEUS_ASSIGN_OR_RETURN(KeptPlan longer, FindForLongerTime(planner, plan, target, limit, limits,
                                                              *std::move(slowest)));
  if (plan::LimitsTime(target.kind)) return FailToKeep(plan, target, limit, longer);
  longer.plan.target = NameWithLimit(plan.target, *longer.most_changes);
  return longer;
}

// Looks for a faster plan within an energy budget or a power cap. The plan so far comes from plans
// that ignore the latency and the cost of changes.
Result<KeptPlan> Faster(const plan::Planner& planner, KeptPlan kept, std::string_view name,
                        const plan::Target& target, const ChangeLimit& limit,
                        const SwitchLimits& limits) {
  constexpr int kHalvings = 5;
  // In all jobs that were tried, an eighth of the time was more than the gain.
  Nanoseconds too_fast = kept.plan.evaluation.time - kept.plan.evaluation.time / 8;
  too_fast = std::max(too_fast, planner.least_time());
  for (int i = 0; i < kHalvings && plan::IsWithin(target, kept.plan.evaluation); ++i) {
    const Nanoseconds time = too_fast + (kept.plan.evaluation.time - too_fast) / 2;
    PERSEUS_ASSIGN_OR_RETURN(
        auto found, LimitChanges(planner, time, std::span(&kept.plan, 1), target, limit, limits));
    if (limits.finish.stop_requested()) break;
    if (found && plan::IsWithin(target, found->plan.evaluation)) {
      kept = *std::move(found);
      kept.plan.target = NameWithLimit(name, *kept.most_changes);
    } else {
      too_fast = time;
    }
  }
  return kept;
}

}  // namespace

int MostChanges(double changes_per_s, Nanoseconds time) {
  return static_cast<int>(
      std::min(kMostChanges, kUsedPartOfRate * changes_per_s * ToSeconds(time)));
}

int MostSwitches(const plan::Evaluation& evaluation) {
  const std::vector<int>& switches = evaluation.pp_rank_switches;
  return switches.empty() ? 0 : *std::max_element(switches.begin(), switches.end());
}

std::string NameWithLimit(std::string_view target, int most_changes) {
  return fmt::format("{}, at most {} per GPU", target, Counted(most_changes, "switch"));
}

Result<KeptPlan> KeepChangeLimit(const plan::Planner& planner, plan::Plan plan,
                                 const plan::Target& target, const ChangeLimit& limit,
                                 const SwitchLimits& limits) {
  const std::string name = plan.target;
  PERSEUS_ASSIGN_OR_RETURN(KeptPlan kept,
                           KeepLimit(planner, std::move(plan), target, limit, limits));
  const bool limits_cost = target.kind == plan::Target::Kind::kEnergyBudget || IsPowerCap(target);
  if (limit.IsNone() || !limits_cost || planner.model().SwitchesAreFree()) return kept;
  return Faster(planner, std::move(kept), name, target, limit, limits);
}

}  // namespace perseus::few_switches
