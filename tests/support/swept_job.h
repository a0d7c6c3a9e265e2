// A shared profile as the truth, and whole sweeps of it: for tests and the benchmark.
//
// A measurement of n instructions is the truth with a noise of 1 % / sqrt(n) on time and
// 1.5 % / sqrt(n) on power: about what gpu_measurements.h gets from virtual GPUs with a noise of 1
// % and a counter of 100 ms (its test sees nearer to 1.7 % on power).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/plan/planner.h"
#include "perseus/profile/profile.h"
#include "perseus/profiler/sweep.h"

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

class SweptJob {
 public:
  // 1F1B, 8 stages, 24 microbatches. `own_deviation`: stages 0 to 6 of the shared profiles are
  // copies of each other; this makes every option's truth differ by so much on its own, and stages
  // by a few percent.
  SweptJob(const SharedJob& shared, std::uint64_t seed, double own_deviation = 0);

  struct Outcome {
    double loss = 0;      // Of the plan's true energy, against the plan of the whole profile.
    double slowdown = 0;  // Of its true time, against the true baseline.
    int most_frequencies = 0;
    int most_clocks_of_rank = 0;  // At a time.
    SweepSpent spent;
  };
  void UseClocks(SweepJob::Clocks clocks) { job_.clocks = clocks; }
  Outcome Sweep(const SweepBudget& budget, const PlanningProfileSpec& spec,
                CurveModel::Sharing sharing = CurveModel::Sharing::kLearnt);
  // So many clocks, exact values, nothing modelled.
  Outcome EvenlySpaced(int frequencies) const;
  double baseline_s() const { return ToSeconds(truth_.baseline().time); }
  double full_energy_j() const { return full_energy_j_; }

 private:
  struct Sum {
    double time_s = 0;
    double power_w = 0;
    int samples = 0;
  };
  const Option& TruthOf(const InstructionGroup& group, int mhz) const;
  Outcome Judge(const SweepPlan& made) const;
  std::vector<MeasuredOption> Measured() const;
  void Run(const SweepRound& round, SweepSpent& spent);

  SplitMix64 random_;
  SweepJob job_;
  Profile profile_;
  Planner truth_;
  int most_clocks_of_rank_ = 0;
  double full_energy_j_ = 0;
  std::map<std::pair<InstructionGroup, int>, Sum> measured_;
};

}  // namespace perseus
