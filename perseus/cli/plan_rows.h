// Shows the plans of `perseus plan` while they are made, on standard error. The final table is on
// standard output, and does not depend on this.
//
// On a terminal, the rows are a block that is drawn again in place whenever a plan gets better, and
// erased at the end. Below them is what the verb does now. Without a terminal, nothing is shown,
// unless lines are requested: then each new or better plan is a line.
//
// Thread safety: several threads may call all methods.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "perseus/planning/plan/planner.h"

namespace perseus::cli {

class PlanRows {
 public:
  enum class Lines { kNo, kYes };
  // Keeps a reference to the planner. `lines`: without a terminal.
  PlanRows(const plan::Planner& planner, Lines lines);
  PlanRows(const PlanRows&) = delete;
  PlanRows& operator=(const PlanRows&) = delete;
  ~PlanRows() { Erase(); }

  // What the verb does now, and the completed fraction.
  void Begin(std::string activity);
  void Update(double fraction);

  // From now on, rows say that a limit of clock changes follows, which changes the plans.
  void AnnounceLimit();

  // Replaces the row of this target, or adds one at the end.
  void Show(const plan::Plan& plan);
  // Replaces the row of `target` by its plan with a limit.
  void ShowLimited(const plan::Plan& plan, const std::string& target);

  // Erases the block.
  void Erase();

 private:
  enum class Output { kNothing, kLines, kBlock };
  using Clock = std::chrono::steady_clock;

  struct Row {
    std::string target;
    double energy_j = 0;
    std::string text;
  };
  std::string FormatRow(const plan::Plan& plan) const;
  void Put(const std::string& target, double energy_j, std::string text);
  void Draw();

  const plan::Planner& planner_;
  Output output_;
  std::mutex mutex_;  // Guards all members below.
  std::vector<Row> rows_;
  bool limit_follows_ = false;
  std::string activity_;
  double fraction_ = 0;
  std::size_t lines_drawn_ = 0;
  Clock::time_point drawn_;
};

}  // namespace perseus::cli
