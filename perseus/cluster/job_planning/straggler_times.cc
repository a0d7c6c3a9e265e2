#include "perseus/cluster/job_planning/straggler_times.h"

#include <algorithm>
#include <cmath>

namespace perseus::job_planning {
namespace {

constexpr double kFactorStep = 0.005;
// The quotient of two doubles may be slightly less than the exact quotient, such as 1.25.
constexpr double kRounding = 1e-9;

}  // namespace

std::map<int, double> SlowdownsAt(std::span<const store::StragglerRecord> stragglers, int pipelines,
                                  Milliseconds now) {
  std::map<int, double> slowdowns;
  for (const store::StragglerRecord& straggler : stragglers) {
    const bool is_over = straggler.expires != 0 && straggler.expires <= now;
    if (straggler.starts > now || is_over || straggler.slowdown <= 1) continue;
    if (straggler.suspended != 0) continue;
    if (straggler.dp_rank < 0 || straggler.dp_rank >= pipelines) continue;
    double& slowdown = slowdowns[straggler.dp_rank];
    slowdown = std::max(slowdown, straggler.slowdown);
  }
  return slowdowns;
}

double SlowestOf(const std::map<int, double>& slowdowns) {
  double slowest = 1;
  for (const auto& [pipeline, slowdown] : slowdowns) slowest = std::max(slowest, slowdown);
  return slowest;
}

std::vector<double> FactorsOf(const std::map<int, double>& slowdowns, int pipelines) {
  const double slowest = SlowestOf(slowdowns);
  std::vector<double> factors;
  for (int pipeline = 0; pipeline < pipelines; ++pipeline) {
    const auto found = slowdowns.find(pipeline);
    const double factor = slowest / (found == slowdowns.end() ? 1 : found->second);
    factors.push_back(1 + kFactorStep * std::floor((factor - 1) / kFactorStep + kRounding));
  }
  return factors;
}

std::optional<Milliseconds> NextChange(std::span<const store::StragglerRecord> stragglers,
                                       Milliseconds now) {
  std::optional<Milliseconds> next;
  for (const store::StragglerRecord& straggler : stragglers) {
    if (straggler.suspended != 0) continue;
    for (const Milliseconds time : {straggler.starts, straggler.expires}) {
      if (time > now && (!next || time < *next)) next = time;
    }
  }
  return next;
}

}  // namespace perseus::job_planning
