#include "perseus/cluster/telemetry/plan_promise.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "perseus/base/statistics.h"
#include "perseus/base/wording.h"

namespace perseus::telemetry {
namespace {

// Returns the median, or nullopt for fewer than kLeastPromiseSteps values.
std::optional<double> MedianOf(std::vector<double> values) {
  if (values.size() < kLeastPromiseSteps) return std::nullopt;
  return LowerMedian(std::move(values));
}

// Returns the median of a value of one pipeline, over the steps that have this value.
template <typename Value>
std::optional<double> MedianOf(const std::vector<MeasuredStep>& steps, int dp_rank,
                               const Value& value) {
  std::vector<double> values;
  for (const MeasuredStep& step : steps) {
    const auto found = step.pipelines.find(dp_rank);
    if (found == step.pipelines.end()) continue;
    if (const std::optional<double> of_step = value(found->second)) values.push_back(*of_step);
  }
  return MedianOf(std::move(values));
}

void ComparePipelines(const store::PlannedAssignment& assignment,
                      const std::vector<MeasuredStep>& steps, Promise& promise) {
  promise.promised_j = promise.measured_j = 0;
  for (std::size_t i = 0; i < assignment.pipelines.size(); ++i) {
    const store::PlannedAssignment::Share& share = assignment.pipelines[i];
    const int dp_rank = static_cast<int>(i);
    const auto busy_s = MedianOf(steps, dp_rank, [](const MeasuredStep::Pipeline& pipeline) {
      return std::optional(pipeline.busy_s);
    });
    const auto energy_j = MedianOf(
        steps, dp_rank, [](const MeasuredStep::Pipeline& pipeline) { return pipeline.energy_j; });
    if (!energy_j) promise.promised_j = promise.measured_j = std::nullopt;
    if (promise.measured_j && energy_j) {
      *promise.promised_j += share.energy_j;
      *promise.measured_j += *energy_j;
    }
    const double planned_s = share.time_s - assignment.tail_s;
    if (!busy_s || planned_s <= 0) continue;
    Promise::Pipeline& of_pipeline = promise.pipelines[dp_rank];
    of_pipeline.time_ratio = *busy_s / planned_s;
    if (energy_j && share.energy_j > 0) of_pipeline.energy_ratio = *energy_j / share.energy_j;
  }
}

}  // namespace

std::optional<Promise> ComparePromise(const store::PlannedAssignment& assignment,
                                      const std::vector<MeasuredStep>& steps) {
  if (assignment.pipelines.empty() || assignment.time_s <= 0) return std::nullopt;
  Promise promise;
  std::vector<double> times;
  for (const MeasuredStep& step : steps) {
    if (step.time_s > 0) times.push_back(step.time_s);
    promise.limited_ranks = std::max(promise.limited_ranks, step.limited_ranks);
    promise.ranks_without_clocks =
        std::max(promise.ranks_without_clocks, step.ranks_without_clocks);
  }
  promise.steps = static_cast<int>(times.size());
  const auto measured_s = MedianOf(std::move(times));
  if (!measured_s) return std::nullopt;
  promise.promised_s = assignment.time_s;
  promise.measured_s = *measured_s;
  ComparePipelines(assignment, steps, promise);
  return promise;
}

std::string ExplainPromise(const Promise& promise, double tolerance) {
  const bool is_slow = promise.time_ratio() > 1 + tolerance;
  const bool is_hungry = promise.promised_j && *promise.promised_j > 0 &&
                         *promise.measured_j / *promise.promised_j > 1 + tolerance;
  if (!is_slow && !is_hungry) return "";
  std::string text =
      is_slow ? fmt::format("a step takes {} longer than planned",
                            FormatPercent(promise.time_ratio() - 1))
              : fmt::format("a step needs {} more energy than planned",
                            FormatPercent(*promise.measured_j / *promise.promised_j - 1));
  if (promise.ranks_without_clocks > 0) {
    return text +
           fmt::format(
               ": {} set no clocks, because they have no lease of their GPUs (perseus doctor "
               "on their nodes says why)",
               Counted(promise.ranks_without_clocks, "rank"));
  }
  if (promise.limited_ranks > 0) {
    return text + fmt::format(
                      ": heat, a power brake or another program limits the clocks of {} ranks "
                      "(perseus_gpu_clock_limited of their agents says which)",
                      promise.limited_ranks);
  }
  std::vector<int> off;
  for (const auto& [dp_rank, pipeline] : promise.pipelines) {
    const double ratio = is_slow ? pipeline.time_ratio : pipeline.energy_ratio.value_or(1);
    if (ratio > 1 + tolerance) off.push_back(dp_rank);
  }
  if (off.size() == promise.pipelines.size() && !off.empty()) {
    return text +
           ": all pipelines do, so the profile does not fit the job any more (measure it "
           "again: perseus tune)";
  }
  if (!off.empty()) {
    text += off.size() == 1 ? ": only pipeline" : ": only pipelines";
    for (const int dp_rank : off) text += fmt::format(" {}", dp_rank);
    return text + (off.size() == 1 ? " does" : " do");
  }
  if (!is_slow) return text;
  return text +
         ": the instructions take their planned time, so the rest of the step is longer "
         "(all-reduce, optimizer, loading)";
}

}  // namespace perseus::telemetry
