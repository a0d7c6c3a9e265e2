// From an instruction graph to the frontier and to plans with certificates.
//
//   Result<Planner> planner = Planner::Create(graph, model);
//   Result<Frontier> frontier = planner->ComputeFrontier();
//   Result<Plan> plan = planner->PlanFor(planner->baseline().time);   // No slowdown.
//
// Thread safety: const methods may be called from several threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan/search/search_limits.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::plan {

// A point of the relaxed frontier. No plan that lasts `time` has less energy than `bound_j`, the
// energy of an iteration that lasts exactly `time`, with waiting.
struct FrontierPoint {
  Nanoseconds time = 0;
  double bound_j = 0;
  // The marginal price of time just above `time`, in watts: for each additional second, the
  // instructions save this energy. But for each additional second, the waiting costs pp_ranks *
  // blocking power. So while price_w is above this product, more time reduces the energy. After
  // that, more time costs energy.
  double price_w = 0;
  // The frontier is at most this far above `bound_j`, in J. 0: `bound_j` is exact.
  double error_j = 0;
};

// The whole frontier, fastest point first. The lower bound is convex, and linear between points. An
// exact frontier has every breakpoint. Otherwise, the frontier is between bound_j and bound_j +
// error_j, at the points and on the straight lines between the points.
struct Frontier {
  std::vector<FrontierPoint> points;
  std::size_t least_energy = 0;  // Index of the point of least energy: T*, always exact.
  double error = 0;              // The greatest error, as a fraction of the energy. 0: exact.

  bool exact() const { return error == 0; }

  Nanoseconds least_time() const { return points.front().time; }
  // Returns the bound for an iteration that may last up to `time`: E(min(time, T*)). Requires time
  // >= least_time().
  double BoundAt(Nanoseconds time) const;
  // Returns the bound for an iteration that lasts exactly `time`: beyond T*, energy rises with
  // time. Beyond the last point, returns the bound of the last point. Requires time >=
  // least_time().
  double BoundLasting(Nanoseconds time) const;
};

struct Plan {
  std::string target;        // In words: "no slowdown", "deadline 2.9 s".
  Nanoseconds deadline = 0;  // evaluation.time <= deadline, always.
  std::vector<int> options;  // For each instruction, an index into its option set.
  Evaluation evaluation;     // With the measured options, and the latency and cost of switches.
  // The certificate: no plan for this profile that meets the deadline has less energy. For a power
  // cap below the power of least energy: no plan that takes as long as this plan has less energy.
  double lower_bound_j = 0;

  // How far the plan may be from the best possible plan, as a fraction of the bound. Sums of
  // doubles are rounded, so a plan that attains its bound may appear below it. The gap is then 0.
  double gap() const { return std::max(0.0, evaluation.energy_j / lower_bound_j - 1); }
};

// How exact a frontier has to be.
enum class FrontierPrecision {
  kStatedError,  // kExact if the walk takes only seconds, otherwise kBounds.
  kExact,        // Every breakpoint.
  kBounds,       // An error of at most kFrontierError, even if the walk is fast.
};
// The greatest error of a frontier that is not exact, as a fraction of the least energy of an
// iteration.
inline constexpr double kFrontierError = 1e-4;

// Called from time to time, by one thread at a time, with the completed fraction (0 to 1).
using Progress = std::function<void(double)>;

class Relaxations;

class Planner {
 public:
  // What to do if no computation has two useful options, so that there is nothing to plan. Usually,
  // this is an error in the profile. But it is normal while measurements are still in progress.
  enum class FewOptions { kRefuse, kAccept };
  // Fails (kInput) if there is nothing to plan (with kRefuse), or if numbers overflow. The message
  // names an option set or the input that is too large. If an instruction has only one useful
  // option, every plan uses this option.
  static Result<Planner> Create(schedule::InstructionGraph graph, const ExecutionModel& model,
                                FewOptions few = FewOptions::kRefuse);

  const schedule::InstructionGraph& graph() const { return graph_; }
  const ExecutionModel& model() const { return model_; }
  const frontier::Network& network() const { return network_; }
  const Evaluation& baseline() const { return baseline_; }
  int pp_ranks() const { return static_cast<int>(graph_.pp_rank_orders.size()); }

  // The least possible time (T_min) of the relaxation. A plan of the fastest options attains it.
  Nanoseconds least_time() const { return least_time_; }
  // The time of the relaxation if every instruction uses its slowest useful option.
  Nanoseconds SlowestTime() const;

  // The power of all pp_ranks while they wait. It is rounded down to whole microwatts, so a bound
  // that uses this price of time is still a lower bound.
  Microwatts blocking_price() const;

