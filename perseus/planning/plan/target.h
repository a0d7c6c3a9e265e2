// Targets: the conditions that a plan has to meet, and the search for a plan that meets them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "perseus/base/number_range.h"
#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/search/choice_search.h"

namespace perseus::plan {

struct Target {
  enum class Kind {
    kSlowdown,      // At most `value` percent slower than all instructions at maximum frequency.
    kDeadline,      // At most `value` seconds.
    kEnergyBudget,  // The fastest plan of at most `value` joules an iteration.
    kPowerCap,      // The fastest plan of at most `value` watts on average.
    kMinEnergy,     // The plan of least energy, with any time.
    kEdp,           // The plan of least energy * time.
    kPrice,         // Least cost: `value` dollars per kWh, `gpu_hour` dollars per GPU-hour.
  };
  Kind kind = Kind::kSlowdown;
  double value = 0;
  double gpu_hour = 0;  // kPrice only: dollars for an hour of one GPU.
  int gpus = 1;         // kPrice only: GPUs of the pipeline.
  // kPowerCap only: if no plan is found within the cap, the plan with the least power that is found
  // is the plan for this target.
  bool or_nearest = false;
};

// "no slowdown", "5 % slowdown", "deadline 2.9 s", "energy budget 5000 J", "power cap 1200 W",
// "least energy", "least energy-delay product", "least cost at 0.12 $/kWh and 2 $/GPU-hour".
std::string Describe(const Target& target);

// Formats a value above 0 in six digits, rounded up. So if a message suggests this value, a plan
// exists for it.
std::string RoundedUp(double value);

// The fraction of the time that a job has to pause for a mean power of `cap_w`. It draws
// `running_w` while it runs, and `waiting_w` while it pauses. From 0 to 1. Requires running_w >
// waiting_w.
double PauseFor(double cap_w, double running_w, double waiting_w);

// The cost that the best plan for a target minimizes: seconds (kEnergyBudget, kPowerCap),
// joule-seconds (kEdp), dollars (kPrice), or joules (all other kinds).
double CostOf(const Target& target, const Evaluation& evaluation);

// Whether an iteration keeps an energy budget or a power cap. True for all other kinds.
// (`or_nearest` does not matter.)
bool IsWithin(const Target& target, const Evaluation& evaluation);

// Checks a finished plan: evaluates its options again, and fails if they miss the deadline of the
// plan or the target. In that case, the plan comes from an error in Perseus (kSystem), and must not
// be used.
Result<void> CheckKeeps(const Planner& planner, const Target& target, const Plan& plan);

// Whether PlanForTarget needs the frontier for this kind.
bool NeedsFrontier(Target::Kind kind);

// Whether a target of this kind limits the time of an iteration: a slowdown or a deadline.
bool LimitsTime(Target::Kind kind);

// Whether a target of this kind is equivalent to one deadline: all kinds but kEnergyBudget and
// kPowerCap.
bool IsOneDeadline(Target::Kind kind);

// Returns the deadline that the target is equivalent to. Requires IsOneDeadline(target.kind). If
// `frontier` is null, fails in the same cases as PlanForTarget. Also fails if the deadline is out
// of range.
Result<Nanoseconds> DeadlineOf(const Planner& planner, const Frontier* frontier,
                               const Target& target);

// For file names: "no-slowdown", "slowdown-5", "deadline-2.9s", "least-energy".
std::string Slug(const Target& target);

// The range of `value` (and of `gpu_hour`).
NumberRange ValueRange(Target::Kind kind);

// Returns the best plan for the target. A power cap below the power of the plan of least energy
// gets a slower plan: between least energy and the slow end of the frontier, it comes from the same
// search, and beyond, from slow_plans.h. If the target is impossible, the kUnreachable error
// contains the least possible time, energy or power. `frontier` may be null for kSlowdown,
// kDeadline and kMinEnergy. (For kMinEnergy, the solver for one deadline then finds the plan.) The
// other kinds need a frontier: without it, they fail with a remedy.
Result<Plan> PlanForTarget(const Planner& planner, const Frontier* frontier, const Target& target,
                           const SearchLimits& limits = {});

// Chooses the best plan for a target among plans that were made for several targets.
//
// The search for a plan is not exact, especially with a switch latency. So a plan for another
// target may be better for this target: a plan for a tighter deadline is also a plan for a looser
// one. For example, the plan of least energy-delay product may be one that was made for a slowdown.
// If a command makes several plans, it calls BestPlan for each of them. Then the results never
// contradict each other: more time never needs more energy.
//
// Returns `own`, which was made for `target`, or a plan of `others` that meets the target at a
// lower cost. The cost is the energy, the time (kEnergyBudget, kPowerCap), the energy-delay
// product, or the money. At equal cost, returns the plan with less energy. If the energy is equal,
// too, returns `own`. The result has a certificate for the target:
//   - with a deadline: the deadline and the bound of `own`;
//   - for kMinEnergy: the bound of `own`, which is valid at any time;
//   - otherwise: the deadline and the bound that the plan was made with.
Plan BestPlan(const Target& target, const Plan& own, std::span<const Plan> others);

// Searches for the plan for one deadline, with more and more effort.
//
//   DeadlineSearch search(planner, deadline, planner.blocking_price());
//   Result<Plan> first = search.PlanWith({.effort = kFirstLook});
//   Result<Plan> better = search.PlanWith({.effort = 3});   // Continues, with three cycles.
//
// Between calls, the object stores the relaxed optimum and the best choices: a few numbers for each
// instruction.
class DeadlineSearch {
 public:
  // Keeps a reference to the planner. Computes nothing yet. `price_floor` is as for Planner::Relax.
  DeadlineSearch(const Planner& planner, Nanoseconds deadline, Microwatts price_floor);
  DeadlineSearch(const DeadlineSearch&) = delete;
  DeadlineSearch& operator=(const DeadlineSearch&) = delete;

