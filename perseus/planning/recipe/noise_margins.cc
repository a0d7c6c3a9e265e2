#include "perseus/planning/recipe/noise_margins.h"

#include <algorithm>
#include <map>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/planning/noise/noise_bound.h"

namespace perseus::recipe {
namespace {

// A plan for less slowdown, or for an earlier deadline, is also a plan for more time. With its
// margin, it may save more than the plan for more time. Then it replaces that plan, so more time
// never saves less.
void ShareSavings(const std::vector<PlannedTarget>& planned,
                  std::vector<Result<noise::NoisyPlan>>& noisy) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (noisy[i] && plan::LimitsTime(planned[i].target.kind)) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return planned[i].plan.deadline; });
  // [kind, group] The last plan in this order.
  std::map<std::pair<plan::Target::Kind, Group>, const noise::NoisyPlan*> best;
  for (const std::size_t i : order) {
    noise::NoisyPlan& own = *noisy[i];
    for (const auto& [key, earlier] : best) {
      if (key.first != planned[i].target.kind || !MayTake(key.second, planned[i].group)) continue;
      if (earlier->after.saving <= own.after.saving) continue;
      own.plan.options = earlier->plan.options;
      own.plan.evaluation = earlier->plan.evaluation;
      own.after = earlier->after;
    }
    best[{planned[i].target.kind, planned[i].group}] = &own;
  }
}

// Returns the limit that all plans keep. nullopt if a plan has no limit.
std::optional<int> MostSwitches(const std::vector<PlannedTarget>& planned) {
  int most = 0;
  for (const PlannedTarget& one : planned) {
    if (!one.most_switches) return std::nullopt;
    most = std::max(most, *one.most_switches);
  }
  return most;
}

}  // namespace

Result<NoiseOutcome> AddNoiseMargins(
    const plan::Planner& planner, const noise::Noise& noise, const noise::MarginLimits& limits,
    std::vector<PlannedTarget>& planned,
    const std::vector<std::vector<PlannedTarget>>& of_less_effort) {
  std::vector<Result<noise::NoisyPlan>> noisy(planned.size(), Fail("not planned"));
  noise::NoiseBound bound;
  const auto compute_bound = [&] {
    std::vector<double> slowdowns;
    for (const PlannedTarget& one : planned) {
      const double asked = ToSeconds(one.plan.deadline) / ToSeconds(planner.baseline().time) - 1;
      slowdowns.push_back(asked + limits.allowance);  // The slowdown that a margin has to keep.
    }
    bound =
        noise::ComputeNoiseBound(planner, noise, slowdowns,
                                 {.most_changes = MostSwitches(planned), .finish = limits.finish});
  };
  const auto add_margin = [&](std::size_t i) {
    noisy[i] = noise::AddNoiseMargin(planner, planned[i].plan, planned[i].target, noise, limits);
    if (!plan::LimitsTime(planned[i].target.kind)) return;
    for (const std::vector<PlannedTarget>& earlier : of_less_effort) {
      const auto start = std::ranges::find(earlier, planned[i].slug, &PlannedTarget::slug);
      if (start == earlier.end() || limits.finish.stop_requested()) continue;
      if (start->plan.options == planned[i].plan.options) continue;
      auto other = noise::AddNoiseMargin(planner, start->plan, start->target, noise, limits);
      if (!other || (noisy[i] && other->after.saving <= noisy[i]->after.saving)) continue;
      if (noisy[i]) other->before = noisy[i]->before;
      noisy[i] = std::move(other);
    }
  };
  ForEachOnAllCores(1 + planned.size(), [&](std::size_t task) {
    if (task == 0) return compute_bound();
    add_margin(task - 1);
  });
  ShareSavings(planned, noisy);
  NoiseOutcome outcome{noise, {}, {}, {}};
  std::vector<PlannedTarget> kept;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (!noisy[i]) {
      const bool is_unreachable = noisy[i].error().kind == ErrorKind::kUnreachable;
      if (is_unreachable && !planned[i].is_asked()) continue;
      return Fail(noisy[i], planned[i].plan.target);
    }
    outcome.without_margin.push_back(noisy[i]->before);
    outcome.with_margin.push_back(noisy[i]->after);
    outcome.most_savings.push_back(bound.MostSaving(noisy[i]->after.slowdown));
    kept.push_back(std::move(planned[i]));
    kept.back().plan = std::move(noisy[i]->plan);
  }
  planned = std::move(kept);
  return outcome;
}

}  // namespace perseus::recipe
