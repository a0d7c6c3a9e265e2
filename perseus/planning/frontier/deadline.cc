#include "perseus/planning/frontier/deadline.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/base/stopped.h"
#include "perseus/base/units.h"
#include "perseus/planning/frontier/cost_scaling.h"

namespace perseus::frontier {
namespace {

using Index = std::size_t;

// Turns the problem of one deadline into a TimingProblem, and its solution back.
class DeadlineProblem {
 public:
  // Requires that the fastest schedule meets the deadline.
  DeadlineProblem(const Network& network, Nanoseconds deadline, Microwatts price_floor,
                  std::span<const Nanoseconds> near)
      : network_(network),
        deadline_(deadline),
        price_floor_(price_floor),
        order_(ArcsInOrder(network)),
        earliest_(EarliestTimes(network, Pace::kFastest)),
        latest_(At(network.nodes), deadline) {
    for (Index i = order_.size(); i-- > 0;) {
      const Arc& arc = network.arcs[At(order_[i])];
      Nanoseconds& tail = latest_[At(arc.tail)];
      tail = std::min(tail, latest_[At(arc.head)] - network.curve_of(arc).fastest());
    }
    latest_[At(network.source)] = 0;
    AddNodes(near);
    AddArcs();
  }

  // Starts from the flow of `near`.
  void StartFrom(const Solution& near) {
    problem_.guess_is_near = false;  // The flow itself shows how near it is.
    problem_.flow_guess.assign(problem_.arcs.size(), 0);
    for (Index i = 0; i < arc_of_.size(); ++i) {
      if (arc_of_[i] >= 0) problem_.flow_guess[At(arc_of_[i])] = near.flow[i];
    }
    if (!Forced(network_.sink)) {
      problem_.flow_guess.back() = std::max<Microwatts>(0, near.price - price_floor_);
    }
  }

  // Stops close to the optimum.
  void StopWithin(Femtojoules most_gap) { problem_.tolerance = most_gap; }
  // Stops when every schedule costs more than this.
  void StopAbove(Femtojoules most_cost) {
    // `problem_` leaves out the arcs without a choice, and the time of a forced sink.
    for (Index i = 0; i < arc_of_.size(); ++i) {
      if (arc_of_[i] >= 0) continue;
      const Arc& arc = network_.arcs[i];
      most_cost -=
          network_.curve_of(arc).ExtraEnergyAt(earliest_[At(arc.head)] - earliest_[At(arc.tail)]);
    }
    if (Forced(network_.sink)) most_cost -= price_floor_ * deadline_;
    problem_.most_cost = most_cost;
  }

  // Returns nullopt if `stop` is requested before the end.
  std::optional<Solution> Solve(const std::stop_token& stop) const {
    const std::optional<TimingSolution> found = SolveByCostScaling(problem_, stop);
    if (!found) return std::nullopt;
    const TimingSolution& solved = *found;
    Solution solution;
    for (Index v = 0; v < node_of_.size(); ++v) {
      solution.event_times.push_back(node_of_[v] == 0 ? earliest_[v]
                                                      : solved.times[At(node_of_[v])]);
    }
    for (Index i = 0; i < arc_of_.size(); ++i) {
      const Arc& arc = network_.arcs[i];
      const Nanoseconds length =
          solution.event_times[At(arc.head)] - solution.event_times[At(arc.tail)];
      solution.flow.push_back(arc_of_[i] < 0 ? network_.curve_of(arc).SlopeAfter(length)
                                             : solved.flow[At(arc_of_[i])]);
      solution.extra_energy += network_.curve_of(arc).ExtraEnergyAt(length);
    }
    if (Forced(network_.sink)) {
      BalanceForcedNodes(solution);
    } else {
      solution.price = price_floor_ + solved.flow.back();
    }
    return solution;
  }

 private:
  bool Forced(std::int32_t node) const { return earliest_[At(node)] == latest_[At(node)]; }
  bool Forced(const Arc& arc) const { return Forced(arc.tail) && Forced(arc.head); }
  // Appends a curve and returns the index of its first vertex.
  std::int32_t AppendCurve(const profile::Curve& curve, Nanoseconds shift) {
    const auto first = static_cast<std::int32_t>(problem_.durations.size());
    for (const Nanoseconds time : curve.times) problem_.durations.push_back(time + shift);
    problem_.slopes.insert(problem_.slopes.end(), curve.slopes.begin(), curve.slopes.end());
    problem_.slopes.push_back(0);
    return first;
  }

