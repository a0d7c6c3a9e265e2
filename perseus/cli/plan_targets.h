// What `perseus plan` plans, and the planning of it: several plans at a time, one a core.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/progress_bar.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"

namespace perseus::cli {

struct WantedTarget {
  plan::Target target;
  bool is_stop = false;  // Between the targets of the table, for the report's slider.
};

struct PlannedTarget {
  plan::Target target;
  std::string slug;  // Of its files.
  plan::Plan plan;
  bool is_stop = false;
};

// Everything that is planned: no slowdown, larger ones, least energy, and then the rest that was
// asked for. Without a frontier only what was asked for, since a plan may take long then. Of
// slowdowns up to that of least energy, at most `stops` more at even distances are stops.
std::vector<WantedTarget> TargetsToPlan(const std::vector<plan::Target>& asked,
                                        const plan::Planner& planner,
                                        const std::optional<plan::Frontier>& frontier, int stops);

// As many stops as do not make the planning long, where nobody says how many: at most 16, and none
// for jobs of tens of thousands of instructions.
int DefaultStops(const schedule::InstructionGraph& graph);

// In the order of `wanted`, whatever the number of cores. Fails with the first target that cannot
// be met; a stop that cannot be (a switching latency may have that), or is no other plan than an
// earlier one, is left out.
Result<std::vector<PlannedTarget>> PlanTargets(const plan::Planner& planner,
                                               const std::optional<plan::Frontier>& frontier,
                                               const std::vector<WantedTarget>& wanted,
                                               ProgressBar& bar);

}  // namespace perseus::cli
