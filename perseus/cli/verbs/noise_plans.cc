#include "perseus/cli/verbs/noise_plans.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/planning/noise/noise_bound.h"

namespace perseus::cli {
namespace {

std::string FormatSigned(double fraction, double interval) {
  return fmt::format("{:+.3f} ± {:.3f} %", 100 * fraction, 100 * interval);
}

// A plan for less slowdown, or for an earlier deadline, is a plan for more. With its margin, it may
// also save more. So more time never saves less.
void ShareSavings(const std::vector<PlannedTarget>& planned,
                  std::vector<Result<noise::NoisyPlan>>& noisy) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (noisy[i] && plan::LimitsTime(planned[i].target.kind)) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return planned[i].plan.deadline; });
  std::map<plan::Target::Kind, const noise::NoisyPlan*> best;
  for (const std::size_t i : order) {
    noise::NoisyPlan& own = *noisy[i];
    const noise::NoisyPlan*& earlier = best[planned[i].target.kind];
    if (earlier != nullptr && earlier->after.saving > own.after.saving) {
      own.plan.options = earlier->plan.options;
      own.plan.evaluation = earlier->plan.evaluation;
      own.after = earlier->after;
    }
    earlier = &own;
  }
}

// The limit that all plans keep; none if one has none.
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
      slowdowns.push_back(asked + limits.allowance);  // A margin aims at this.
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
      if (!planned[i].is_asked) continue;
      return FailAs(noisy[i].error().kind, "{}: {}", planned[i].plan.target,
                    noisy[i].error().message);
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

std::string FormatNoise(const NoiseOutcome& outcome, const std::vector<PlannedTarget>& planned) {
  Table table({"plan", "mean slowdown", "saving", "any plan at most", "slowdown without a margin",
               "saving without a margin"});
  bool has_other_target = false;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (planned[i].is_stop) continue;
    has_other_target = has_other_target || !plan::LimitsTime(planned[i].target.kind);
    const noise::NoisyDifference& with = outcome.with_margin[i];
    const noise::NoisyDifference& without = outcome.without_margin[i];
    table.AddRow({planned[i].plan.target, FormatSigned(with.slowdown, with.slowdown_ci),
                  FormatPercent(with.saving), FormatPercent(outcome.most_savings[i]),
                  FormatSigned(without.slowdown, without.slowdown_ci),
                  FormatPercent(without.saving)});
  }
  const std::string common =
      outcome.noise.common > 0
          ? fmt::format(", and {:g} % shared by a pp_rank", 100 * outcome.noise.common)
          : "";
  return fmt::format(
      "\nThe plans with their margins: means against maximum frequency with the same noise ({:g} "
      "%{}), with 95 % confidence:\n{}{}",
      100 * outcome.noise.independent, common, table.Format(),
      has_other_target ? "Only slowdowns and deadlines get a margin.\n" : "");
}

}  // namespace perseus::cli
