#include "perseus/runtime/qualifier/landing.h"

#include <cmath>
#include <cstddef>

namespace perseus::qualifier {
namespace {

constexpr std::size_t kLeastSamples = 4;

struct WorkStep {
  Nanoseconds begin = 0;
  double rate = 0;
  double duration = 0;
};

std::vector<WorkStep> StepsOf(const std::vector<WorkSample>& samples) {
  std::vector<WorkStep> steps;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const auto duration = static_cast<double>(samples[i].at - samples[i - 1].at);
    if (duration <= 0) continue;
    steps.push_back(
        {samples[i - 1].at, (samples[i].work - samples[i - 1].work) / duration, duration});
  }
  return steps;
}

}  // namespace

std::optional<Nanoseconds> FindLanding(const std::vector<WorkSample>& samples,
                                       const ExpectedSwitch& expected) {
  const std::vector<WorkStep> steps = StepsOf(samples);
  std::size_t called = 0;  // The first step that begins at or after the call.
  while (called < steps.size() && steps[called].begin < expected.call_begin) ++called;
  if (called < kLeastSamples || steps.size() < called + kLeastSamples) return std::nullopt;

  // Sums over all steps up to each one, weighted by time, make every split O(1).
  double time = 0, work = 0, squares = 0;
  for (const WorkStep& step : steps) {
    time += step.duration;
    work += step.rate * step.duration;
    squares += step.rate * step.rate * step.duration;
  }
  double time_before = 0, work_before = 0;
  double best_error = 0, old_rate = 0, new_rate = 0;
  std::size_t best = 0;
  for (std::size_t split = 0; split + kLeastSamples <= steps.size(); ++split) {
    if (split >= called) {
      const double time_after = time - time_before, work_after = work - work_before;
      const double error =
          squares - work_before * work_before / time_before - work_after * work_after / time_after;
      if (best == 0 || error < best_error) {
        best = split;
        best_error = error;
        old_rate = work_before / time_before;
        new_rate = work_after / time_after;
      }
    }
    time_before += steps[split].duration;
    work_before += steps[split].rate * steps[split].duration;
  }
  if (best == 0 || old_rate <= 0) return std::nullopt;
  const double wanted = expected.clock_ratio - 1;
  const double seen = new_rate / old_rate - 1;
  if (seen * wanted <= 0 || std::abs(seen) < std::abs(wanted) / 2) return std::nullopt;
  return steps[best].begin;
}

}  // namespace perseus::qualifier