  void AddNodes(std::span<const Nanoseconds> near) {
    problem_.nodes = 1;
    problem_.guess_is_near = !near.empty();
    problem_.earliest = problem_.latest = problem_.guess = {0};
    // The first guess interpolates between the fastest and the slowest schedule. In practice, the
    // guess is close.
    const std::vector<Nanoseconds> slow = EarliestTimes(network_, Pace::kSlowest);
    const Index sink = At(network_.sink);
    const double part = static_cast<double>(deadline_ - earliest_[sink]) /
                        std::max(static_cast<double>(slow[sink] - earliest_[sink]), 1.0);
    for (std::int32_t v = 0; v < network_.nodes; ++v) {
      node_of_.push_back(Forced(v) ? 0 : problem_.nodes++);
      if (Forced(v)) continue;
      const auto later = part * static_cast<double>(slow[At(v)] - earliest_[At(v)]);
      problem_.earliest.push_back(earliest_[At(v)]);
      problem_.latest.push_back(latest_[At(v)]);
      const Nanoseconds guess = near.empty()
                                    ? earliest_[At(v)] + static_cast<Nanoseconds>(later)
                                    : std::clamp(near[At(v)], earliest_[At(v)], latest_[At(v)]);
      problem_.guess.push_back(guess);
    }
    problem_.supply.assign(At(problem_.nodes), 0);
  }

  void AddArcs() {
    std::vector<std::int32_t> first_vertex;
    for (const profile::Curve& curve : network_.curves)
      first_vertex.push_back(AppendCurve(curve, 0));
    arc_of_.assign(network_.arcs.size(), -1);
    for (const std::int32_t i : order_) {
      const Arc& arc = network_.arcs[At(i)];
      if (Forced(arc)) continue;
      const profile::Curve& curve = network_.curve_of(arc);
      // A forced event may be at any time, but the ground node that replaces it is at time 0.
      const Nanoseconds shift = (Forced(arc.tail) ? earliest_[At(arc.tail)] : 0) -
                                (Forced(arc.head) ? earliest_[At(arc.head)] : 0);
      arc_of_[At(i)] = static_cast<std::int32_t>(problem_.arcs.size());
      problem_.repair_order.push_back(arc_of_[At(i)]);
      problem_.arcs.push_back({node_of_[At(arc.tail)], node_of_[At(arc.head)],
                               shift == 0 ? first_vertex[At(arc.curve)] : AppendCurve(curve, shift),
                               static_cast<std::int32_t>(curve.slopes.size())});
    }
    if (Forced(network_.sink)) return;
    // This arc states that the sink is at most T after the source. Its flow is the price of time.
    const std::int32_t sink = node_of_[At(network_.sink)];
    problem_.arcs.push_back({sink, 0, AppendCurve(profile::Curve{{-deadline_}, {}, {}, 0}, 0), 0});
    problem_.supply[0] = price_floor_;
    problem_.supply[At(sink)] = -price_floor_;
  }

  // Every forced node is on a path of forced arcs from source to sink, all at their fastest. Sends
  // the excess of the forced nodes along such paths.
  void BalanceForcedNodes(Solution& solution) const {
    std::vector<Microwatts> excess(At(network_.nodes), 0);
    for (Index i = 0; i < network_.arcs.size(); ++i) {
      excess[At(network_.arcs[i].tail)] -= solution.flow[i];
      excess[At(network_.arcs[i].head)] += solution.flow[i];
    }
    excess[At(network_.source)] += price_floor_;
    excess[At(network_.sink)] -= price_floor_;
    const auto send = [&](std::int32_t i, Microwatts amount) {
      const Arc& arc = network_.arcs[At(i)];
      const bool critical = Forced(arc) && earliest_[At(arc.head)] - earliest_[At(arc.tail)] ==
                                               network_.curve_of(arc).fastest();
      if (!critical || amount <= 0) return;
      solution.flow[At(i)] += amount;
      excess[At(arc.tail)] -= amount;
      excess[At(arc.head)] += amount;
    };
    for (const std::int32_t i : order_) send(i, excess[At(network_.arcs[At(i)].tail)]);
    for (Index i = order_.size(); i-- > 0;) {
      send(order_[i], -excess[At(network_.arcs[At(order_[i])].head)]);
    }
    solution.price = price_floor_ + excess[At(network_.sink)];
  }

