#include "perseus/cli/plan_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/cli/target_flags.h"
#include "perseus/planning/plan/best_plan.h"

namespace perseus::cli {
namespace {

constexpr double kTableSlowdownsPercent[] = {1, 2, 5, 10, 20};
constexpr int kMostStops = 16;
// The most instructions of all stops together: about ten seconds of planning on one core.
constexpr std::size_t kMostStopInstructions = 40'000;

bool IsSlowdown(const plan::Target& target) { return target.kind == plan::Target::Kind::kSlowdown; }

// The least of 1, 2 and 5 times a power of ten that makes at most `most` steps of `range`.
double NiceStep(double range, int most) {
  const double least = range / most;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (double step : {power, 2 * power, 5 * power}) {
    if (step >= least) return step;
  }
  return 10 * power;
}

// Slowdowns (in percent) at even distances, below `longest`.
std::vector<double> StopsUpTo(double longest, int stops) {
  std::vector<double> percents;
  if (stops == 0 || !(longest > 0)) return percents;
  const double step = NiceStep(longest, stops);
  for (int i = 1; i * step < longest; ++i) {
    // Rounds to the value as a user would write it: 0.3, not 0.30000000000000004.
    percents.push_back(std::stod(fmt::format("{:.6g}", i * step)));
  }
  return percents;
}

// Replaces each plan by the best of all, so that no row of the table is better for the target of
// another row. Everything at maximum frequency is such a row, too.
void UseBestPlans(const plan::Planner& planner, const std::vector<WantedTarget>& wanted,
                  std::vector<Result<plan::Plan>>& plans) {
  std::vector<plan::Plan> all;
  for (const auto& made : plans) {
    if (made) all.push_back(*made);
  }
  if (!plans.front()) return;
  plan::Plan baseline = *plans.front();  // The first target is "no slowdown".
  baseline.options = schedule::BaselineOptions(planner.graph());
  baseline.evaluation = planner.baseline();
  all.push_back(std::move(baseline));
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (plans[i]) plans[i] = plan::BestPlan(wanted[i].target, *plans[i], all);
  }
}

// Whether an earlier target has the same plan. This is frequent for profiles with few options.
bool IsAmong(const std::vector<PlannedTarget>& planned, const plan::Plan& plan) {
  return std::ranges::any_of(
      planned, [&](const PlannedTarget& other) { return other.plan.options == plan.options; });
}

}  // namespace

std::vector<WantedTarget> TargetsToPlan(const std::vector<plan::Target>& asked,
                                        const plan::Planner& planner,
                                        const std::optional<plan::Frontier>& frontier, int stops) {
  std::vector<std::pair<double, bool>> slowdowns = {{0, false}};  // In percent, whether a stop.
  for (const plan::Target& target : asked) {
    if (IsSlowdown(target)) slowdowns.emplace_back(target.value, false);
  }
  std::vector<plan::Target> others;
  if (frontier) {
    const double longest = ToSeconds(frontier->points[frontier->least_energy].time);
    const double baseline = ToSeconds(planner.baseline().time);
    for (double percent : kTableSlowdownsPercent) {
      if (baseline * (1 + percent / 100) < longest) slowdowns.emplace_back(percent, false);
    }
    for (double percent : StopsUpTo((longest / baseline - 1) * 100, stops)) {
      slowdowns.emplace_back(percent, true);
    }
    others.push_back({.kind = plan::Target::Kind::kMinEnergy});
  }
  // Of equal slowdowns, the one that is not a stop comes first.
  std::ranges::sort(slowdowns);

  std::vector<WantedTarget> targets;
  std::vector<std::string> slugs;  // A target that is requested twice gives one plan.
  auto add = [&](const plan::Target& target, bool is_stop) {
    const std::string slug = plan::Slug(target);
    if (std::ranges::find(slugs, slug) != slugs.end()) return;
    slugs.push_back(slug);
    targets.push_back({target, is_stop});
  };
  for (const auto& [percent, is_stop] : slowdowns) {
    add({.kind = plan::Target::Kind::kSlowdown, .value = percent}, is_stop);
  }
  for (const plan::Target& target : others) add(target, false);
  for (const plan::Target& target : asked) add(target, false);
  return targets;
}

int DefaultStops(const schedule::InstructionGraph& graph) {
  const std::size_t instructions = std::max<std::size_t>(graph.instructions.size(), 1);
  return static_cast<int>(std::min<std::size_t>(kMostStops, kMostStopInstructions / instructions));
}

Result<std::vector<PlannedTarget>> PlanTargets(const plan::Planner& planner,
                                               const std::optional<plan::Frontier>& frontier,
                                               const std::vector<WantedTarget>& wanted,
                                               ProgressBar& bar) {
  std::vector<Result<plan::Plan>> plans(wanted.size(), Fail("not planned"));
  std::atomic<std::size_t> done = 0;
  std::atomic<bool> has_failed = false;
  bar.Begin(fmt::format("{} plans", wanted.size()), 1);
  ForEachOnAllCores(wanted.size(), [&](std::size_t i) {
    // After a failure, no further plan is needed, because only the first error is reported.
    if (has_failed) return;
    plans[i] = plan::PlanForTarget(planner, frontier ? &*frontier : nullptr, wanted[i].target);
    if (!plans[i] && !wanted[i].is_stop) has_failed = true;
    bar.Update(static_cast<double>(++done) / static_cast<double>(wanted.size()));
  });

  UseBestPlans(planner, wanted, plans);
  std::vector<PlannedTarget> planned;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& [target, is_stop] = wanted[i];
    if (plans[i] && is_stop && IsAmong(planned, *plans[i])) continue;
    if (plans[i]) {
      planned.push_back({target, plan::Slug(target), *std::move(plans[i]), is_stop});
    } else if (!is_stop || plans[i].error().kind != ErrorKind::kUnreachable) {
      return Fail(plans[i]);
    }
  }
  return planned;
}

}  // namespace perseus::cli
