#include "perseus/planning/recipe/targets.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/base/round_step.h"
#include "perseus/base/wording.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/plan/target.h"

namespace perseus::recipe {
namespace {

constexpr double kTableSlowdownsPercent[] = {1, 2, 5, 10, 20};
constexpr int kMostStops = 10;
// A stop is between two targets of the table, so it needs less work than they do.
constexpr double kWorkOfStops = 0.5;
// The maximum number of instructions of all stops together: about ten seconds of planning on one
// core.
constexpr std::size_t kMostStopInstructions = 40'000;

bool IsSlowdown(const plan::Target& target) { return target.kind == plan::Target::Kind::kSlowdown; }

// Returns the longest time that an asked slowdown or deadline permits, or 0.
Nanoseconds LongestAsked(const plan::Planner& planner, const std::vector<plan::Target>& asked) {
  Nanoseconds longest = 0;
  for (const plan::Target& target : asked) {
    if (!plan::LimitsTime(target.kind)) continue;
    // A target out of range fails when it is planned.
    const auto deadline = plan::DeadlineOf(planner, nullptr, target);
    if (deadline) longest = std::max(longest, *deadline);
  }
  return longest;
}

// Slowdowns (in percent) at even distances, below `longest`.
std::vector<double> StopsUpTo(double longest, int stops) {
  std::vector<double> percents;
  if (stops == 0 || !(longest > 0)) return percents;
  const double step = RoundStepFrom(longest / stops).value();
  for (int i = 1; i * step < longest; ++i) {
    // Rounds to the value as a user would write it: 0.3, not 0.30000000000000004.
    percents.push_back(std::stod(fmt::format("{:.6g}", i * step)));
  }
  return percents;
}

// Whether an earlier target has the same plan. This is frequent for profiles with few options.
bool IsAmong(const std::vector<PlannedTarget>& planned, const plan::Plan& plan) {
  return std::ranges::any_of(
      planned, [&](const PlannedTarget& other) { return other.plan.options == plan.options; });
}

}  // namespace

bool MayTake(Group from, Group to) {
  if (from == Group::kLoose) return to == Group::kLoose;
  // Loose targets are asked targets. The plan for no slowdown is made whatever the targets are. So
  // an asked target may take that plan.
  const auto rank = [](Group group) {
    return group == Group::kReference || group == Group::kLoose ? Group::kAsked : group;
  };
  return rank(from) <= rank(to);
}

bool NeedsCandidates(const std::vector<plan::Target>& asked) {
  return std::ranges::any_of(asked, [](const plan::Target& target) {
    return target.kind == plan::Target::Kind::kEdp || target.kind == plan::Target::Kind::kPrice;
  });
}

bool PermitsMoreTime(const plan::Planner& planner, const std::vector<plan::Target>& asked) {
  return LongestAsked(planner, asked) > planner.baseline().time;
}

std::vector<WantedTarget> TargetsToPlan(const std::vector<plan::Target>& asked,
                                        const plan::Planner& planner,
                                        std::optional<Nanoseconds> least_energy_time, Table table,
                                        int stops) {
  std::vector<std::pair<double, bool>> slowdowns = {{0, false}};  // In percent, whether a stop.
  for (const plan::Target& target : asked) {
    if (IsSlowdown(target)) slowdowns.emplace_back(target.value, false);
  }
  std::vector<plan::Target> others;
  // A plan is often faster than its deadline, so the plan of least energy may end before the time
  // of the relaxation.
  constexpr double kNear = 0.9;
  const bool reaches_least_energy =
      least_energy_time && static_cast<double>(LongestAsked(planner, asked)) >=
                               kNear * static_cast<double>(*least_energy_time);
  if (reaches_least_energy) others.push_back({.kind = plan::Target::Kind::kMinEnergy});
  if (least_energy_time && table == Table::kYes) {
    const double longest_s = ToSeconds(*least_energy_time);
    const double baseline_s = ToSeconds(planner.baseline().time);
    for (double percent : kTableSlowdownsPercent) {
      if (baseline_s * (1 + percent / 100) < longest_s) slowdowns.emplace_back(percent, false);
    }
    for (double percent : StopsUpTo((longest_s / baseline_s - 1) * 100, stops)) {
      slowdowns.emplace_back(percent, true);
    }
    others.push_back({.kind = plan::Target::Kind::kMinEnergy});
  }
  // If slowdowns are equal, the one that is not a stop comes first.
  std::ranges::sort(slowdowns);

  std::vector<WantedTarget> targets;
  std::vector<std::string> slugs;  // A target that is requested twice gives one plan.
  const auto is_loose = [&](const plan::Target& target) {
    return least_energy_time && LongestAsked(planner, {target}) >= *least_energy_time;
  };
  auto add = [&](const plan::Target& target, bool is_stop) {
    const std::string slug = plan::Slug(target);
    if (std::ranges::find(slugs, slug) != slugs.end()) return;
    slugs.push_back(slug);
    const bool is_asked = std::ranges::find(asked, slug, plan::Slug) != asked.end();
    const bool is_reference =
        (IsSlowdown(target) && target.value == 0) ||
        (target.kind == plan::Target::Kind::kMinEnergy && reaches_least_energy);
    targets.push_back({target, is_asked && is_loose(target)             ? Group::kLoose
                               : is_asked                               ? Group::kAsked
                               : is_stop                                ? Group::kStop
                               : is_reference || NeedsCandidates(asked) ? Group::kReference
                                                                        : Group::kTable});
  };
  for (const auto& [percent, is_stop] : slowdowns) {
    add({.kind = plan::Target::Kind::kSlowdown, .value = percent}, is_stop);
  }
  for (const plan::Target& target : others) add(target, false);
  for (const plan::Target& target : asked) add(target, false);
  return targets;
}

void TakePlanOfLeastEnergy(std::vector<PlannedTarget>& planned) {
  const auto is_least_energy = [](const PlannedTarget& one) {
    return one.target.kind == plan::Target::Kind::kMinEnergy;
  };
  const auto found = std::ranges::find_if(planned, is_least_energy);
  if (found == planned.end()) return;
  const PlannedTarget least = *found;
  for (PlannedTarget& one : planned) {
    if (one.group != Group::kLoose || one.plan.deadline < least.plan.evaluation.time) continue;
    one.plan.options = least.plan.options;
    one.plan.evaluation = least.plan.evaluation;
    if (one.most_switches == least.most_switches) continue;
    // The bound of least energy is valid for any time, with the limit of its plan.
    one.plan.lower_bound_j = least.plan.lower_bound_j;
    one.most_switches = least.most_switches;
    one.plan.target = plan::Describe(one.target);
    if (least.most_switches) {
      one.plan.target = few_switches::NameWithLimit(one.plan.target, *least.most_switches);
    }
  }
}

int DefaultStops(const schedule::InstructionGraph& graph) {
  const std::size_t instructions = std::max<std::size_t>(graph.instructions.size(), 1);
  return static_cast<int>(std::min<std::size_t>(kMostStops, kMostStopInstructions / instructions));
}

Result<void> TargetPlans::Advance(const std::vector<Entry*>& entries,
                                  const plan::SearchLimits& limits) {
  std::atomic<std::size_t> done = 0;
  std::atomic<bool> has_failed = false;
  ForEachOnAllCores(entries.size(), [&](std::size_t i) {
    // After a failure, no more plans are needed, because only the first error is reported.
    if (has_failed) return;
    Entry& entry = *entries[i];
    entry.is_tried = true;
    plan::SearchLimits own = limits;
    if (entry.wanted.is_stop()) own.work *= kWorkOfStops;
    entry.plan = entry.search.PlanWith(own);
    if (entry.plan && !entry.wanted.is_stop())
      progress_.Show(entry.plan->target, *entry.plan, stage_);
    if (!entry.plan && !entry.wanted.is_stop()) has_failed = true;
    progress_.Update(static_cast<double>(++done) / static_cast<double>(entries.size()));
  });
  for (const Entry* entry : entries) {
    const bool may_fail = entry->wanted.is_stop();
    if (entry->plan || (may_fail && entry->plan.error().kind == ErrorKind::kUnreachable)) continue;
    if (!entry->is_tried) continue;  // Another target has failed.
    return Fail(entry->plan);
  }
  return {};
}

Result<void> TargetPlans::LookFirst(const plan::Frontier* frontier,
                                    const std::vector<WantedTarget>& wanted,
                                    const std::stop_token& stop) {
  std::vector<std::unique_ptr<Entry>> earlier = std::move(entries_);
  entries_.clear();
  std::vector<Entry*> added;
  for (const WantedTarget& target : wanted) {
    std::string slug = plan::Slug(target.target);
    const auto known = std::ranges::find_if(
        earlier, [&](const auto& entry) { return entry != nullptr && entry->slug == slug; });
    if (known != earlier.end()) {
      entries_.push_back(std::move(*known));
      entries_.back()->wanted = target;
      continue;
    }
    entries_.push_back(std::make_unique<Entry>(
        Entry{target, std::move(slug), plan::TargetSearch(planner_, frontier, target.target),
              Fail("not planned")}));
    added.push_back(entries_.back().get());
  }
  progress_.Begin(Counted(std::ssize(wanted), "plan"));
  return Advance(added, {.effort = plan::kFirstLook, .stop = stop});
}

Result<void> TargetPlans::Improve(const plan::SearchLimits& limits, std::string_view only) {
  std::vector<Entry*> planned;
  for (const auto& entry : entries_) {
    if (entry->plan && (only.empty() || entry->slug == only)) planned.push_back(entry.get());
  }
  for (int effort = plan::kFirstLook + 1; effort <= limits.effort; ++effort) {
    if (limits.finish.stop_requested()) break;
    progress_.Begin(fmt::format("effort {} of {}", effort, limits.effort));
    PERSEUS_RETURN_IF_ERROR(
        Advance(planned, {.effort = effort, .stop = limits.stop, .finish = limits.finish}));
  }
  return {};
}

std::vector<PlannedTarget> TargetPlans::Best() const {
  // All instructions at maximum frequency are a plan, too.
  plan::Plan baseline = *entries_.front()->plan;
  baseline.options = schedule::BaselineOptions(planner_.graph());
  baseline.evaluation = planner_.baseline();
  std::vector<PlannedTarget> planned;
  for (const auto& entry : entries_) {
    if (!entry->plan) continue;
    const WantedTarget& wanted = entry->wanted;
    std::vector<plan::Plan> others = {baseline};
    for (const auto& other : entries_) {
      if (other->plan && MayTake(other->wanted.group, wanted.group)) others.push_back(*other->plan);
    }
    plan::Plan best = plan::BestPlan(wanted.target, *entry->plan, others);
    if (wanted.is_stop() && IsAmong(planned, best)) continue;
    planned.push_back({.target = wanted.target,
                       .slug = entry->slug,
                       .plan = std::move(best),
                       .group = wanted.group});
  }
  return planned;
}

}  // namespace perseus::recipe
