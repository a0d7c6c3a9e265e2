// The plans of `perseus plan` as rows (row_block.h) while they are made.
//
// Thread safety: several threads may call all methods.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>

#include "perseus/cli/terminal/row_block.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::cli {

class PlanRows {
 public:
  // Keeps a reference to the planner.
  PlanRows(std::FILE* err, const plan::Planner& planner, RowBlock::Lines lines)
      : planner_(planner), block_(err, "plans", lines) {}

  // What the verb does now, and the completed fraction.
  void Begin(std::string activity) { block_.Begin(std::move(activity)); }
  void Update(double fraction) { block_.Update(fraction); }

  // From now on, rows say that a limit of clock changes follows, which changes the plans.
  void AnnounceLimit() { limit_follows_ = true; }

  // Replaces the row of this target, or adds one at the end.
  void Show(const plan::Plan& plan);
  // Replaces the row of `target` by its plan with a limit.
  void ShowLimited(const plan::Plan& plan, const std::string& target);

  // Erases the rows.
  void Erase() { block_.Erase(); }

 private:
  std::string FormatRow(const plan::Plan& plan) const;

  const plan::Planner& planner_;
  RowBlock block_;
  std::atomic<bool> limit_follows_ = false;
};

}  // namespace perseus::cli
