#include "perseus/cluster/telemetry/plan_guard.h"

#include <cmath>

#include "perseus/base/statistics.h"

namespace perseus::telemetry {
namespace {

using State = store::GuardState;

store::GuardRecord Trial(const StepTimes& times, Milliseconds now) {
  return {.state = State::kTrial, .with_plan = times.ratio, .error = times.error, .since = now};
}

}  // namespace

StepTimes SummarizeTimes(std::vector<double> times_s, double promised_s) {
  if (times_s.empty()) return {};
  const double median = LowerMedian(times_s);
  const double deviation = kDeviationsOfMad * MedianDeviation(times_s, median);
  const double root = std::sqrt(static_cast<double>(times_s.size()));
  return {.steps = static_cast<int>(times_s.size()),
          .ratio = median / promised_s,
          .error = kErrorOfMedian * deviation / root / promised_s};
}

std::optional<store::GuardRecord> NextGuard(const std::optional<store::GuardRecord>& guard,
                                            const StepTimes& times, double limit,
                                            Milliseconds now) {
  if (times.steps < kGuardSteps) return std::nullopt;
  const double surely = times.ratio - 2 * times.error;
  if (!guard) {
    if (!times.has_plans || surely <= 1 + limit) return std::nullopt;
    return Trial(times, now);
  }
  if (guard->state == State::kCleared) {
    const bool is_recent = now < guard->since + kRetryGuardAfter;
    if (!times.has_plans || is_recent || surely <= guard->with_plan * (1 + limit)) {
      return std::nullopt;
    }
    return Trial(times, now);
  }
  if (guard->state != State::kTrial || times.has_plans) return std::nullopt;
  const double harm = guard->with_plan - times.ratio * (1 + limit);
  const double error = std::hypot(guard->error, times.error * (1 + limit));
  if (std::abs(harm) <= 2 * error && times.steps < kMostGuardSteps) return std::nullopt;
  store::GuardRecord next = *guard;
  next.without_plan = times.ratio;
  next.state = harm > 0 && harm > error ? State::kWithdrawn : State::kCleared;
  next.since = now;
  return next;
}

}  // namespace perseus::telemetry
