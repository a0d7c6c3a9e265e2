// Formats the results of `perseus plan`: its text, its JSON and its files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/verbs/results.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/recipe/recipe.h"
#include "perseus/planning/report/report.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::cli {

struct PlanOutcome : recipe::JobPlans {
  const job::LoadedJob& job;
  const plan::Planner& planner;
  std::optional<schedule_search::Tradeoff> schedules = {};  // Empty for a given schedule.
};

// A table with one line for the baseline and one for each target that is not a stop.
std::string FormatPlanTable(const PlanOutcome& outcome);

// The main result in two sentences.
std::string FormatFinding(const PlanOutcome& outcome);

// The JSON of --json and of summary.json. `files` are the names of the files of the run.
std::string FormatSummary(const PlanOutcome& outcome, const std::vector<std::string>& files);

// The data of the report. The page first shows the plan with the slug `first_asked`.
Result<std::string> MakePlanReportData(const PlanOutcome& outcome,
                                       std::vector<report::FrontierCurve> overlays,
                                       std::string_view first_asked);

// The order of instructions, for the training.
constexpr const char* kScheduleCsv = "schedule.csv";

struct OptionalFiles {
  bool schedule = false;  // A schedule that was searched for is always written.
};

// All files but the summary. The trace shows the baseline and the plan with the slug `first_asked`.
Result<std::vector<ResultFile>> MakePlanFiles(const PlanOutcome& outcome,
                                              std::string_view first_asked,
                                              const std::string& report_data,
                                              const OptionalFiles& optional);

}  // namespace perseus::cli
