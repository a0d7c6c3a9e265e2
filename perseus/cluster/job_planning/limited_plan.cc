#include "perseus/cluster/job_planning/limited_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/few_switches/few_switches.h"

namespace perseus::job_planning {

Result<void> CheckLimitedTarget(const JobSpec& spec, const plan::Target& target) {
  if (!spec.most_switches || !plan::NeedsFrontier(target.kind)) return {};
  return Fail(
      "{}: max_switches needs a target with an iteration time (choose a slowdown, a deadline or "
      "least energy, or register the job without max_switches)",
      Describe(target));
}

Result<plan::Plan> WithinLimit(const JobSpec& spec, const plan::Planner& planner, plan::Plan plan,
                               const std::stop_token& stop) {
  if (!spec.most_switches) return plan;
  PERSEUS_ASSIGN_OR_RETURN(
      auto limited,
      few_switches::PlanFewSwitches(planner, plan.deadline, std::span(&*spec.most_switches, 1),
                                    std::span(&plan, 1), {.stop = stop}));
  std::optional<plan::Plan>& found = limited.front().plan;
  if (!found) {
    return FailAs(ErrorKind::kUnreachable,
                  "{}: found no plan with at most {} clock changes per GPU that meets {:.6f} s "
                  "(register the job with a larger max_switches, or choose a longer time)",
                  plan.target, *spec.most_switches, ToSeconds(plan.deadline));
  }
  found->target = few_switches::NameWithLimit(plan.target, *spec.most_switches);
  found->lower_bound_j = std::max(found->lower_bound_j, plan.lower_bound_j);
  return *std::move(found);
}

}  // namespace perseus::job_planning
