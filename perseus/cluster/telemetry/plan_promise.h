// Compares the promise of the active plan with the reports of nodes.
//
// The values are medians over recent steps that followed the plan. So a single slow step or a lost
// report has no effect. A ratio is the median of measured / promised. If it is above 1, the job is
// slower or uses more energy than promised.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "perseus/cluster/store/planned_assignment.h"

namespace perseus::telemetry {

// One step of the job, from all nodes of each pipeline.
struct MeasuredStep {
  struct Pipeline {
    double busy_s = 0;
    std::optional<double> energy_j = {};  // Empty if a node reports no energy.
  };
  double time_s = 0;
  int limited_ranks = 0;                   // Ranks whose clock heat or another program limited.
  int ranks_without_clocks = 0;            // Ranks that follow the plan without a lease.
  std::map<int, Pipeline> pipelines = {};  // The pipelines by dp_rank.
};

struct Promise {
  struct Pipeline {
    double time_ratio = 1;                    // The ratio of the busy time.
    std::optional<double> energy_ratio = {};  // Empty if too few steps have energy.
  };
  int steps = 0;                 // The number of steps in the medians.
  int limited_ranks = 0;         // The largest number in one of these steps.
  int ranks_without_clocks = 0;  // The largest number in one of these steps.
  double promised_s = 0;
  double measured_s = 0;
  // The energy of all pipelines. Empty if a pipeline has no energy.
  std::optional<double> promised_j = {};
  std::optional<double> measured_j = {};
  std::map<int, Pipeline> pipelines;

  double time_ratio() const { return measured_s / promised_s; }
};

// The least number of steps. With fewer steps, or without plans, ComparePromise returns nullopt.
inline constexpr std::size_t kLeastPromiseSteps = 5;
std::optional<Promise> ComparePromise(const store::PlannedAssignment& assignment,
                                      const std::vector<MeasuredStep>& steps);

// Explains why the job is slower or uses more energy than promised by more than `tolerance`, as far
// as the reports show it. Returns an empty text if the job keeps the promise.
std::string ExplainPromise(const Promise& promise, double tolerance);

}  // namespace perseus::telemetry
