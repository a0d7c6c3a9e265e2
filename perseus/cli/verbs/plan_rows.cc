#include "perseus/cli/verbs/plan_rows.h"

#include <fmt/format.h>

#include "perseus/cli/terminal/table.h"

namespace perseus::cli {

void PlanRows::Show(const plan::Plan& plan) {
  if (!block_.IsVisible()) return;
  block_.Show(plan.target,
              FormatRow(plan) + (limit_follows_ ? " (before clock changes are limited)" : ""));
}

void PlanRows::ShowLimited(const plan::Plan& plan, const std::string& target) {
  if (block_.IsVisible()) block_.Show(target, FormatRow(plan));
}

std::string PlanRows::FormatRow(const plan::Plan& plan) const {
  const plan::Evaluation& evaluation = plan.evaluation;
  return fmt::format(
      "{}: {} s, {} J, saves {}, gap {:.3f} %", plan.target,
      FormatQuantity(ToSeconds(evaluation.time)), FormatQuantity(evaluation.energy_j),
      FormatPercent(1 - evaluation.energy_j / planner_.baseline().energy_j), plan.gap() * 100);
}

}  // namespace perseus::cli
