// Plans with more and more effort: for one deadline, and for one target.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/search/choice_search.h"
#include "perseus/planning/plan/target.h"

namespace perseus::plan {

// The plan for one deadline, with more and more effort.
//
//   DeadlineSearch search(planner, deadline, planner.blocking_price());
//   Result<Plan> first = search.PlanWith({.effort = kFirstLook});
//   Result<Plan> better = search.PlanWith({.effort = 3});   // Goes on, with three cycles.
//
// Between calls, it keeps the relaxed optimum and the best choices: a few numbers for each
// instruction.
class DeadlineSearch {
 public:
  // Keeps a reference to the planner. Computes nothing yet. `price_floor` as for Planner::Relax.
  DeadlineSearch(const Planner& planner, Nanoseconds deadline, Microwatts price_floor);
  DeadlineSearch(const DeadlineSearch&) = delete;
  DeadlineSearch& operator=(const DeadlineSearch&) = delete;

  // The plan without any switch latency, and without its evaluation. The bound counts the time of
  // the relaxed optimum. Never worse than the plan of an earlier call. Fails with kUnreachable
  // below least_time(), and with kSystem once a stop is requested.
  Result<Plan> PlanWith(const SearchLimits& limits);

  // The relaxed optimum. Requires a call of PlanWith that succeeded.
  const frontier::Solution& solution() const { return *solution_; }

 private:
  const Planner& planner_;
  Nanoseconds deadline_;
  Microwatts price_floor_;
  ChoiceGraph graph_;
  std::optional<frontier::Solution> solution_;
  std::optional<ChoiceSearch> search_;  // Of the solution.
};

// The plan for one target, with more and more effort.
//
//   TargetSearch search(planner, nullptr, {.kind = Target::Kind::kSlowdown});
//   Result<Plan> first = search.PlanWith({.effort = kFirstLook});   // Soon.
//   Result<Plan> better = search.PlanWith({.effort = 1});           // Goes on from there.
//
// Most targets are one deadline, and their search continues. An energy budget, a power cap, and
// every target under a switch latency need several plans, so their search begins again.
class TargetSearch {
 public:
  // Keeps a reference to the planner and to the frontier, which may be null as for PlanForTarget.
  TargetSearch(const Planner& planner, const Frontier* frontier, const Target& target);

  // The plan of PlanForTarget, and never a worse one than an earlier call returned. Fails as
  // PlanForTarget does.
  Result<Plan> PlanWith(const SearchLimits& limits);

 private:
  Result<Plan> Make(const SearchLimits& limits);

  const Planner& planner_;
  const Frontier* frontier_;
  Target target_;
  std::unique_ptr<DeadlineSearch> search_;  // If the target is one deadline.
  std::optional<Plan> best_;
};

}  // namespace perseus::plan
