// Whole sweeps of a published profile.
//
// A measurement of n instructions is the true value with noise. The noise is 1 % / sqrt(n) on time,
// and 1.5 % / sqrt(n) on power. This is about the precision of gpu_measurements.h with virtual GPUs
// that have 1 % noise and a counter period of 100 ms. (The test of gpu_measurements.h measures
// about 1.7 % on power.)
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/profiler/sweep.h"
#include "tests/support/published_job.h"

namespace perseus {

class SweptJob {
 public:
  // Stages 0 to 6 of the published profiles are copies of each other. `own_deviation` changes the
  // true value of every option by this relative amount, independently. It changes every stage by a
  // few percent.
  SweptJob(const PublishedJob& published, std::uint64_t seed, double own_deviation = 0);

  struct Outcome : TrueJob::Outcome {
    int most_frequencies = 0;
    int most_clocks_of_rank = 0;  // In one round.
    profiler::SweepSpent spent;
  };
  void UseClocks(profiler::SweepJob::Clocks clocks) { job_.clocks = clocks; }
  Outcome Sweep(const profiler::SweepBudget& budget);
  // Measures this number of evenly spaced clocks, with exact values, and without a model.
  Outcome EvenlySpaced(int frequencies) const;
  double baseline_s() const { return truth_.baseline_s(); }

 private:
  struct Sum {
    double time_s = 0;
    double power_w = 0;
    int samples = 0;
  };
  const profile::Option& TruthOf(const profiler::InstructionGroup& group, int mhz) const;
  Outcome Judge(const plan::Planner& planner, const plan::Plan& plan) const;
  std::vector<profiler::MeasuredOption> Measured() const;
  void Run(const profiler::SweepRound& round, profiler::SweepSpent& spent);

  SplitMix64 random_;
  profile::Profile profile_;
  profiler::SweepJob job_;
  TrueJob truth_;
  int most_clocks_of_rank_ = 0;
  std::map<std::pair<profiler::InstructionGroup, int>, Sum> measured_;
};

}  // namespace perseus
