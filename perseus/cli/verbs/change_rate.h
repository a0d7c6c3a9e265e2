// The greatest rate of clock changes that hardware facts have, in `perseus plan`.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/cli/verbs/plan_targets.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::cli {

// Replaces each plan that changes the clock of a GPU more often than `changes_per_s` of one GPU
// allow (few_switches/change_rate.h), on all cores. Drops a target without such a plan that the
// user does not ask for. Fails if another one has none.
Result<std::vector<PlannedTarget>> KeepChangeRate(const plan::Planner& planner,
                                                  std::vector<PlannedTarget> planned,
                                                  double changes_per_s,
                                                  const few_switches::SwitchLimits& limits);

// Which plans the rate limits, as a line. Empty without a rate.
std::string DescribeChangeRate(const job::UsedFacts& facts,
                               const std::vector<PlannedTarget>& planned);

// Warns on standard error if a plan changes a clock more often than the hardware facts allow. Only
// a limit that the user gives can do this.
void WarnAboveRate(const Streams& streams, const std::vector<PlannedTarget>& planned,
                   double changes_per_s, const std::string& facts);

}  // namespace perseus::cli
