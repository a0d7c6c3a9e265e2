// Formats the results of `perseus plan` as text. Also shows its plans as rows while it runs.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/cli/terminal/row_block.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/recipe/recipe.h"
#include "perseus/planning/report/report.h"

namespace perseus::cli {

// Shows plans as rows while they are made.
class PlanRows : public recipe::Progress {
 public:
  // Keeps a reference to the planner.
  PlanRows(std::FILE* err, const plan::Planner& planner, RowBlock::Lines lines)
      : rows_(err, "plans", lines), planner_(planner) {}

  void Begin(const std::string& activity) override { rows_.Begin(activity); }
  void Update(double fraction) override { rows_.Update(fraction); }
  // Replaces the row of this target. If no row has this target, adds a row at the end.
  void Show(std::string_view target, const plan::Plan& plan, Stage stage) override;

 private:
  RowBlock rows_;
  const plan::Planner& planner_;
};

// Returns a line that says which limit was picked, what it keeps, and why.
std::string FormatPickedLimit(const recipe::PickedLimit& picked,
                              const recipe::SwitchTradeoff& tradeoff,
                              const std::optional<double>& facts_per_s);

// Formats a table with a row for each limit.
std::string FormatSwitchTradeoff(const plan::Planner& planner,
                                 const recipe::SwitchTradeoff& tradeoff);

// Returns the trade-off for the report and its figure.
report::SwitchTradeoff ReportedTradeoff(const plan::Planner& planner,
                                        const recipe::SwitchTradeoff& tradeoff);

// Formats a table with a row for each plan, except the stops. (A stop is a plan that only the
// slider of the report shows.)
std::string FormatNoise(const recipe::NoiseOutcome& outcome,
                        const std::vector<recipe::PlannedTarget>& planned);

// Returns a line that says which plans the rate of changes limits. Returns an empty text if no rate
// is known.
std::string DescribeChangeRate(const job::UsedFacts& facts,
                               const std::vector<recipe::PlannedTarget>& planned);

// Warns on standard error if a plan changes a clock more often than the hardware facts allow. Only
// a limit from the user can cause such a plan.
void WarnAboveRate(const Streams& streams, const std::vector<recipe::PlannedTarget>& planned,
                   double changes_per_s, const std::string& facts);

}  // namespace perseus::cli
