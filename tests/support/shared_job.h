// A shared profile as the truth of a job: 1F1B, 8 stages, 24 microbatches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "perseus/planning/plan/planner.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/profiler/sweep_plan.h"

namespace perseus {

struct SharedJob {
  std::string_view name;
  std::string_view profile;
  double blocking_power_w = 0;
};
inline constexpr SharedJob kSharedJobs[] = {
    {"Gpt3A100", "gpt3-175b_a100-sxm_pp8_tp8", 83.64},
    {"BloomA40", "bloom-176b_a40_pp8_tp8", 70.38},
};

// In the folder that PERSEUS_SHARED_DIR names, or ../shared; may be absent.
std::filesystem::path PathOf(const SharedJob& shared);
// Requires that it is there.
profile::Profile ReadSharedProfile(const SharedJob& shared);

// What a sweep of it is told: all but the profile.
profiler::SweepJob SweepJobOf(const SharedJob& shared, const profile::Profile& profile);

// What plans really take and cost.
class TrueJob {
 public:
  TrueJob(const profiler::SweepJob& job, const profile::Profile& profile);

  const plan::Planner& planner() const { return planner_; }
  double baseline_s() const { return ToSeconds(planner_.baseline().time); }
  struct Outcome {
    double loss = 0;      // Of the plan's true energy, against the plan of the whole profile.
    double slowdown = 0;  // Of its true time, against the true baseline.
  };
  // `options`: of the true graph, by instruction.
  Outcome Judge(std::span<const int> options) const;

 private:
  plan::Planner planner_;
  double full_energy_j_ = 0;
};

}  // namespace perseus
