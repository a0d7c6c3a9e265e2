// Converts the schedules of a search into data for the report page and for figures.
#pragma once

#include <string>

#include "perseus/base/result.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/report/report.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::cli {

// Returns the name of a row: "+1" for a row of the search, "fits" for the schedule that fits the
// memory of the GPUs, and "auto" for the schedule of `perseus plan`.
std::string NameOfRow(const schedule_search::TradeoffRow& row);

// Returns the comparison of schedules for the report. `memory_source` says which numbers of bytes
// were measured, modeled or given.
Result<report::ScheduleTradeoff> ReportedSchedules(const schedule_search::SearchJob& job,
                                                   const schedule_search::Tradeoff& tradeoff,
                                                   const std::string& memory_source);

// Returns the search for the schedule of a job. The plans of the search are separate from the plans
// of the job.
schedule_search::SearchJob SearchJobOf(const job::LoadedJob& job);

// Makes the data of a report about the chosen schedule, with a comparison of all rows of the
// search.
Result<std::string> MakeSearchReport(const job::UnscheduledJob& job,
                                     const schedule_search::Tradeoff& tradeoff,
                                     std::vector<report::FrontierCurve> overlays);

}  // namespace perseus::cli
