// The mean time and energy of a plan if instructions take a little longer or shorter in each
// iteration.
//
// Why it differs from the evaluation without noise: an iteration ends when its longest path ends.
// The mean of the longest of many paths is above the longest of their means. A plan has many paths
// that are nearly the longest, because it slows down what is not on the longest path. The baseline
// has few such paths. So with noise, a plan with no slowdown is slower than the baseline: 0.2 to
// 0.6 % with 1 % of noise (8 pp_ranks).
//
// Method: Monte Carlo with common random numbers. All plans are executed with the same samples, so
// the difference between two plans has much less variance than each of them. (Law, Simulation
// Modeling and Analysis, section 11.2.)
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

// Converts percent to a fraction. Fails (kInput) for a noise that needs no margin: the user
// probably means a fraction (0.01 for 1 %).
Result<double> FromPercent(double percent);

// The time factors of one execution: one for each instruction, with mean 1.
plan::Variation Sample(const schedule::InstructionGraph& graph, const Noise& noise,
                       SplitMix64& random);

// Means over the samples.
struct NoisyMean {
  double time_s = 0;
  double energy_j = 0;
  // [instruction] The derivative of time_s by the time of the instruction without noise: how often
  // it lies on the longest path, each time multiplied by its noise. Between 0 and about 1.
  std::vector<double> criticality;
};

// A plan against another one: means of pairs, with half-widths of 95 % confidence intervals.
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
// The difference of executions from others in pairs with the same noise. Requires the same number
// of both, and at least one.
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
