#include "perseus/cli/verbs/plan_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "perseus/base/wording.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/hardware_facts/assumed.h"

namespace perseus::cli {

using recipe::PickedLimit;
using recipe::PlannedTarget;
using recipe::SwitchTradeoff;

namespace {

// Formats a share as percent. Rounds down, so that a plan that shows 95.0 % keeps at least 95 %.
// The picked limit must keep at least this share.
std::string FormatShare(double share) {
  return fmt::format("{:.1f} %", std::floor(share * 1000) / 10);
}

std::string FormatSigned(double fraction, double interval) {
  return fmt::format("{:+.3f} ± {:.3f} %", 100 * fraction, 100 * interval);
}

}  // namespace

void PlanRows::Show(std::string_view target, const plan::Plan& plan, Stage stage) {
  const plan::Evaluation& evaluation = plan.evaluation;
  rows_.Show(
      std::string(target),
      fmt::format("{}: {} s, {} J, saves {}, gap {:.3f} %{}", plan.target,
                  FormatQuantity(ToSeconds(evaluation.time)), FormatQuantity(evaluation.energy_j),
                  FormatPercent(1 - evaluation.energy_j / planner_.baseline().energy_j),
                  plan.gap() * 100,
                  stage == Stage::kBeforeLimit ? " (before clock changes are limited)" : ""));
}

std::string FormatPickedLimit(const PickedLimit& picked, const SwitchTradeoff& tradeoff,
                              const std::optional<double>& facts_per_s) {
  if (!picked.saves) return "No plan saves energy for this target, so no limit is picked.\n";
  if (picked.most_switches) {
    std::string text = fmt::format(
        "{} switches per GPU keep {} of the saving (--switch-tradeoff: other limits).\n",
        *picked.most_switches, FormatShare(picked.kept));
    if (picked.keeps_most()) return text;
    const plan::Evaluation& unlimited = tradeoff.unlimited.evaluation;
    return text +
           fmt::format("The whole saving needs {:.3g} changes a second; {} {:.3g}.\n",
                       few_switches::MostSwitches(unlimited) / ToSeconds(unlimited.time),
                       facts_per_s ? "the hardware facts allow" : "without facts, plans assume",
                       facts_per_s.value_or(hardware_facts::kAssumedChangesPerS));
  }
  if (tradeoff.was_interrupted) {
    return "The search within limits was stopped early, so the plans have none. For one of them, "
           "use --max-switches N.\n";
  }
  std::string text =
      fmt::format("No limit up to 16 keeps {:.0f} % of the saving", 100 * picked.asked_share);
  if (tradeoff.most_kept_further) {
    text += fmt::format(", and {} switches keep at most {:.1f} %", recipe::kGreatestTradedLimit,
                        std::ceil(*tradeoff.most_kept_further * 1000) / 10);
  }
  return text + ", so the plans have none. For one, use --max-switches N.\n";
}

std::string FormatSwitchTradeoff(const plan::Planner& planner, const SwitchTradeoff& tradeoff) {
  const double baseline_j = planner.baseline().energy_j;
  const auto saving = [&](double energy_j) { return 1 - energy_j / baseline_j; };
  const double unlimited = saving(tradeoff.unlimited.evaluation.energy_j);
  Table table({"limit", "saving", "kept", "at most", "gap", "busiest GPU", "a second"});
  const auto add = [&](const std::string& limit, const plan::Plan& plan) {
    const double saved = saving(plan.evaluation.energy_j);
    const int most = few_switches::MostSwitches(plan.evaluation);
    table.AddRow({limit, FormatPercent(saved), unlimited > 0 ? FormatShare(saved / unlimited) : "",
                  FormatPercent(saving(std::min(plan.lower_bound_j, plan.evaluation.energy_j))),
                  fmt::format("{:.3f} %", plan.gap() * 100), std::to_string(most),
                  fmt::format("{:.2f}", most / ToSeconds(plan.evaluation.time))});
  };
  const std::vector<report::SwitchLimit> reported = ReportedTradeoff(planner, tradeoff).limits;
  for (std::size_t i = 0; i < reported.size(); ++i) {
    const few_switches::BudgetPlan& limited = tradeoff.limited[i];
    const std::string limit = std::to_string(limited.most_changes);
    if (reported[i].saving) {
      add(limit, *limited.plan);
    } else {
      const std::optional<double>& most = reported[i].most_saving;
      table.AddRow({limit, limited.is_searched ? "none found" : "not searched", "",
                    most ? FormatPercent(*most) : "none", "", "", ""});
    }
  }
  add("unlimited", tradeoff.unlimited);
  return table.Format();
}

report::SwitchTradeoff ReportedTradeoff(const plan::Planner& planner,
                                        const SwitchTradeoff& tradeoff) {
  report::SwitchTradeoff reported{
      tradeoff.unlimited.target,
      {},
      1 - tradeoff.unlimited.evaluation.energy_j / planner.baseline().energy_j};
  for (const few_switches::BudgetPlan& limited : tradeoff.limited) {
    std::optional<double> energy_j;
    if (limited.plan && limited.is_searched) energy_j = limited.plan->evaluation.energy_j;
    reported.limits.push_back(report::MakeSwitchLimit(
        limited.most_changes, energy_j, limited.lower_bound_j, planner.baseline().energy_j));
  }
  return reported;
}

std::string FormatNoise(const recipe::NoiseOutcome& outcome,
                        const std::vector<PlannedTarget>& planned) {
  Table table({"plan", "mean slowdown", "saving", "best possible", "slowdown without a margin",
               "saving without a margin"});
  bool has_other_target = false;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (planned[i].is_stop()) continue;
    has_other_target = has_other_target || !plan::LimitsTime(planned[i].target.kind);
    const noise::NoisyDifference& with = outcome.with_margin[i];
    const noise::NoisyDifference& without = outcome.without_margin[i];
    table.AddRow({plan::Describe(planned[i].target), FormatSigned(with.slowdown, with.slowdown_ci),
                  FormatPercent(with.saving), FormatPercent(outcome.most_savings[i]),
                  FormatSigned(without.slowdown, without.slowdown_ci),
                  FormatPercent(without.saving)});
  }
  const std::string common =
      outcome.noise.common > 0
          ? fmt::format(", and {:g} % shared by a pp_rank", 100 * outcome.noise.common)
          : "";
  return Wrapped(fmt::format("\nThe plans with their margins: means against maximum frequency "
                             "with the same noise ({:g} %{}), with 95 % confidence:\n",
                             100 * outcome.noise.independent, common)) +
         table.Format() + (has_other_target ? "Only slowdowns and deadlines get a margin.\n" : "");
}

