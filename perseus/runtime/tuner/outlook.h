// What plans for other slowdowns would save in the job that was measured. It answers "what could be
// saved?" for a user who permits another slowdown, or none so far.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perseus/planning/noise/noise_margin.h"
#include "perseus/planning/plan/target.h"
#include "perseus/runtime/tuner/paced_plans.h"

namespace perseus::tuner {

struct OutlookRow {
  double slowdown_percent = 0;  // That the user would permit.
  // The fraction of the energy at the highest clocks. A plan that permits more saves as much as one
  // that permits less.
  double saving = 0;
};

struct OutlookInput {
  profiler::SweepJob sweep;
  const plan_file::PlannedJob& job;
  MeasuredGpus gpus;
  const ClocksOfRanks& clocks_mhz;
  std::optional<noise::Noise> noise;
  recipe::ChangeRules changes;
  Meeting meeting;
  // Subtracted from what a plan promises before it ran (Expectation::optimism).
  double optimism = 0;
  // The target of the plan that was followed, and what it saves.
  plan::Target target;
  double saving = 0;
};

// Returns rows for 0, 1, 2, 5 and 10 %, without those for which no plan can be made. Takes as long
// as making 5 plans for each speed of the job's pipelines.
std::vector<OutlookRow> OutlookOf(const OutlookInput& input);

// Returns a text such as "estimated savings: 6.1 % with no slowdown, 7.9 % at 1 %, …".
std::string Describe(const std::vector<OutlookRow>& rows);

}  // namespace perseus::tuner
