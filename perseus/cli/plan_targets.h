// Chooses the targets of `perseus plan`, and plans them: several plans at a time, one on each core.
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
  bool is_stop = false;  // A further plan for the slider of the report, which no table shows.
};

struct PlannedTarget {
  plan::Target target;
  std::string slug;  // The name of its file without the extension.
  plan::Plan plan;
  bool is_stop = false;
  std::optional<int> most_switches = {};  // The plan was made for at most so many switches per GPU.
};

// Returns all targets to plan, in this order: no slowdown, larger slowdowns, least energy, and then
// the other requested targets. Without a frontier, returns only no slowdown and the requested
// targets, because a plan of such a large job takes long. Adds at most `stops` stops: slowdowns at
// even distances, below the slowdown of least energy.
std::vector<WantedTarget> TargetsToPlan(const std::vector<plan::Target>& asked,
                                        const plan::Planner& planner,
                                        const std::optional<plan::Frontier>& frontier, int stops);

// The default number of stops: at most 16, and fewer for large jobs, so that planning does not take
// much longer. 0 for jobs with tens of thousands of instructions.
int DefaultStops(const schedule::InstructionGraph& graph);

// Plans the targets. The results have the order of `wanted`, whatever the number of cores. Fails
// with the error of the first target that cannot be met. No plan is better for the target of
// another one: a plan for a tighter deadline may be the plan for a looser one. Leaves out a stop
// that cannot be met (under a switch latency), and a stop whose plan is the same as an earlier one.
Result<std::vector<PlannedTarget>> PlanTargets(const plan::Planner& planner,
                                               const std::optional<plan::Frontier>& frontier,
                                               const std::vector<WantedTarget>& wanted,
                                               ProgressBar& bar);

}  // namespace perseus::cli
