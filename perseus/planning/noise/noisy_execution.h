// The mean time and energy of a plan if the times of instructions vary a little from iteration to
// iteration.
//
// Why the mean time differs from the evaluation without noise: an iteration ends when its longest
// path ends. With many paths, the mean length of the longest one is above the longest of the mean
// lengths. A plan slows down instructions that are not on the longest path, so it has many paths
// that are nearly the longest. The baseline has few such paths. So with noise, a plan with no
// slowdown is slower than the baseline: 0.2 to 0.6 % with 1 % of noise (8 pp_ranks).
//
// Method: Monte Carlo with common random numbers. All plans are executed with the same samples. So
// the difference between two plans has much less variance than the plans themselves. (Law,
// Simulation Modeling and Analysis, section 11.2.)
//
// Thread safety: const methods may be called from several threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/base/result.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/profile/time_noise.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::noise {

using Noise = profile::TimeNoise;
inline constexpr double kMostNoise = profile::kMostTimeNoise;

// Converts percent to a fraction. Fails (kInput) if the noise is so small that it needs no margin:
// the user probably gave a fraction (0.01 for 1 %).
Result<double> FromPercent(double percent);

// The time factors of one execution: one for each instruction, with mean 1.
plan::Variation Sample(const schedule::InstructionGraph& graph, const Noise& noise,
                       SplitMix64& random);

// Means over the samples.
struct NoisyMean {
  double time_s = 0;
  double energy_j = 0;
  // [instruction] The derivative of time_s by the time of the instruction without noise: the mean
  // of its noise factor over all samples, where the factor counts as 0 if the longest path does not
  // contain the instruction. Between 0 and about 1.
  std::vector<double> criticality;
};

// Compares a plan with another one: means of pairs, with half-widths of 95 % confidence intervals.
struct NoisyDifference {
  double slowdown = 0;  // time / time of the other - 1
  double slowdown_ci = 0;
  double saving = 0;  // 1 - energy / energy of the other
  double saving_ci = 0;
};

// Times (s) and energies (J) of executions.
struct Executions {
  std::vector<double> times_s;
  std::vector<double> energies_j;
};
// Compares executions with others, in pairs with the same noise. Requires at least one of each, and
// the same number of both.
NoisyDifference Compare(const Executions& executions, const Executions& others);

class NoisyExecution {
 public:
  // Keeps a reference to the graph. Requires that both parts of the noise are from 0 to kMostNoise.
  NoisyExecution(const schedule::InstructionGraph& graph, const plan::ExecutionModel& model,
                 const Noise& noise, int samples, std::uint64_t seed);

  // `options[i]` is the option of instruction i.
  NoisyMean Run(std::span<const int> options) const;
  NoisyDifference Compare(std::span<const int> options, std::span<const int> other) const;

 private:
  const schedule::InstructionGraph& graph_;
  plan::Evaluator evaluator_;
  std::vector<plan::Variation> samples_;
};

}  // namespace perseus::noise
