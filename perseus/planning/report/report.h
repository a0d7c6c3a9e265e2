// The report: one HTML file that shows where the energy of a job went and what its plans do.
//
// What the page shows is one JSON document, made here (docs/formats.md, "Report"), and a page that
// only draws it (web/). Every number of the page is either in that document or a sum, a difference
// or a ratio of numbers that are; lengths and energies are those of the plans' evaluations, in
// whole nanoseconds and to the last bit. So whatever the page says, the plan files say.
//
// The page opens offline, from a file: it asks for nothing from anywhere.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/report/frontier_file.h"

namespace perseus::report {

// A place where the page's slider can stop.
struct ReportedPlan {
  std::string name;  // Of its file: "no-slowdown".
  plan::Plan plan;   // With its evaluation under the planner's model.
};

// `planner` was made for `job`.
struct Report {
  const plan::Planner& planner;
  plan_file::PlannedJob job;
  FrontierCurve frontier;  // Without points if it is not known.
  std::vector<ReportedPlan> plans;
  std::size_t chosen = 0;               // The plan that is shown first.
  std::vector<FrontierCurve> overlays;  // Other frontiers, to compare with.
};

// The JSON document. Plans come fastest first. Fails (kInput) if there is nothing to show: no
// instructions, or no plans.
Result<std::string> FormatReportData(const Report& report);

// The page, whole, around `data` as FormatReportData makes it. Fails (kSystem) where this build has
// no page: npm makes it, and the build goes without where there is no npm.
Result<std::string> FormatReportPage(const std::string& data);

// Whether this build has the page (and figures).
bool HasReportPage();

}  // namespace perseus::report