std::string DescribeChangeRate(const job::UsedFacts& facts,
                               const std::vector<PlannedTarget>& planned) {
  if (!facts.most_changes_per_s) return {};
  // --max-switches auto may choose a lower limit than the rate allows.
  const auto limited = std::ranges::count_if(planned, [&](const PlannedTarget& target) {
    return target.most_switches &&
           *target.most_switches ==
               few_switches::MostChanges(*facts.most_changes_per_s, target.plan.deadline);
  });
  return fmt::format(
      "hardware facts: {} allows {:.4g} clock changes per second and GPU; {} (--per-instruction "
      "ignores this)\n",
      facts.path, *facts.most_changes_per_s,
      limited == 0 ? "no plan needs more"
                   : fmt::format("{} of {} plans are limited to it", limited, planned.size()));
}

void WarnAboveRate(const Streams& streams, const std::vector<PlannedTarget>& planned,
                   double changes_per_s, const std::string& facts) {
  double most_per_s = 0;
  for (const PlannedTarget& target : planned) {
    const plan::Evaluation& evaluation = target.plan.evaluation;
    most_per_s =
        std::max(most_per_s, few_switches::MostSwitches(evaluation) / ToSeconds(evaluation.time));
  }
  if (most_per_s <= changes_per_s) return;
  streams.Warn(
      fmt::format("the plans have up to {:.3g} clock changes per second and GPU, and {} allows "
                  "{:.3g} (use a lower --max-switches, or none)",
                  most_per_s, facts, changes_per_s));
}

}  // namespace perseus::cli
