// The recipe of a plan: all that lies between the planner and a plan that GPUs follow.
//
// Every door makes its plans here: `perseus plan`, Python, the C++ API, the server and `tune`. A
// door chooses the targets, the effort and the rules that the user gives. Nothing else. So the same
// job has the same plans everywhere, bit for bit.
//
// METHOD
//   1. Targets. The asked ones and no slowdown, and in a table also 1 to 20 % and least energy.
//   2. Plans without a limit of clock changes (plan/target.h): a first look at all, and then better
//      ones until the effort is done.
//   3. The limit. The user gives it, or the fewest changes are picked that keep 95 % of the saving
//      with no slowdown: a plan for each instruction changes a clock ten times a second, and each
//      change costs a real GPU 0.1 ms. A search within the limit replaces each plan
//      (few_switches.h). A given limit is climbed to from 0, so that a higher one never needs more
//      energy.
//   4. The margin. With noise, a plan whose target is a time gets faster options until its mean
//      time keeps it (noise_margin.h).
//   5. The bound. Each plan has the greatest bound that is known: that of the relaxation, that of
//      the measured options (discrete_bound.h), and that of its limit.
//
// No plan of the result is better for the target of another one: more time never needs more energy.
// For this, targets share their plans. So a plan depends on all asked targets, and not on its own
// alone. But it does not depend on a table (targets.h, Group): a plan of the table that an asked
// target could use is left out of the result. So a door with a table has the same plans.
//
// Thread safety: PlanJob may be called from several threads. It uses all cores.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/noise/noisy_execution.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/recipe/noise_margins.h"
#include "perseus/planning/recipe/progress.h"
#include "perseus/planning/recipe/switch_tradeoff.h"
#include "perseus/planning/recipe/targets.h"

namespace perseus::recipe {

// How often the plans may change the clock of one GPU.
struct ChangeRules {
  enum class Limit {
    kPickShortly,  // kPick with a shorter search.
    kPick,         // The fewest changes an iteration that keep 95 % of the saving.
    kGiven,        // `most_changes`.
    kNone,         // A clock for each instruction.
  };
  Limit limit = Limit::kPickShortly;
  int most_changes = 0;        // kGiven only: in an iteration.
  bool with_tradeoff = false;  // Also says what each limit saves, if it does not pick one.
  // The greatest rate of one GPU. A given limit replaces it.
  std::optional<double> changes_per_s = {};

  bool picks() const { return limit == Limit::kPickShortly || limit == Limit::kPick; }
  bool has_tradeoff() const { return picks() || with_tradeoff; }
};

struct Wishes {
  std::vector<plan::Target> targets = {{}};  // At least one.
  int effort = plan::kUsualEffort;
  ChangeRules changes = {};
  std::optional<noise::Noise> noise = {};  // 0 is none.
  // If no plan keeps the target of time on average under the noise.
  WithoutMargin without_margin = WithoutMargin::kFail;
  // Computes the frontier in any case. Without it, only a target that needs it does.
  bool with_frontier = false;
  plan::FrontierPrecision precision = plan::FrontierPrecision::kStatedError;
  // Also plans a table of targets: 1 to 20 % slowdown, and least energy. It needs the frontier.
  bool with_table = false;
  int stops = 0;  // The most further slowdowns of the table, at even distances, for a slider.
};

struct JobPlans {
  std::optional<plan::Frontier> frontier;
  std::vector<PlannedTarget> targets;  // The first is no slowdown.
  PickedLimit limit;                   // Of all targets.
  std::optional<SwitchTradeoff> switch_tradeoff;
  std::optional<NoiseOutcome> noise;
  bool was_interrupted = false;

  // The plan of an asked target. Null if it has none.
  const PlannedTarget* Find(const plan::Target& target) const;
};

// The rules in force for a job whose file and hardware facts have the limits `of_job`. kPickShortly
// is the default, which they replace. A large job or a general graph then has no limit, and neither
// have the plans beside a trade-off.
ChangeRules RulesFor(ChangeRules asked, const few_switches::ChangeLimit& of_job,
                     const plan_file::PlannedJob& job, const schedule::InstructionGraph& graph);

// Plans the targets of a job, under rules that are in force for it (RulesFor).
//
// A request to `finish` ends the search with the best plans so far: without a limit of clock
// changes if none was picked yet, and without the frontier if no target needs it.
//
// kUnreachable: no plan keeps an asked target, its limit or its margin; the message has what can be
// met. kSystem: a stop was requested.
Result<JobPlans> PlanJob(const plan::Planner& planner, const Wishes& wishes, Progress& progress,
                         std::stop_token finish = {}, std::stop_token stop = {});

// The plan of a pipeline while it waits for a straggler, whose iteration takes `time`: least energy
// within this time. It keeps the limit of `changes`, the rules in force. If they pick the limit,
// its GPUs change their clocks no more often than the one that changes it most in `usual`, the plan
// without a straggler. `name` is its target in words. Fails as Planner::PlanForStraggler, and if a
// stop is requested.
Result<plan::Plan> PlanForStraggler(const plan::Planner& planner, const ChangeRules& changes,
                                    const plan::Evaluation& usual, Nanoseconds time,
                                    std::string name, const plan::SearchLimits& limits = {});

}  // namespace perseus::recipe
