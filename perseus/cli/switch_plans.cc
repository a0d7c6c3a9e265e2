#include "perseus/cli/switch_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/cli/table.h"

namespace perseus::cli {
namespace {

constexpr int kTradeoffLimits[] = {0, 2, 3, 4, 6, 8, 12, 16};

std::string FormatGap(double gap) { return fmt::format("{:.3f} %", gap * 100); }

// The most changes of a pp_rank, and the same per second.
std::vector<std::string> FormatChanges(const std::vector<int>& changes, Nanoseconds time) {
  const int most = changes.empty() ? 0 : *std::max_element(changes.begin(), changes.end());
  return {fmt::to_string(most), fmt::format("{:.2f}", most / ToSeconds(time))};
}

}  // namespace

Result<void> CheckSwitchTarget(const plan::Target& target) {
  using Kind = plan::Target::Kind;
  if (target.kind == Kind::kSlowdown || target.kind == Kind::kDeadline ||
      target.kind == Kind::kMinEnergy) {
    return {};
  }
  return Fail(
      "{}: a limit of clock changes needs a target with an iteration time (use --slowdown, "
      "--deadline or --min-energy)",
      Describe(target));
}

Result<std::vector<PlannedTarget>> LimitSwitches(const plan::Planner& planner,
                                                 std::vector<PlannedTarget> planned,
                                                 int most_switches) {
  std::vector<Result<std::vector<few_switches::BudgetPlan>>> limited(planned.size(),
                                                                     Fail("not planned"));
  ForEachOnAllCores(planned.size(), [&](std::size_t i) {
    const plan::Plan& plan = planned[i].plan;
    limited[i] = few_switches::PlanFewSwitches(planner, plan.deadline, std::span(&most_switches, 1),
                                               std::span(&plan, 1));
  });
  std::vector<PlannedTarget> result;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (!limited[i]) return Fail(limited[i]);
    few_switches::BudgetPlan& found = limited[i]->front();
    if (!found.plan) {
      if (planned[i].is_stop) continue;
      if (std::isinf(found.lower_bound_j)) {
        return FailAs(ErrorKind::kUnreachable,
                      "{}: no plan has at most {} clock changes per GPU, because instructions of a "
                      "GPU share no measured clock (allow more changes)",
                      planned[i].plan.target, most_switches);
      }
      return FailAs(ErrorKind::kUnreachable,
                    "{}: found no plan with at most {} clock changes per GPU that meets {:.6f} s "
                    "(allow more changes, or more time)",
                    planned[i].plan.target, most_switches, ToSeconds(planned[i].plan.deadline));
    }
    found.plan->target =
        fmt::format("{}, at most {} switches per GPU", planned[i].plan.target, most_switches);
    planned[i].plan = *std::move(found.plan);
    planned[i].most_switches = most_switches;
    result.push_back(std::move(planned[i]));
  }
  return result;
}

Result<SwitchTradeoff> ComputeSwitchTradeoff(const plan::Planner& planner,
                                             const plan::Plan& unlimited) {
  SwitchTradeoff tradeoff{unlimited, {}};
  PERSEUS_ASSIGN_OR_RETURN(
      tradeoff.limited, few_switches::PlanFewSwitches(planner, unlimited.deadline, kTradeoffLimits,
                                                      std::span(&unlimited, 1)));
  return tradeoff;
}

std::string FormatSwitchTradeoff(const plan::Planner& planner, const SwitchTradeoff& tradeoff) {
  const double baseline_j = planner.baseline().energy_j;
  const auto saving = [&](double energy_j) { return 1 - energy_j / baseline_j; };
  const double unlimited = saving(tradeoff.unlimited.evaluation.energy_j);
  Table table(
      {"switches per GPU", "saving", "of unlimited", "at most", "gap", "used", "used per second"});
  const auto add = [&](const std::string& limit, const plan::Plan& plan,
                       const std::vector<int>& changes) {
    const double saved = saving(plan.evaluation.energy_j);
    std::vector<std::string> row = {
        limit, FormatPercent(saved),
        unlimited > 0 ? fmt::format("{:.1f} %", saved / unlimited * 100) : "",
        FormatPercent(saving(std::min(plan.lower_bound_j, plan.evaluation.energy_j))),
        FormatGap(plan.gap())};
    for (std::string& cell : FormatChanges(changes, plan.evaluation.time)) {
      row.push_back(std::move(cell));
    }
    table.AddRow(std::move(row));
  };
  for (const few_switches::BudgetPlan& limited : tradeoff.limited) {
    const std::string limit = fmt::to_string(limited.most_changes);
    if (limited.plan) {
      add(limit, *limited.plan, limited.changes);
    } else {
      const bool exists = std::isfinite(limited.lower_bound_j);
      table.AddRow({limit, "none found", "",
                    exists ? FormatPercent(saving(limited.lower_bound_j)) : "impossible", "", "",
                    ""});
    }
  }
  add("unlimited", tradeoff.unlimited, tradeoff.unlimited.evaluation.pp_rank_switches);
  return table.Format();
}

}  // namespace perseus::cli
