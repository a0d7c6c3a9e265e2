#include "perseus/planning/noise/noisy_execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "perseus/base/index.h"

namespace perseus::noise {
Result<double> FromPercent(double percent) {
  constexpr double kLeastPercent = 0.1;
  if (percent == 0 || percent >= kLeastPercent) return percent / 100;
  const std::string as_fraction =
      100 * percent >= kLeastPercent
          ? fmt::format("for {:g} % as a fraction, give {:g}; ", 100 * percent, 100 * percent)
          : "";
  return Fail(
      "{:g} is in percent, and plans need no margin for less than {:g} % ({}give 0 for no noise)",
      percent, kLeastPercent, as_fraction);
}

namespace {

// The factor of an instruction is at least this.
constexpr double kLeastFactor = 0.1;

// The mean of a ratio of paired samples, minus 1, by the delta method.
struct Ratio {
  double change = 0;
  double ci = 0;
};
Ratio RatioOf(std::span<const double> values, std::span<const double> others) {
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  double other_sum = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    sum += values[k];
    other_sum += others[k];
  }
  const double ratio = sum / other_sum;
  double squares = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const double residual = values[k] - ratio * others[k];
    squares += residual * residual;
  }
  constexpr double kStandardErrorsOf95 = 1.96;
  const double deviation = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  return {ratio - 1, kStandardErrorsOf95 * deviation * std::sqrt(count) / other_sum};
}

}  // namespace

plan::Variation Sample(const schedule::InstructionGraph& graph, const Noise& noise,
                       SplitMix64& random) {
  std::vector<double> of_pp_rank(graph.pp_rank_orders.size());
  for (double& factor : of_pp_rank) factor = 1 + noise.common * Normal(random);
  plan::Variation sample;
  sample.time_factors.reserve(graph.instructions.size());
  for (const schedule::InstructionNode& instruction : graph.instructions) {
    const double own = 1 + noise.independent * Normal(random);
    sample.time_factors.push_back(
        std::max(kLeastFactor, own * of_pp_rank[At(instruction.pp_rank)]));
  }
  return sample;
}

NoisyExecution::NoisyExecution(const schedule::InstructionGraph& graph,
                               const plan::ExecutionModel& model, const Noise& noise, int samples,
                               std::uint64_t seed)
    : graph_(graph), evaluator_(graph, model) {
  SplitMix64 random{seed};
  samples_.reserve(At(samples));
  for (int k = 0; k < samples; ++k) samples_.push_back(Sample(graph, noise, random));
}

NoisyMean NoisyExecution::Run(std::span<const int> options) const {
  const double share = 1 / static_cast<double>(samples_.size());
  NoisyMean mean;
  mean.criticality.assign(graph_.instructions.size(), 0);
  const plan::Evaluator::Chosen chosen = evaluator_.Choose(options);
  plan::Evaluation evaluation;
  for (const plan::Variation& sample : samples_) {
    evaluator_.Evaluate(chosen, sample, evaluation);
    mean.time_s += share * ToSeconds(evaluation.time);
    mean.energy_j += share * evaluation.energy_j;
    for (const int i : evaluator_.LongestPath(evaluation)) {
      mean.criticality[At(i)] += share * sample.time_factors[At(i)];
    }
  }
  return mean;
}

NoisyDifference Compare(const Executions& executions, const Executions& others) {
  const Ratio time = RatioOf(executions.times_s, others.times_s);
  const Ratio energy = RatioOf(executions.energies_j, others.energies_j);
  return {time.change, time.ci, -energy.change, energy.ci};
}

NoisyDifference NoisyExecution::Compare(std::span<const int> options,
                                        std::span<const int> other) const {
  Executions executions;
  Executions others;
  const plan::Evaluator::Chosen chosen = evaluator_.Choose(options);
  const plan::Evaluator::Chosen chosen_other = evaluator_.Choose(other);
  plan::Evaluation evaluation;
  plan::Evaluation of_other;
  for (const plan::Variation& sample : samples_) {
    evaluator_.Evaluate(chosen, sample, evaluation);
    evaluator_.Evaluate(chosen_other, sample, of_other);
    executions.times_s.push_back(ToSeconds(evaluation.time));
    executions.energies_j.push_back(evaluation.energy_j);
    others.times_s.push_back(ToSeconds(of_other.time));
    others.energies_j.push_back(of_other.energy_j);
  }
  return noise::Compare(executions, others);
}

}  // namespace perseus::noise
