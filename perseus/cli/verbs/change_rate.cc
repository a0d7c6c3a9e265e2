#include "perseus/cli/verbs/change_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/cli/verbs/switch_plans.h"
#include "perseus/planning/few_switches/change_rate.h"

namespace perseus::cli {
Result<std::vector<PlannedTarget>> KeepChangeRate(const plan::Planner& planner,
                                                  std::vector<PlannedTarget> planned,
                                                  double changes_per_s,
                                                  const few_switches::SwitchLimits& limits) {
  std::vector<Result<few_switches::KeptPlan>> kept(planned.size(), Fail("not planned"));
  ForEachOnAllCores(planned.size(), [&](std::size_t i) {
    kept[i] = few_switches::KeepChangeLimit(planner, planned[i].plan, planned[i].target,
                                            {.changes_per_s = changes_per_s}, limits);
  });
  std::vector<PlannedTarget> result;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (!kept[i] && !planned[i].is_asked) continue;
    if (!kept[i]) {
      return FailAs(kept[i].error().kind,
                    "{} (the hardware facts have this rate: ignore it with --per-instruction)",
                    kept[i].error().message);
    }
    planned[i].plan = std::move(kept[i]->plan);
    planned[i].most_switches = kept[i]->most_changes;
    result.push_back(std::move(planned[i]));
  }
  ShareBetterPlans(result);
  return result;
}

std::string DescribeChangeRate(const job::UsedFacts& facts,
                               const std::vector<PlannedTarget>& planned) {
  if (!facts.most_changes_per_s) return {};
  // --max-switches auto may choose a lower limit than the rate allows.
  const auto limited = std::ranges::count_if(planned, [&](const PlannedTarget& target) {
    return target.most_switches &&
           *target.most_switches ==
               few_switches::MostChanges(*facts.most_changes_per_s, target.plan.deadline);
  });
  return fmt::format(
      "hardware facts: {} allows {:.4g} clock changes per second and GPU; {} (--per-instruction "
      "ignores this)\n",
      facts.path, *facts.most_changes_per_s,
      limited == 0 ? "no plan needs more"
                   : fmt::format("{} of {} plans are limited to it", limited, planned.size()));
}

void WarnAboveRate(const Streams& streams, const std::vector<PlannedTarget>& planned,
                   double changes_per_s, const std::string& facts) {
  double most_per_s = 0;
  for (const PlannedTarget& target : planned) {
    const plan::Evaluation& evaluation = target.plan.evaluation;
    most_per_s =
        std::max(most_per_s, few_switches::MostSwitches(evaluation) / ToSeconds(evaluation.time));
  }
  if (most_per_s <= changes_per_s) return;
  streams.Warn(
      fmt::format("the plans have up to {:.3g} clock changes per second and GPU, and {} allows "
                  "{:.3g} (use a lower --max-switches, or none)",
                  most_per_s, facts, changes_per_s));
}

}  // namespace perseus::cli
