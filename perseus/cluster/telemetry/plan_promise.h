// What the plan in force promises, against what nodes report.
//
// Robust: medians over recent steps that followed the plan, so a slow step or a lost report changes
// nothing. A ratio is the median of measured / promised: above 1 is slower or hungrier.
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
    std::optional<double> energy_j = {};  // Nothing if a node has no energy.
  };
  double time_s = 0;
  int limited_ranks = 0;                   // Whose clock heat or another program limited.
  int ranks_without_clocks = 0;            // That follow the plan without a lease of their GPU.
  std::map<int, Pipeline> pipelines = {};  // By dp_rank.
};

struct Promise {
  struct Pipeline {
    double time_ratio = 1;                    // Busy time.
    std::optional<double> energy_ratio = {};  // Nothing if too few steps have energy.
  };
  int steps = 0;                 // That the medians have.
  int limited_ranks = 0;         // The most in one of these steps.
  int ranks_without_clocks = 0;  // Likewise.
  double promised_s = 0;
  double measured_s = 0;
  // The energy of all pipelines. Nothing if one has no energy.
  std::optional<double> promised_j = {};
  std::optional<double> measured_j = {};
  std::map<int, Pipeline> pipelines;

  double time_ratio() const { return measured_s / promised_s; }
};

// Nothing with fewer than kLeastSteps steps, or without plans.
inline constexpr std::size_t kLeastPromiseSteps = 5;
std::optional<Promise> ComparePromise(const store::PlannedAssignment& assignment,
                                      const std::vector<MeasuredStep>& steps);

// Why the job is slower or uses more energy than promised by more than `tolerance`, as far as the
// reports show it. Empty if it does not.
std::string ExplainPromise(const Promise& promise, double tolerance);

}  // namespace perseus::telemetry
