// Jobs whose true times and energies are published measurements: 1F1B, 8 stages, 24 microbatches.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "perseus/planning/plan/planner.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/profiler/sweep_plan.h"

namespace perseus {

struct PublishedJob {
  std::string_view name;
  std::string_view profile;
  double blocking_power_w = 0;
};
inline constexpr PublishedJob kPublishedJobs[] = {
    {"Gpt3A100", "gpt3-175b_a100-sxm_pp8_tp8", 83.64},
    {"BloomA40", "bloom-176b_a40_pp8_tp8", 70.38},
};

// Reads the profile in tests/data/published.
profile::Profile ReadPublishedProfile(const PublishedJob& published);

// The input of a sweep of this job: everything except the profile.
profiler::SweepJob SweepJobOf(const PublishedJob& published, const profile::Profile& profile);

// The true time and energy of plans.
class TrueJob {
 public:
  TrueJob(const profiler::SweepJob& job, const profile::Profile& profile);

  const plan::Planner& planner() const { return planner_; }
  double baseline_s() const { return ToSeconds(planner_.baseline().time); }
  struct Outcome {
    double loss = 0;      // In true energy, compared with the plan of the whole profile.
    double slowdown = 0;  // In true time, compared with the true baseline.
  };
  // `options`: the option of each instruction of the true graph.
  Outcome Judge(std::span<const int> options) const;

 private:
  plan::Planner planner_;
  double full_energy_j_ = 0;
};

}  // namespace perseus
