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

// Returns a plan within the limit, or nullopt if none is found. If a plan is faster than its
// deadline, a rate allows fewer changes in it. So the limit falls until the plan keeps it.
Result<std::optional<KeptPlan>> LimitChanges(const plan::Planner& planner, Nanoseconds deadline,
                                             std::span<const plan::Plan> known,
                                             const ChangeLimit& limit, const SwitchLimits& limits) {
  for (int most = MostAllowed(limit, deadline);;) {
    PERSEUS_ASSIGN_OR_RETURN(
        auto limited, PlanFewSwitches(planner, deadline, std::span(&most, 1), known, limits));
    std::optional<plan::Plan>& found = limited.front().plan;
    if (!found) return std::nullopt;
    const int allowed = MostAllowed(limit, found->evaluation.time);
    if (MostSwitches(found->evaluation) <= allowed) return KeptPlan{*std::move(found), most};
    most = allowed;  // Less than before: the plan has at most `most` changes.
  }
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
    PERSEUS_ASSIGN_OR_RETURN(auto found,
                             LimitChanges(planner, deadline, std::span(&plan, 1), limit, limits));
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
  if (limit.IsNone() || MostSwitches(plan.evaluation) <= MostAllowed(limit, plan.evaluation.time)) {
    return KeptPlan{std::move(plan), std::nullopt};
  }
  PERSEUS_ASSIGN_OR_RETURN(
      auto found, LimitChanges(planner, plan.deadline, std::span(&plan, 1), limit, limits));
  if (found && plan::IsWithin(target, found->plan.evaluation)) {
    // The bound without a limit is also valid with the limit.
    found->plan.lower_bound_j = std::max(found->plan.lower_bound_j, plan.lower_bound_j);
    found->plan.target = NameWithLimit(plan.target, *found->most_changes);
    return *std::move(found);
  }
  PERSEUS_ASSIGN_OR_RETURN(
      const Nanoseconds longest,
      plan::DeadlineOf(planner, nullptr, {.kind = plan::Target::Kind::kMinEnergy}));
  // The known plans are left out, so that this plan does not depend on the target. If the user then
  // asks for the value in the message below, this plan meets it.
  PERSEUS_ASSIGN_OR_RETURN(auto slowest, LimitChanges(planner, longest, {}, limit, limits));
  if (!slowest || !plan::IsWithin(target, slowest->plan.evaluation)) {
    return FailToKeep(plan, target, limit, slowest);
  }
  PERSEUS_ASSIGN_OR_RETURN(KeptPlan longer, FindForLongerTime(planner, plan, target, limit, limits,
                                                              *std::move(slowest)));
  if (plan::LimitsTime(target.kind)) return FailToKeep(plan, target, limit, longer);
  longer.plan.target = NameWithLimit(plan.target, *longer.most_changes);
  return longer;
}

}  // namespace perseus::few_switches
