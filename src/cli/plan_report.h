// What `perseus plan` found, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "job_options.h"
#include "perseus/plan/planner.h"
#include "plan_targets.h"

namespace perseus::cli {

struct PlanOutcome {
  const LoadedJob& job;
  const Planner& planner;
  const std::optional<Frontier>& frontier;
  const std::vector<PlannedTarget>& targets;  // The first is "no slowdown".
};

// One line for the baseline and one for each target that is no stop.
std::string FormatPlanTable(const PlanOutcome& outcome);

// The finding in plain words.
std::string FormatFinding(const PlanOutcome& outcome);

// JSON: what --json prints and summary.json holds. `files` are those written.
std::string FormatSummary(const PlanOutcome& outcome, const std::vector<std::string>& files);

}  // namespace perseus::cli
