// The report is one HTML file. It shows where the energy of a job is used, and what its plans
// change.
//
// It consists of a JSON document (docs/formats.md, "Report") and a page that draws it (web/).
//
// Invariants:
// 1. Every number on the page is in the document, or is a sum, a difference or a ratio of such
//    numbers.
// 2. Times and energies come from the evaluations of the plans: whole nanoseconds, and energies
//    that are exact to the last bit. So the page agrees with the plan files.
// 3. The page works offline, from a file. It loads nothing over the network.
//
// Thread safety: the functions share no state, so several threads may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/noise/noisy_execution.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/report/frontier_file.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::report {

// The mean slowdown and the mean saving of a plan under the noise of the report, compared with
// maximum frequency under the same noise.
struct UnderNoise {
  noise::NoisyDifference difference;
  double most_saving = 0;  // No plan that is as fast saves more than this.
};

// A plan of the report. The slider of the page stops at it.
struct ReportedPlan {
  std::string name;  // The name of its file, such as "no-slowdown".
  plan::Plan plan;   // With its evaluation under the model of the planner.
  std::optional<UnderNoise> under_noise = {};  // Only with a noise.
};

// The savings with one limit on clock changes, as fractions of the energy at maximum frequency.
struct SwitchLimit {
  int most_switches = 0;              // For one GPU in an iteration.
  std::optional<double> saving;       // nullopt: no plan was found or searched.
  std::optional<double> most_saving;  // No plan within the limit saves more; empty if none saves.
};

// Returns the row of a limit. Arguments are the energy of its plan (if there is one) and its bound,
// which may be infinite. If there is no plan, a bound above the baseline only shows that no plan
// saves energy. (The size of the bound then means nothing, because it grows as long as the search
// for a bound lasts.)
SwitchLimit MakeSwitchLimit(int most_switches, const std::optional<double>& energy_j,
                            double lower_bound_j, double baseline_j);

struct SwitchTradeoff {
  std::string target;  // In words.
  std::vector<SwitchLimit> limits;
  double unlimited_saving = 0;
  std::optional<int> limit_of_plans = {};  // The limit that the plans of the report keep.
};

// The saving of one schedule, and the memory that it needs.
struct ScheduleRow {
  std::string name;                        // "1f1b", "+1".
  std::vector<std::int64_t> in_flight;     // [pp_rank] The most microbatches at a time.
  double memory = 0;                       // In the chart, in ScheduleTradeoff::unit.
  double energy_j = 0;                     // The plan's energy.
  double saving = 0;                       // Against the reference at maximum frequency.
  std::optional<double> most_saving = {};  // No schedule in this memory saves more.
};

// An iteration with one schedule: at maximum frequency, and with its plan.
struct ScheduleTimeline {
  std::string name;
  plan::Planner planner;
  plan::Plan plan;
};

// The savings of more memory: schedules with more microbatches in flight, compared with the usual
// schedule.
struct ScheduleTradeoff {
  std::string reference;          // The usual schedule: "1f1b".
  std::string unit;               // For memory: "microbatches" more than the reference, or "GiB".
  std::string memory_source;      // A sentence: which numbers were measured, modeled or given.
  std::vector<ScheduleRow> rows;  // The reference first; then in order of memory.
  std::size_t chosen = 0;         // The row of the last timeline.
  std::vector<ScheduleTimeline> timelines;  // For the reference and for the chosen row.
  std::string conclusion;                   // In sentences.
};

// An iteration of another schedule at maximum frequency.
struct OtherBaseline {
  std::string schedule;  // "1f1b".
  Nanoseconds time = 0;
  double energy_j = 0;
};

// Requires that `planner` was created for `job`.
struct Report {
  const plan::Planner& planner;
  plan_file::PlannedJob job;
  std::optional<noise::Noise> noise = {};
  FrontierCurve frontier;  // Without points if it is unknown.
  std::vector<ReportedPlan> plans;
  std::size_t chosen = 0;               // The plan that is shown first.
  std::vector<FrontierCurve> overlays;  // Other frontiers, to compare with.
  bool stopped_early = false;           // The user stopped the search for the plans.
  std::optional<SwitchTradeoff> switch_tradeoff = {};
  std::optional<ScheduleTradeoff> schedule_tradeoff = {};
  // What savings refer to; without it, the baseline of `planner`.
  std::optional<OtherBaseline> compared_with = {};
};

// Returns the JSON document. Plans are in order of time, fastest first. Fails (kInput) if the
// report has no instructions or no plans.
Result<std::string> FormatReportData(const Report& report);

// Returns the whole page with `data`, which comes from FormatReportData. Fails (kSystem) if this
// build has no page, because npm was not installed.
Result<std::string> FormatReportPage(const std::string& data);

// Whether this build has the page (and figures).
bool HasReportPage();

// [instruction] Whether it is on a critical path: if it took a nanosecond longer, the iteration
// would take longer, too. This is exact for the durations of the evaluation: an instruction is
// critical if its latest start equals its actual start (Kelley & Walker 1959). At least one path
// from the start to the end of the iteration is critical. O(instructions + dependencies).
std::vector<bool> CriticalInstructions(const schedule::InstructionGraph& graph,
                                       const plan::Evaluation& evaluation);

}  // namespace perseus::report
