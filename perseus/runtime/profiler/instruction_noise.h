// Measures how much the times of instructions vary from run to run. The input is the recorded steps
// of a job.
//
// The model is the model of planning/noise: an instruction with the mean time m takes the time m *
// (1 + c + e). All instructions of a rank in one step have the same c (common). Each instruction
// has its own e (independent).
//
// What counts as noise. The question is by how much the sum of times along a path varies. This has
// four consequences:
//  - Each instruction (kind, chunk, microbatch) is compared with itself in other steps at the same
//    clocks. A constant difference (a first microbatch that is always slower) is no noise.
//  - The error of a time stamp is no noise, although it changes the time of an instruction. The
//    next instruction begins where this instruction ends, so its time has the opposite error, and
//    the sum has no error. The opposite errors make the covariance of neighbors negative by the
//    same amount. So the estimate adds the covariance.
//  - Instructions that ran while a clock changed, or that stalled, are left out
//    (gpu_measurements.h). A stall delays the baseline as much as a plan.
//  - If the training code marks the wait for an input, the wait is not a part of an instruction
//    (docs/explanation/client-design.md). Otherwise the wait looks like noise.
//
// The estimate (method of moments). In n steps of a rank at the same clocks, let d_k be the time of
// instruction k, m_k its mean, and T the sum of all d_k in a step. With sample variances,
//
//     own = sum of Var(d_k) + 2 * sum of Cov(d_k, d_k+1)
//         = independent^2 * sum of m_k^2  +  common^2 * (sum of m_k^2 + 2 * sum of m_k m_k+1)
//     all = Var(T)
//         = independent^2 * sum of m_k^2  +  common^2 * (sum of m_k)^2
//
// Each sum of these two equations is added over all ranks and clocks, with the weight n - 1. Then
// the two equations are solved. The weights m_k^2 are squares of times, because variances of times
// add along a path.
//
// Intervals. The n steps of one rank are a block, and the blocks are assigned to 12 groups in turn.
// The variance of an estimate is computed from the estimates that leave out one group each (the
// jackknife).
//
// Alternative that we rejected: the variances that GpuMeasurements keeps for each kind and clock.
// These variances mix the microbatches of a kind, and the errors of time stamps, into the noise.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "perseus/planning/profile/time_noise.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::profiler {

struct MeasuredNoise {
  profile::TimeNoise noise;
  // The half-widths of the 95 % confidence intervals.
  double independent_ci = 0;
  double common_ci = 0;
};

class InstructionNoise {
 public:
  static constexpr std::size_t kGroups = 12;
  struct Sums {
    double own = 0;  // `own` and `all` are in s^2.
    double all = 0;
    double squares = 0;  // The factors of the two variances, in s^2.
    double own_common = 0;
    double all_common = 0;
    friend bool operator==(const Sums&, const Sums&) = default;
  };
  // The content of the state file.
  struct State {
    std::int64_t blocks = 0;
    std::array<Sums, kGroups> groups = {};
    friend bool operator==(const State&, const State&) = default;
  };

  // Adds steps of one rank at the same clocks. A step is the list of its instructions that count,
  // in order. Leaves out an instruction that is missing in one of the steps. Leaves out steps
  // without instructions.
  void Add(std::span<const std::vector<protocol::RanInstruction>> steps);

  // Returns nullopt if there are too few blocks.
  std::optional<MeasuredNoise> Solve() const;

  const State& state() const { return state_; }
  static InstructionNoise Restore(const State& state);

 private:
  State state_;
};

}  // namespace perseus::profiler