  const Network& network_;
  Nanoseconds deadline_;
  Microwatts price_floor_;
  std::vector<std::int32_t> order_;
  std::vector<Nanoseconds> earliest_;
  std::vector<Nanoseconds> latest_;  // [node of the network]; 0 at the source.

  TimingProblem problem_;
  // An event is forced if its earliest time is its latest time.
  std::vector<std::int32_t> node_of_;  // [node of the network]; 0 (the ground) if it is forced.
  std::vector<std::int32_t> arc_of_;   // [arc of the network]; -1 if both of its nodes are forced.
};

// The solver scales whole curves, up to their slowest vertex. The deadline does not matter.
Result<void> CheckRange(const Network& network, Nanoseconds longest) {
  if (longest <= std::numeric_limits<Nanoseconds>::max() / 8 / (network.nodes + 1)) return {};
  return Fail(
      "an iteration of {} instructions that may last {:.0f} s does not fit the 64 bits of the "
      "solver (check that all times are in seconds, or use fewer microbatches)",
      network.instructions, ToSeconds(longest));
}

Result<void> CheckReach(const Network& network, Nanoseconds deadline) {
  const Nanoseconds least = EarliestTimes(network, Pace::kFastest)[At(network.sink)];
  if (deadline >= least) return {};
  // Rounded up. So if a user asks for the time in the message, a plan exists.
  const Nanoseconds rounded = (least + kMicrosecond - 1) / kMicrosecond * kMicrosecond;
  return FailAs(ErrorKind::kUnreachable,
                "no plan can meet {:.6f} s: the least possible iteration time is {:.6f} s "
                "(allow at least that)",
                ToSeconds(deadline), ToSeconds(rounded));
}

}  // namespace

Result<Solution> SolveDeadline(const Network& network, Nanoseconds deadline, Microwatts price_floor,
                               const std::stop_token& stop, std::span<const Nanoseconds> near) {
  PERSEUS_RETURN_IF_ERROR(CheckReach(network, deadline));
  Solution solution;
  solution.event_times = EarliestTimes(network, Pace::kSlowest);
  const Nanoseconds slowest = solution.time(network);
  // At the slow end, every instruction runs at its cheapest, and time has no price.
  if (deadline >= slowest && price_floor == 0) {
    solution.flow.assign(network.arcs.size(), 0);
    return solution;
  }
  PERSEUS_RETURN_IF_ERROR(CheckRange(network, slowest));
  std::optional<Solution> solved =
      DeadlineProblem(network, std::min(deadline, slowest), price_floor, near).Solve(stop);
  if (!solved) return FailAsStopped();
  return *std::move(solved);
}

Result<Solution> ApproximateSchedule(const Network& network, Nanoseconds deadline,
                                     Microwatts price_floor, const Approximation& approximation,
                                     const std::stop_token& stop) {
  PERSEUS_RETURN_IF_ERROR(CheckReach(network, deadline));
  const Nanoseconds slowest = EarliestTimes(network, Pace::kSlowest)[At(network.sink)];
  PERSEUS_RETURN_IF_ERROR(CheckRange(network, slowest));
  const Solution* near = approximation.near;
  DeadlineProblem problem(network, std::min(deadline, slowest), price_floor,
                          near == nullptr ? std::span<const Nanoseconds>() : near->event_times);
  problem.StopWithin(approximation.most_gap);
  if (near != nullptr) problem.StartFrom(*near);
  if (approximation.most_cost) problem.StopAbove(*approximation.most_cost);
  std::optional<Solution> solved = problem.Solve(stop);
  if (!solved) return FailAsStopped();
  return *std::move(solved);
}

Result<Solution> ApproximateDeadline(const Network& network, Nanoseconds deadline,
                                     const Solution& near, Femtojoules most_gap,
                                     const std::stop_token& stop) {
  PERSEUS_RETURN_IF_ERROR(
      CheckRange(network, EarliestTimes(network, Pace::kSlowest)[At(network.sink)]));
  DeadlineProblem problem(network, deadline, 0, near.event_times);
  problem.StopWithin(most_gap);
  problem.StartFrom(near);
  std::optional<Solution> solved = problem.Solve(stop);
  if (!solved) return FailAsStopped();
  return *std::move(solved);
}

}  // namespace perseus::frontier
