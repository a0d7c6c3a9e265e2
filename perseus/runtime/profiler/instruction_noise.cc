#include "perseus/runtime/profiler/instruction_noise.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <map>

#include "perseus/base/statistics.h"
#include "perseus/base/units.h"

namespace perseus::profiler {
namespace {

// If a step has fewer instructions, its sum shows hardly more than its parts.
constexpr std::size_t kLeastInstructions = 6;

struct Position {
  InstructionKind kind = InstructionKind::kForward;
  int chunk = 0;
  int microbatch = 0;
  friend auto operator<=>(const Position&, const Position&) = default;
};

Position PositionOf(const protocol::RanInstruction& instruction) {
  return {instruction.kind, instruction.chunk, instruction.microbatch};
}

using Steps = std::vector<std::span<const protocol::RanInstruction>>;

// Returns the times (s) of the instructions that all steps have: [step][instruction], in the order
// of the first step.
std::vector<std::vector<double>> CommonTimes(const Steps& steps) {
  std::vector<std::map<Position, double>> times;
  for (const auto& step : steps) {
    std::map<Position, double>& of_step = times.emplace_back();
    for (const protocol::RanInstruction& one : step) {
      of_step[PositionOf(one)] = ToSeconds(one.duration);
    }
  }
  std::vector<std::vector<double>> common(steps.size());
  for (const protocol::RanInstruction& one : steps.front()) {
    const Position position = PositionOf(one);
    const bool is_in_all =
        std::ranges::all_of(times, [&](const auto& of_step) { return of_step.contains(position); });
    if (!is_in_all) continue;
    for (std::size_t s = 0; s < steps.size(); ++s) common[s].push_back(times[s].at(position));
  }
  return common;
}

// The two variances that solve the equations of the header.
struct Variances {
  double independent = 0;
  double common = 0;
};
Variances VariancesOf(const InstructionNoise::Sums& sums) {
  Variances found;
  found.common = (sums.all - sums.own) / (sums.all_common - sums.own_common);
  // A negative variance comes from estimation errors.
  found.common = std::max(0.0, found.common);
  found.independent = std::max(0.0, (sums.own - sums.own_common * found.common) / sums.squares);
  return found;
}

InstructionNoise::Sums Total(
    const std::array<InstructionNoise::Sums, InstructionNoise::kGroups>& groups,
    std::optional<std::size_t> left_out) {
  InstructionNoise::Sums total;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (g == left_out) continue;
    total.own += groups[g].own;
    total.all += groups[g].all;
    total.squares += groups[g].squares;
    total.own_common += groups[g].own_common;
    total.all_common += groups[g].all_common;
  }
  return total;
}

double Deviation(double variance) { return std::min(std::sqrt(variance), profile::kMostTimeNoise); }

}  // namespace

void InstructionNoise::Add(std::span<const std::vector<protocol::RanInstruction>> steps) {
  Steps usable;
  for (const auto& step : steps) {
    if (!step.empty()) usable.emplace_back(step);
  }
  if (usable.size() < 2) return;
  const std::vector<std::vector<double>> times = CommonTimes(usable);
  const std::size_t count = times.front().size();
  if (count < kLeastInstructions) return;
  std::vector<double> means(count, 0);
  for (const std::vector<double>& of_step : times) {
    for (std::size_t k = 0; k < count; ++k) {
      means[k] += of_step[k] / static_cast<double>(times.size());
    }
  }
  // These are sums of squared deviations: the variances times n - 1.
  Sums& sums = state_.groups[static_cast<std::size_t>(state_.blocks) % kGroups];
  for (const std::vector<double>& of_step : times) {
    double from_sum = 0;
    double before = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const double from_mean = of_step[k] - means[k];
      sums.own += from_mean * from_mean + 2 * before * from_mean;
      from_sum += from_mean;
      before = from_mean;
    }
    sums.all += from_sum * from_sum;
  }
  const auto weight = static_cast<double>(times.size() - 1);
  double sum_s = 0;
  for (std::size_t k = 0; k < count; ++k) {
    sum_s += means[k];
    sums.squares += weight * means[k] * means[k];
    sums.own_common += weight * means[k] * (means[k] + (k == 0 ? 0 : 2 * means[k - 1]));
  }
  sums.all_common += weight * sum_s * sum_s;
  ++state_.blocks;
}

std::optional<MeasuredNoise> InstructionNoise::Solve() const {
  if (state_.blocks < static_cast<std::int64_t>(kGroups)) return std::nullopt;
  const Variances all = VariancesOf(Total(state_.groups, std::nullopt));
  double independent_squares = 0;
  double common_squares = 0;
  for (std::size_t g = 0; g < kGroups; ++g) {
    const Variances without = VariancesOf(Total(state_.groups, g));
    independent_squares += std::pow(without.independent - all.independent, 2);
    common_squares += std::pow(without.common - all.common, 2);
  }
  constexpr double kOthers = kGroups - 1;
  const auto half_width = [](double squares) {
    return StudentHalfWidth(kOthers) * std::sqrt(squares * kOthers / kGroups);
  };
  MeasuredNoise measured;
  measured.noise = {Deviation(all.independent), Deviation(all.common)};
  // The upper end of the interval of the variance, as a deviation.
  measured.independent_ci =
      std::sqrt(all.independent + half_width(independent_squares)) - std::sqrt(all.independent);
  measured.common_ci = std::sqrt(all.common + half_width(common_squares)) - std::sqrt(all.common);
  return measured;
}

InstructionNoise InstructionNoise::Restore(const State& state) {
  InstructionNoise restored;
  restored.state_ = state;
  return restored;
}

}  // namespace perseus::profiler
