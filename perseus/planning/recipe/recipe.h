// The recipe of a plan: all steps from the planner to a plan that GPUs follow.
//
// Every interface makes its plans here: `perseus plan` and `emulate`, Python, the C++ API, the
// server, and `tune`. If the wishes are the same, all interfaces give the same plans, bit for bit
// (tests/doors).
//
// METHOD
//   1. Targets: no slowdown, and the targets that the user asks for. A table adds slowdowns of 1 to
//      20 % and least energy.
//   2. Plans without a limit on clock changes (plan/target.h): first a short search for each
//      target, and then better plans until the effort is used. If the recipe picks the limit, it
//      improves only the plan that decides the limit. The next step starts from the other plans as
//      they are.
//   3. The limit. The user gives it, or the recipe picks the fewest changes that keep most of the
//      saving with no slowdown: 98 %, or 95 % if plans do not count what a change costs
//      (KeptShare). (If the plan with no slowdown saves nothing, the asked target with the least
//      time decides.) Why a limit: a plan with a clock for each instruction changes a clock up to
//      hundreds of times a second. Each change stops a real GPU for 0.1 ms, and no GPU follows them
//      all. So a picked limit stays within the rate of the hardware facts, or within
//      kAssumedChangesPerS. A search within the limit replaces each plan (few_switches.h). If this
//      keeps less than this part of the saving of another target, that target gets more changes
//      (RaiseLimits). For a given limit, the search goes through all smaller limits first,
//      beginning with 0. So a higher limit never needs more energy.
//   4. The margin. With noise, a plan with a limit of time gets faster options until its mean time
//      is within the target (noise_margin.h).
//   5. The bound. Each plan has the greatest known bound: from the relaxation, from the measured
//      options (discrete_bound.h), or from its limit.
//
// More time never needs more energy: if a plan is better for another target, it becomes the plan of
// that target. So a plan depends on all asked targets. But a table does not change the plans of
// asked targets (targets.h, Group). A plan of the table may be better for an asked target than the
// plan of that target. The result leaves out such a plan of the table, so that the result does not
// contradict itself.
//
// Thread safety: PlanJob may be called from several threads. It uses all cores.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/hardware_facts/assumed.h"
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
    kPick,   // The fewest changes an iteration that keep KeptShare of the saving, and that GPUs
             // can follow.
    kGiven,  // `most_changes`.
    kNone,   // Only `changes_per_s`, or a clock for each instruction.
  };
  Limit limit = Limit::kPickShortly;
  int most_changes = 0;        // kGiven only: in an iteration.
  bool with_tradeoff = false;  // Whether to compute the trade-off even if no limit is picked.
  // The greatest rate of one GPU. If a limit is given, it replaces the rate.
  std::optional<double> changes_per_s = {};

  // The limit that is known before planning: the given limit, or else the rate.
  few_switches::ChangeLimit known_limit() const;
  bool picks() const { return limit == Limit::kPickShortly || limit == Limit::kPick; }
  bool has_tradeoff() const { return picks() || with_tradeoff; }
  // Whether the user asks for the table of limits.
  bool shows_tradeoff() const { return limit == Limit::kPick || with_tradeoff; }
  // The greatest rate of the plans: that of the hardware facts, or the assumed one.
  double followed_per_s() const {
    return changes_per_s.value_or(hardware_facts::kAssumedChangesPerS);
  }
};

struct Wishes {
  std::vector<plan::Target> targets = {{}};  // At least one.
  int effort = plan::kUsualEffort;
  ChangeRules changes = {};
  std::optional<noise::Noise> noise = {};  // 0 means none.
  // Whether to compute the frontier even if no target needs it.
  bool with_frontier = false;
  plan::FrontierPrecision precision = plan::FrontierPrecision::kStatedError;
  // Whether to plan a table of additional targets, with the frontier.
  bool with_table = false;
  // At most this many additional slowdowns for the slider of the report (Group::kStop). They are
  // not rows of the table.
  int stops = 0;
};

struct JobPlans {
  std::optional<plan::Frontier> frontier;
  std::vector<PlannedTarget> targets;  // In the order of TargetsToPlan.
  PickedLimit limit;                   // The limit of all targets: picked or given.
  std::optional<SwitchTradeoff> switch_tradeoff;
  std::optional<NoiseOutcome> noise;
  bool was_interrupted = false;

  // The plan of an asked target. Null if the target has no plan.
  const PlannedTarget* Find(const plan::Target& target) const;
};

// Returns the rules for a job. `of_job` has the limits of its job file and its hardware facts. A
// limit of the file replaces kPickShortly. kGiven and kNone replace the rate.
ChangeRules RulesWith(ChangeRules asked, const few_switches::ChangeLimit& of_job);

// Returns the active rules for a job: the rules of RulesWith, with one exception. kPickShortly
// becomes kNone for a large job, for a general graph, and if the user asks for the trade-off.
ChangeRules RulesFor(ChangeRules asked, const few_switches::ChangeLimit& of_job,
                     const plan_file::PlannedJob& job, const schedule::InstructionGraph& graph);

// Plans the targets of a job. `wishes.changes` are the active rules (RulesFor).
//
// A request to `finish` ends the search with the best plans so far. If the search for a limit on
// clock changes has not ended by then, the plans have only a given limit or a rate, or no limit. If
// no target needs the frontier, it is left out.
//
// Fails with kUnreachable if an asked target has no plan with its limit and its margin. The message
// states what is possible. Fails with kSystem after a stop request.
Result<JobPlans> PlanJob(const plan::Planner& planner, const Wishes& wishes, Progress& progress,
                         std::stop_token finish = {}, std::stop_token stop = {});

// Returns the plan of a pipeline that waits for a straggler. An iteration of the straggler takes
// `time`, and the plan has the least energy within this time. The plan keeps the given limit or the
// rate of `changes` (the active rules). If the rules pick the limit, no GPU changes its clock more
// often than the busiest GPU of `usual`, the plan without a straggler. `name` describes the target
// of the plan. Fails as Planner::PlanForStraggler and KeepChangeLimit do.
Result<plan::Plan> PlanForStraggler(const plan::Planner& planner, const ChangeRules& changes,
                                    const plan::Evaluation& usual, Nanoseconds time,
                                    std::string name, const plan::SearchLimits& limits = {});

}  // namespace perseus::recipe