  // Returns the optimum of the relaxation within the deadline: event times and prices, checked.
  // With blocking_price() as the price floor, the optimum has the least total energy. Fails with
  // kUnreachable if `deadline` is below least_time(), and with kSystem after a stop request.
  Result<frontier::Solution> Relax(Nanoseconds deadline, Microwatts price_floor,
                                   const std::stop_token& stop = {}) const;

  // Returns every breakpoint, by the walk (frontier/walk.h). If the walk would take too long and
  // `precision` permits it, returns bounds of the frontier instead. They come from a few dozen
  // deadlines (frontier/enclosure.h). The limit of the walk is a number of operations, so it is the
  // same on every machine. Fails (kSystem) after a stop request.
  Result<Frontier> ComputeFrontier(
      const Progress& progress = {}, const std::stop_token& stop = {},
      FrontierPrecision precision = FrontierPrecision::kStatedError) const;

  // Whether ComputeFrontier probably completes the walk. False for large graphs.
  bool ProbablyWalks() const;

  // Returns the point of the exact frontier with the least energy + price_w * time, by solving one
  // deadline. Requires price_w >= 0. The `price_w` of the result is 0.
  Result<FrontierPoint> CheapestPoint(double price_w, const std::stop_token& stop = {}) const;

  // Returns the plan of least energy that takes no longer than `deadline`. The plan is the relaxed
  // optimum, rounded to measured options, and improved by a search that uses the remaining slack
  // (choice_search.h). With a switch latency or a switch cost, see switching.h. Fails with
  // kUnreachable if `deadline` is below least_time(). With a latency or cost, also fails with
  // kUnreachable if the search finds no plan that meets the deadline.
  Result<Plan> PlanFor(Nanoseconds deadline, const SearchLimits& limits = {}) const;

  // Returns the lower bound of PlanFor without the plan, in a fraction of the time: no plan that
  // meets the deadline has less energy (in joules). Fails with kUnreachable if `deadline` is below
  // least_time().
  Result<double> BoundFor(Nanoseconds deadline) const;

  // Returns the plan of least energy for an iteration that lasts `time` in any case, because
  // another pipeline needs this time (a straggler, T'). A pipeline that ends earlier waits until
  // `time`. So more time saves energy up to the slow end of the frontier. (PlanFor stops at T*: an
  // iteration that may end early has the least energy there.) `lower_bound_j` and EnergyUntil(time)
  // include the waiting until `time`. Fails as PlanFor does. With a switch latency, the search for
  // fewer switches is the search of PlanFor, which stops at T*.
  Result<Plan> PlanForStraggler(Nanoseconds time, const SearchLimits& limits = {}) const;

  // The plan that PlanFor would return if switches were free. It has no evaluation.
  Result<Plan> PlanWithoutLatency(Nanoseconds deadline, const SearchLimits& limits) const;

  // Returns the plan with its evaluation on the model. Fails (kSystem) if it misses its deadline.
  Result<Plan> Evaluated(Plan plan) const;

  // The bound (in joules) of a relaxed optimum that lasts `time` and has this extra energy.
  double BoundOf(Nanoseconds time, Femtojoules extra_energy) const;

  // Returns the energy of an iteration (in joules) in which all pp_ranks wait until `time`.
  // Requires that `time` is at least the time of the evaluation.
  double EnergyUntil(Nanoseconds time, const Evaluation& evaluation) const;

 private:
  Planner() = default;
  Frontier FrontierOf(const std::vector<frontier::Breakpoint>& breakpoints) const;
  // Returns nullopt if the walk is slow and `precision` does not require it.
  Result<std::optional<Frontier>> WalkFrontier(FrontierPrecision precision,
                                               const Progress& progress,
                                               const std::stop_token& stop) const;
  Result<std::vector<frontier::Solution>> ExactPoints(const std::stop_token& stop) const;
  Result<Frontier> EncloseFrontier(const Progress& progress, const std::stop_token& stop) const;

  schedule::InstructionGraph graph_;
  ExecutionModel model_;
  frontier::Network network_;
  Evaluation baseline_;
  Nanoseconds least_time_ = 0;
  double least_effective_energy_j_ = 0;       // Sum over instructions, each at its least energy.
  std::shared_ptr<Relaxations> relaxations_;  // Copies of a planner share it.
};

// The time range of each instruction if all other instructions run at their fastest times. In every
// plan within the deadline, instruction i starts at earliest_starts[i] or later and ends at
// latest_ends[i] or earlier.
struct InstructionWindows {
  std::vector<Nanoseconds> earliest_starts;  // [instruction]
  std::vector<Nanoseconds> latest_ends;      // [instruction]
};
// Requires that the fastest schedule meets the deadline.
InstructionWindows FindWindows(const Planner& planner, Nanoseconds deadline);

}  // namespace perseus::plan
