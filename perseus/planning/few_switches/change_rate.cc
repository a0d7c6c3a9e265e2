#include "perseus/planning/few_switches/change_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "perseus/base/wording.h"

namespace perseus::few_switches {
namespace {

constexpr double kUsedPartOfRate = 0.95;
// More changes than any iteration has, so that the product fits.
constexpr double kMostChanges = 1e9;
// How much longer than the plan without a limit a plan may take to meet its budget or its cap.
constexpr std::array<double, 8> kLongerTimes = {1, 1.01, 1.02, 1.04, 1.08, 1.16, 1.32, 1.64};

bool Meets(const plan::Target& target, const plan::Evaluation& evaluation) {
  using Kind = plan::Target::Kind;
  if (target.kind == Kind::kEnergyBudget) return evaluation.energy_j <= target.value;
  if (target.kind == Kind::kPowerCap) return evaluation.average_power_w() <= target.value;
  return true;
}

int MostAllowed(const ChangeLimit& limit, Nanoseconds time) {
  return limit.most_changes ? *limit.most_changes : MostChanges(*limit.changes_per_s, time);
}

// A plan within the limit. With a rate, a plan may be faster than its deadline, and then fewer
// changes are allowed: so the limit falls until the plan keeps it. Empty if none is found.
Result<std::optional<KeptPlan>> LimitChanges(const plan::Planner& planner, const plan::Plan& plan,
                                             Nanoseconds deadline, const ChangeLimit& limit,
                                             const SwitchLimits& limits) {
  for (int most = MostAllowed(limit, deadline);;) {
    PERSEUS_ASSIGN_OR_RETURN(auto limited, PlanFewSwitches(planner, deadline, std::span(&most, 1),
                                                           std::span(&plan, 1), limits));
    std::optional<plan::Plan>& found = limited.front().plan;
    if (!found) return std::nullopt;
    const int allowed = MostAllowed(limit, found->evaluation.time);
    if (MostSwitches(found->evaluation) <= allowed) {
      found->target = NameWithLimit(plan.target, most);
      return KeptPlan{*std::move(found), most};
    }
    most = allowed;  // Less than before, because the plan has at most `most` switches.
  }
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
  for (const double longer : kLongerTimes) {
    const auto deadline =
        longer == 1 ? plan.deadline
                    : static_cast<Nanoseconds>(longer * static_cast<double>(plan.deadline));
    PERSEUS_ASSIGN_OR_RETURN(auto found, LimitChanges(planner, plan, deadline, limit, limits));
    if (found && Meets(target, found->plan.evaluation)) return *std::move(found);
    const bool may_be_longer = target.kind == plan::Target::Kind::kEnergyBudget ||
                               target.kind == plan::Target::Kind::kPowerCap;
    if (!may_be_longer) break;
  }
  return FailAs(ErrorKind::kUnreachable,
                "{}: found no plan with at most {} per GPU{} (choose another target, or allow more "
                "changes)",
                plan.target, Counted(MostAllowed(limit, plan.deadline), "switch"),
                limit.most_changes
                    ? ""
                    : fmt::format(", which {:.4g} clock changes per second and GPU allow",
                                  *limit.changes_per_s));
}

}  // namespace perseus::few_switches
