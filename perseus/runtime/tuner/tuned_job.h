// A job while it is tuned: its ranks and their clocks, and what was measured so far.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/noise/noise_margin.h"
#include "perseus/runtime/profiler/instruction_noise.h"
#include "perseus/runtime/profiler/measured_option.h"
#include "perseus/runtime/profiler/profiler_state.h"
#include "perseus/runtime/profiler/sweep_plan.h"
#include "perseus/runtime/tuner/conductor.h"
#include "perseus/runtime/tuner/edge_microbatches.h"
#include "perseus/runtime/tuner/paced_plans.h"
#include "perseus/runtime/tuner/pooled_measurements.h"
#include "perseus/runtime/tuner/tuning.h"

namespace perseus::tuner {

// Reads the state of an earlier coordinator of this job. If no state exists, returns an empty
// state.
Result<profiler::ProfilerState> ReadTunerState(const TuningOptions& options);

class TunedJob {
 public:
  // `options` has to outlive this object.
  TunedJob(const TuningOptions& options, Conductor conductor, profiler::ProfilerState state)
      : options_(options), conductor_(std::move(conductor)), state_(std::move(state)) {}

  // Waits for the ranks, and checks that they can be tuned. Call it before all other functions.
  Result<void> AwaitRanks();

  enum class Alarms { kReported, kIgnored };
  // Adds the instructions of these steps.
  void Measure(MeasuredGpus& gpus, profiler::InstructionNoise& noise,
               const Conductor::Stretch& stretch, Alarms alarms) const;
  // The same for the measurements of this job.
  void Measure(const Conductor::Stretch& stretch) {
    Measure(state_.gpus, state_.noise, stretch, Alarms::kReported);
  }
  // Measures how long messages take, and which microbatches at the edges of a step differ. Not
  // called while a plan is followed, because the plan was made with one transfer time, and is
  // evaluated with the same time.
  void MeasureWithoutPlan(const Conductor::Stretch& stretch);
  // Finds the clocks that the power limit permits. Reports these clocks, and again if they move.
  void LookForPowerLimit();
  // Reports the steps that do not count, in one line. The line names the rank with the most such
  // steps.
  void WarnOfDisturbances(const Conductor::Stretch& stretch) const;

  // The measured options of all GPUs.
  std::vector<profiler::MeasuredOption> Options() const {
    return PooledOptions(state_.gpus, reachable_mhz_);
  }
  // The noise of instructions, with the further noise that whole steps showed.
  std::optional<noise::Noise> MeasuredNoise() const;
  // The measured GPUs, without those of pipelines that only an earlier run had.
  MeasuredGpus RunningGpus() const;
  // The job for the planner.
  profiler::SweepJob Job() const;
  Result<void> SaveState() const;
  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  const TuningOptions& options() const { return options_; }
  Conductor& conductor() { return conductor_; }
  const Conductor& conductor() const { return conductor_; }
  profiler::ProfilerState& state() { return state_; }
  const profiler::ProfilerState& state() const { return state_; }
  int highest_mhz(int pp_rank) const {
    return clocks_mhz_[static_cast<std::size_t>(pp_rank)].back();
  }
  const ClocksOfRanks& reachable_mhz() const { return reachable_mhz_; }
  const ReachedRanges& reached() const { return reached_; }
  // Where the pipelines wait for each other.
  Meeting meeting() const { return meeting_; }
  const EdgeMicrobatches& edges() const { return edges_; }
  std::int64_t steps_taken() const {
    return conductor_.logs().LastStep(conductor_.ranks()) - began_at_;
  }

 private:
  Result<void> TakeClocks(const protocol::RankHeader& header);
  void WarnOfOtherGpu() const;
  void MeasureTransfers(std::int64_t first, std::int64_t last);
  void WarnOfWaits(std::int64_t first, std::int64_t last);

  const TuningOptions& options_;
  Conductor conductor_;
  profiler::ProfilerState state_;
  ClocksOfRanks clocks_mhz_;
  // The clocks that the power limit permits. They do not change after a plan was made, so that the
  // clocks of the plan remain options.
  ClocksOfRanks reachable_mhz_;
  ReachedRanges reached_;   // The kinds that do not reach their highest clock.
  ReachedRanges reported_;  // The latest that were reported.
  bool has_named_waits_ = false;
  EdgeMicrobatches edges_;          // Measured without a plan.
  std::optional<Nanoseconds> p2p_;  // The time measured in the latest steps without a plan.
  Nanoseconds rest_ = 0;            // Without a pipeline: the time without work, in the same steps.
  Meeting meeting_ = Meeting::kOnceAStep;  // In the steps before the tuning.
  std::int64_t began_at_ = 0;              // The last step before the tuning.
};

}  // namespace perseus::tuner
