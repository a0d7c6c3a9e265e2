// From an instruction graph to the frontier and to plans with certificates.
//
//   Result<Planner> planner = Planner::Create(graph, model);
//   Result<Frontier> frontier = planner->ComputeFrontier();
//   Result<Plan> plan = planner->PlanFor(planner->baseline().time);   // No slowdown.
//
// Thread safety: const methods may be called from several threads.
#pragma once

#include <algorithm>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/discretize.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::plan {

// A point of the relaxed frontier: no plan whatsoever that lasts `time` costs less than
// `bound_j`. The energy is that of an iteration that lasts exactly `time`, waiting included.
struct FrontierPoint {
  Nanoseconds time = 0;
  double bound_j = 0;
  // Marginal price of time: what instructions save per second that the iteration is given, just
  // above `time` (in watts). Waiting for that second costs ranks * blocking power, so energy falls
  // with time while price_w exceeds that, and rises after.
  double price_w = 0;
};

// The whole frontier, fastest point first: convex, and linear between points.
struct Frontier {
  std::vector<FrontierPoint> points;
  std::size_t least_energy = 0;  // Index of the point of least energy: T*.

  Nanoseconds least_time() const { return points.front().time; }
  // The bound for an iteration that may last up to `time`: E at min(time, T*). Requires
  // time >= least_time().
  double BoundAt(Nanoseconds time) const;
};

struct Plan {
  std::string target;        // What was asked for, in words: "no slowdown", "deadline 2.9 s".
  Nanoseconds deadline = 0;  // evaluation.time <= deadline, always.
  std::vector<int> options;  // Per instruction, an index into its option set.
  Evaluation evaluation;     // On the measured options, under the model's switching latency.
  // The certificate: no plan for this profile that meets the deadline costs less.
  double lower_bound_j = 0;

  // How far the plan may be from the best there is, as a fraction of the bound. At least 0: a plan
  // that attains its bound may seem below it by the rounding of sums of doubles.
  double gap() const { return std::max(0.0, evaluation.energy_j / lower_bound_j - 1); }
};

// Called now and then with the part that is done, from 0 to 1.
using Progress = std::function<void(double)>;

class Planner {
 public:
  // A computation of which one option alone is useful: mostly a profile's fault, that somebody can
  // mend; of measurements that are still being made, it just stays at that option.
  enum class FewOptions { kRefuse, kAccept };
  // Fails (kInput) if an option set has too few useful options, naming it, or if numbers overflow,
  // naming the input that is too large.
  static Result<Planner> Create(schedule::InstructionGraph graph, const ExecutionModel& model,
                                FewOptions few = FewOptions::kRefuse);

  const schedule::InstructionGraph& graph() const { return graph_; }
  const ExecutionModel& model() const { return model_; }
  const frontier::Network& network() const { return network_; }
  const Evaluation& baseline() const { return baseline_; }
  int ranks() const { return static_cast<int>(graph_.rank_orders.size()); }

  // T_min of the relaxation, which a plan of the fastest options attains.
  Nanoseconds least_time() const { return least_time_; }

  // Every breakpoint, by the walk (frontier/walk.h). Fails (kSystem) once `stop` is requested.
  Result<Frontier> ComputeFrontier(const Progress& progress = {},
                                   const std::stop_token& stop = {}) const;

  // The plan of least energy that takes no longer than `deadline`: relaxed optimum, rounded to
  // measured options, slack reclaimed (discretize.h); under a switching latency, see switching.h.
  // Fails with kUnreachable below least_time(), or if no plan is found that meets the deadline in
  // spite of the latency. kFirstLook takes a tenth of the time, for who needs a plan at once.
  Result<Plan> PlanFor(Nanoseconds deadline, const SearchLimits& limits = {}) const;

  // What no plan that meets the deadline costs less than (in joules): PlanFor's certificate without
  // the plan, in a fraction of the time. Fails with kUnreachable below least_time().
  Result<double> BoundFor(Nanoseconds deadline) const;

  // The plan of least energy of an iteration that lasts `time` whatever this pipeline does, because
  // another one is so slow: T' of a straggler. Whoever is done earlier waits until then, so more
  // time is worth taking up to the frontier's slow end, where PlanFor stops at T* already: T* is
  // where an iteration that may end is cheapest. `lower_bound_j` and EnergyUntil(time) count the
  // waiting until `time`. Fails as PlanFor does. Under a switching latency the search for fewer
  // switches is PlanFor's, which ends at T*.
  Result<Plan> PlanForStraggler(Nanoseconds time, const SearchLimits& limits = {}) const;

  // The same as PlanFor if switches took no time. The plan lacks its evaluation.
  Result<Plan> PlanWithoutLatency(Nanoseconds deadline, const SearchLimits& limits) const;

  // What an iteration costs that goes on until `time`, at least its own: all ranks wait (in
  // joules).
  double EnergyUntil(Nanoseconds time, const Evaluation& evaluation) const;

 private:
  Planner() = default;
  double BoundOf(Nanoseconds time, Femtojoules extra_energy) const;
  // Of least extra energy + price_floor * time within the deadline. Lacks its evaluation and bound;
  // `solution` is the relaxed optimum behind it.
  struct Discretized {
    Plan plan;
    frontier::Solution solution;
  };
  Result<frontier::Solution> Relax(Nanoseconds deadline, Microwatts price_floor,
                                   const std::stop_token& stop) const;
  Result<Discretized> Solve(Nanoseconds deadline, Microwatts price_floor,
                            const SearchLimits& limits) const;
  Result<Plan> Evaluated(Plan plan) const;

  schedule::InstructionGraph graph_;
  ExecutionModel model_;
  frontier::Network network_;
  Evaluation baseline_;
  Nanoseconds least_time_ = 0;
  double least_effective_energy_j_ = 0;  // Sum over instructions, each at its cheapest.
};

}  // namespace perseus::plan
