// Formats the results of `perseus plan` as text, as JSON and as files.
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
  // Empty if the user gave the schedule.
  std::optional<schedule_search::Tradeoff> schedules = {};
};

// Formats a table with a line for the baseline and a line for each target, except the stops. (A
// stop is a plan that only the slider of the report shows.)
std::string FormatPlanTable(const PlanOutcome& outcome);

// Describes the main result in two sentences.
std::string FormatFinding(const PlanOutcome& outcome);

// Formats the JSON of --json and of summary.json. `files` are the names of the files of the run in
// `directory`, which is empty if the run writes none. `earlier_plans` are the plans of earlier runs
// beside them.
std::string FormatSummary(const PlanOutcome& outcome, const std::string& directory,
                          const std::vector<std::string>& files,
                          const std::vector<std::string>& earlier_plans);

// Makes the data of the report. The page first shows the plan with the slug `first_asked`.
Result<std::string> MakePlanReportData(const PlanOutcome& outcome,
                                       std::vector<report::FrontierCurve> overlays,
                                       std::string_view first_asked);

// The file with the order of instructions, for the training.
constexpr const char* kScheduleCsv = "schedule.csv";

struct OptionalFiles {
  // Whether to write kScheduleCsv. A schedule that a search found is always written.
  bool schedule = false;
};

// Makes all files except the summary. The trace shows the baseline and the plan with the slug
// `first_asked`.
Result<std::vector<ResultFile>> MakePlanFiles(const PlanOutcome& outcome,
                                              std::string_view first_asked,
                                              const std::string& report_data,
                                              const OptionalFiles& optional);

}  // namespace perseus::cli
