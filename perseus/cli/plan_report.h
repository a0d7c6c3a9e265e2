// What `perseus plan` found, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perseus/cli/job_options.h"
#include "perseus/cli/plan_targets.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::cli {

struct PlanOutcome {
  const job::LoadedJob& job;
  const plan::Planner& planner;
  const std::optional<plan::Frontier>& frontier;
  const std::vector<PlannedTarget>& targets;  // The first is "no slowdown".
};

// One line for the baseline and one for each target that is no stop.
std::string FormatPlanTable(const PlanOutcome& outcome);

// The finding in plain words.
std::string FormatFinding(const PlanOutcome& outcome);

// JSON: what --json prints and summary.json holds. `files` are those written.
std::string FormatSummary(const PlanOutcome& outcome, const std::vector<std::string>& files);

}  // namespace perseus::cli