  // Returns the plan for free switches, without its evaluation. The bound is for the time of the
  // relaxed optimum. The plan is never worse than the plan of an earlier call. Fails with
  // kUnreachable if the deadline is below least_time(), and with kSystem after a stop request.
  Result<Plan> PlanWith(const SearchLimits& limits);

  // The relaxed optimum. Requires a call of PlanWith that succeeded.
  const frontier::Solution& solution() const { return *solution_; }

 private:
  const Planner& planner_;
  Nanoseconds deadline_;
  Microwatts price_floor_;
  ChoiceGraph graph_;
  std::optional<frontier::Solution> solution_;
  std::optional<ChoiceSearch> search_;  // Starts from solution_.
};

// Searches for the plan for one target, with more and more effort.
//
//   TargetSearch search(planner, nullptr, {.kind = Target::Kind::kSlowdown});
//   Result<Plan> first = search.PlanWith({.effort = kFirstLook});   // Fast.
//   Result<Plan> better = search.PlanWith({.effort = 1});           // Continues.
//
// Most targets are equivalent to one deadline, and their search continues. An energy budget, a
// power cap, and every target with a switch latency need several plans, so each call starts a new
// search.
class TargetSearch {
 public:
  // Keeps a reference to the planner and to the frontier, which may be null as for PlanForTarget.
  TargetSearch(const Planner& planner, const Frontier* frontier, const Target& target);

  // Returns the plan of PlanForTarget, and never a worse one than an earlier call. Fails as
  // PlanForTarget does.
  Result<Plan> PlanWith(const SearchLimits& limits);

 private:
  Result<Plan> Make(const SearchLimits& limits);

  const Planner& planner_;
  const Frontier* frontier_;
  Target target_;
  std::unique_ptr<DeadlineSearch> search_;  // Null unless the target is equivalent to one deadline.
  std::optional<Plan> best_;
};

}  // namespace perseus::plan
