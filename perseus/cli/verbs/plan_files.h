// The files that `perseus plan` writes, but for summary.json, which names them (plan_report.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/verbs/plan_report.h"
#include "perseus/cli/verbs/results.h"
#include "perseus/planning/report/report.h"

namespace perseus::cli {

// The order of instructions, for the training.
constexpr const char* kScheduleCsv = "schedule.csv";

struct OptionalFiles {
  bool schedule = false;  // A schedule that was searched for is always written.
};

// The data of the report. The page first shows the plan with the slug `first_asked`.
Result<std::string> MakePlanReportData(const PlanOutcome& outcome,
                                       std::vector<report::FrontierCurve> overlays,
                                       std::string_view first_asked);

// The trace shows the baseline and the plan with the slug `first_asked`.
Result<std::vector<ResultFile>> MakePlanFiles(const PlanOutcome& outcome,
                                              std::string_view first_asked,
                                              const std::string& report_data,
                                              const OptionalFiles& optional);

}  // namespace perseus::cli
