// The plan for one target, with more and more effort.
//
//   TargetSearch search(planner, nullptr, {.kind = Target::Kind::kSlowdown});
//   Result<Plan> first = search.PlanWith({.effort = kFirstLook});   // Soon.
//   Result<Plan> better = search.PlanWith({.effort = 1});           // Goes on from there.
//
// Most targets are one deadline, and their search continues. An energy budget, a power cap, and
// every target under a switch latency need several plans, so their search begins again.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/plan/deadline_search.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"

namespace perseus::plan {

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
