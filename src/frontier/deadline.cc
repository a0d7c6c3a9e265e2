#include "perseus/frontier/deadline.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

namespace perseus {
namespace {

// Nanoseconds times (nodes + 1).
using Cost = std::int64_t;
constexpr Cost kNever = std::numeric_limits<Cost>::max() / 2;

constexpr Cost kEpsilonFactor = 8;
constexpr Cost kTryFinishBelow = 8;  // Nanoseconds of epsilon; flows are rarely optimal before.
constexpr int kFinishEffort = 100;   // Visits per node before an early attempt to finish gives up.
constexpr std::size_t kPathLength = 12;  // Of a partial augmentation.

struct FlowArc {
  std::int32_t tail;
  std::int32_t head;
  std::int32_t first_vertex;  // Into vertex_costs_ and levels_.
  std::int32_t slowest;       // Number of segments.
  std::int32_t vertex;        // levels[vertex] <= flow <= levels[vertex - 1].
  Microwatts flow = 0;
  std::int32_t residual[2] = {};  // Where its residual arcs stand in residuals_.
};

// One direction of an arc, as seen from the node it leaves; what the inner loops read. It may take
// flow, or give it back, as soon as the potential of its head is less than `limit` above that of
// its tail ("admissible").
struct ResidualArc {
  Cost limit = -kNever;           // -kNever where there is no room.
  Cost opposite_limit = -kNever;  // Of the same arc's other direction.
  std::int32_t head;
  std::int32_t code;  // 2 * arc, and 1 more for the direction in which flow falls.

  std::size_t arc() const { return static_cast<std::size_t>(code) / 2; }
  bool rises() const { return (code & 1) == 0; }
};

class CostScaling {
 public:
  CostScaling(const Network& network, Nanoseconds deadline, Microwatts price_floor);
  Solution Solve();

 private:
  using Index = std::size_t;
  static Index At(std::int32_t i) { return static_cast<Index>(i); }

  void AddArc(std::int32_t tail, std::int32_t head, std::int32_t curve_vertex,
              std::int32_t segments);
  void BuildResiduals();

  Cost Length(const FlowArc& arc) const {
    return potentials_[At(arc.head)] - potentials_[At(arc.tail)];
  }
  Microwatts LowestFlow(const FlowArc& arc, std::int32_t vertex) const {
    return levels_[At(arc.first_vertex + vertex)];
  }
  Microwatts HighestFlow(const FlowArc& arc, std::int32_t vertex) const {
    return vertex == 0 ? unbounded_ : levels_[At(arc.first_vertex + vertex - 1)];
  }
  Microwatts Room(const FlowArc& arc, bool rising) const;
  void Change(FlowArc& arc, Microwatts amount);
  void RefreshLimits(const FlowArc& arc);

  // How far the residual arc is from being admissible; negative where it is. About kNever where it
  // has no room.
  Cost Reluctance(const ResidualArc& residual, std::int32_t tail) const {
    return potentials_[At(residual.head)] - potentials_[At(tail)] - residual.limit;
  }
  std::span<const ResidualArc> ResidualsOf(std::int32_t node) const {
    return {residuals_.data() + first_residual_[At(node)],
            residuals_.data() + first_residual_[At(node) + 1]};
  }

  void Refine(Cost epsilon);
  void SatisfyConditions();
  void UpdateGlobally(Cost epsilon);
  void Discharge(std::int32_t node, Cost epsilon);
  bool ExtendPath(std::int32_t from, Cost epsilon);
  void PushAlongPath(std::int32_t from);
  void Activate(std::int32_t node);
  std::optional<std::vector<Nanoseconds>> ExactEventTimes(std::int64_t effort) const;

  Microwatts price_floor_;
  std::int32_t nodes_;
  std::int32_t source_;
  Cost scale_;
  Cost longest_arc_ = 1;
  Microwatts unbounded_ = 1;  // More than any optimal flow on one arc.
  std::vector<Cost> vertex_costs_;
  std::vector<Microwatts> levels_;  // Beside vertex_costs_: the slope after each vertex, at last 0.
  std::vector<FlowArc> arcs_;       // The network's, then the one from the sink back to the source.
  std::vector<std::int32_t> first_residual_;
  std::vector<ResidualArc> residuals_;  // By the node that they leave.

  std::vector<Cost> potentials_;
  std::vector<Microwatts> excess_;
  std::vector<std::int32_t> current_;  // Per node, the first residual arc that may be admissible.
  std::vector<std::int32_t> active_;   // Nodes with excess, first in first out.
  std::vector<std::uint8_t> is_active_;
  std::vector<ResidualArc> path_;
  std::int64_t relabels_since_update_ = 0;

  // Of UpdateGlobally: doubly linked lists of the nodes at each distance.
  std::vector<std::int32_t> bucket_, distance_, next_, previous_;
};

CostScaling::CostScaling(const Network& network, Nanoseconds deadline, Microwatts price_floor)
    : price_floor_(price_floor),
      nodes_(network.nodes),
      source_(network.source),
      scale_(network.nodes + 1) {
  std::vector<std::int32_t> first_vertex;
  for (const Curve& curve : network.curves) {
    first_vertex.push_back(static_cast<std::int32_t>(vertex_costs_.size()));
    for (const Nanoseconds time : curve.times) vertex_costs_.push_back(time * scale_);
    levels_.insert(levels_.end(), curve.slopes.begin(), curve.slopes.end());
    levels_.push_back(0);
    longest_arc_ = std::max(longest_arc_, curve.slowest() * scale_);
  }
  for (std::int32_t i = 0; i < network.operations; ++i) {
    const Curve& curve = network.curve_of(network.arcs[At(i)]);
    if (!curve.slopes.empty()) unbounded_ += curve.slopes.front();
  }
  unbounded_ += price_floor;
  arcs_.reserve(network.arcs.size() + 1);
  for (const Arc& arc : network.arcs) {
    AddArc(arc.tail, arc.head, first_vertex[At(arc.curve)],
           static_cast<std::int32_t>(network.curve_of(arc).slopes.size()));
  }
  // "The source comes no earlier than T before the sink": the arc whose flow is the price of time.
  vertex_costs_.push_back(-deadline * scale_);
  levels_.push_back(0);
  AddArc(network.sink, network.source, static_cast<std::int32_t>(vertex_costs_.size()) - 1, 0);
  BuildResiduals();

  // Start between the fastest and the slowest schedule: feasible, and in practice not far off.
  const std::vector<Nanoseconds> fast = EarliestTimes(network, Pace::kFastest);
  const std::vector<Nanoseconds> slow = EarliestTimes(network, Pace::kSlowest);
  const auto range = static_cast<double>(slow[At(network.sink)] - fast[At(network.sink)]);
  const double part = static_cast<double>(deadline - fast[At(network.sink)]) / std::max(range, 1.0);
  potentials_.resize(At(nodes_));
  for (Index v = 0; v < At(nodes_); ++v) {
    const auto later = part * static_cast<double>(slow[v] - fast[v]);
    potentials_[v] = (fast[v] + static_cast<Nanoseconds>(later)) * scale_;
  }
  excess_.assign(At(nodes_), 0);
  excess_[At(network.source)] += price_floor;
  excess_[At(network.sink)] -= price_floor;
  current_.assign(At(nodes_), 0);
  is_active_.assign(At(nodes_), 0);
  distance_.resize(At(nodes_));
  next_.resize(At(nodes_));
  previous_.resize(At(nodes_));
}

void CostScaling::AddArc(std::int32_t tail, std::int32_t head, std::int32_t curve_vertex,
                         std::int32_t segments) {
  FlowArc arc;
  arc.tail = tail;
  arc.head = head;
  arc.first_vertex = curve_vertex;
  arc.slowest = segments;
  arc.vertex = segments;
  arcs_.push_back(arc);
}

void CostScaling::BuildResiduals() {
  first_residual_.assign(At(nodes_) + 1, 0);
  for (const FlowArc& arc : arcs_) {
    ++first_residual_[At(arc.tail) + 1];
    ++first_residual_[At(arc.head) + 1];
  }
  std::partial_sum(first_residual_.begin(), first_residual_.end(), first_residual_.begin());
  residuals_.resize(2 * arcs_.size());
  std::vector<std::int32_t> slot(first_residual_.begin(), first_residual_.end() - 1);
  for (Index i = 0; i < arcs_.size(); ++i) {
    FlowArc& arc = arcs_[i];
    arc.residual[0] = slot[At(arc.tail)]++;
    arc.residual[1] = slot[At(arc.head)]++;
    residuals_[At(arc.residual[0])].head = arc.head;
    residuals_[At(arc.residual[0])].code = static_cast<std::int32_t>(2 * i);
    residuals_[At(arc.residual[1])].head = arc.tail;
    residuals_[At(arc.residual[1])].code = static_cast<std::int32_t>(2 * i + 1);
    RefreshLimits(arc);
  }
}

// How much flow can rise (or fall) before the limit changes.
Microwatts CostScaling::Room(const FlowArc& arc, bool rising) const {
  if (rising) {
    const Microwatts room = HighestFlow(arc, arc.vertex) - arc.flow;
    if (room > 0 || arc.vertex == 0) return room;
    return HighestFlow(arc, arc.vertex - 1) - arc.flow;
  }
  const Microwatts room = arc.flow - LowestFlow(arc, arc.vertex);
  if (room > 0 || arc.vertex == arc.slowest) return room;
  return arc.flow - LowestFlow(arc, arc.vertex + 1);
}

void CostScaling::RefreshLimits(const FlowArc& arc) {
  // At the end of a vertex's range the next vertex is the one that flow would enter.
  const std::int32_t up = arc.vertex - (arc.flow == HighestFlow(arc, arc.vertex) ? 1 : 0);
  const std::int32_t down = arc.vertex + (arc.flow == LowestFlow(arc, arc.vertex) ? 1 : 0);
  ResidualArc& rising = residuals_[At(arc.residual[0])];
  ResidualArc& falling = residuals_[At(arc.residual[1])];
  rising.limit = up >= 0 ? vertex_costs_[At(arc.first_vertex + up)] : -kNever;
  falling.limit = down <= arc.slowest ? -vertex_costs_[At(arc.first_vertex + down)] : -kNever;
  rising.opposite_limit = falling.limit;
  falling.opposite_limit = rising.limit;
}

// Requires 0 < amount <= Room(arc, true), or 0 < -amount <= Room(arc, false).
void CostScaling::Change(FlowArc& arc, Microwatts amount) {
  if (amount > 0 && arc.flow == HighestFlow(arc, arc.vertex)) --arc.vertex;
  if (amount < 0 && arc.flow == LowestFlow(arc, arc.vertex)) ++arc.vertex;
  arc.flow += amount;
  RefreshLimits(arc);
}

void CostScaling::SatisfyConditions() {
  for (FlowArc& arc : arcs_) {
    const Cost length = Length(arc);
    const Microwatts before = arc.flow;
    while (length < residuals_[At(arc.residual[0])].limit) Change(arc, Room(arc, true));
    while (-length < residuals_[At(arc.residual[1])].limit) Change(arc, -Room(arc, false));
    excess_[At(arc.tail)] -= arc.flow - before;
    excess_[At(arc.head)] += arc.flow - before;
  }
}

void CostScaling::Activate(std::int32_t node) {
  if (is_active_[At(node)] != 0) return;
  is_active_[At(node)] = 1;
  active_.push_back(node);
}

void CostScaling::Refine(Cost epsilon) {
  SatisfyConditions();
  UpdateGlobally(epsilon);
  active_.clear();
  for (std::int32_t v = 0; v < nodes_; ++v) {
    if (excess_[At(v)] > 0) Activate(v);
  }
  for (Index next = 0; next < active_.size(); ++next) {
    if (next > 4 * At(nodes_)) {  // Keeps the queue's memory in proportion to the nodes.
      active_.erase(active_.begin(), active_.begin() + static_cast<std::ptrdiff_t>(next));
      next = 0;
    }
    const std::int32_t node = active_[next];
    is_active_[At(node)] = 0;
    Discharge(node, epsilon);
  }
}

void CostScaling::Discharge(std::int32_t node, Cost epsilon) {
  while (excess_[At(node)] > 0) {
    if (ExtendPath(node, epsilon)) PushAlongPath(node);
    if (relabels_since_update_ > std::int64_t{2} * nodes_) UpdateGlobally(epsilon);
  }
}

// Leaves in path_ up to kPathLength admissible arcs from `from` on; relabels nodes that have none.
bool CostScaling::ExtendPath(std::int32_t from, Cost epsilon) {
  path_.clear();
  std::int32_t node = from;
  while (path_.size() < kPathLength) {
    const std::int32_t end = first_residual_[At(node) + 1];
    std::int32_t& next = current_[At(node)];
    while (next < end && Reluctance(residuals_[At(next)], node) >= 0) ++next;
    if (next < end) {
      path_.push_back(residuals_[At(next)]);
      node = path_.back().head;
      if (excess_[At(node)] < 0) break;
      continue;
    }
    // Raise the node just far enough for its least reluctant arc to become admissible.
    Cost least = kNever;
    for (const ResidualArc& residual : ResidualsOf(node)) {
      least = std::min(least, Reluctance(residual, node));
    }
    potentials_[At(node)] += least + epsilon;
    next = first_residual_[At(node)];
    ++relabels_since_update_;
    if (path_.empty()) continue;
    // Step back: the arc that led here may not be admissible any more.
    const FlowArc& arc = arcs_[path_.back().arc()];
    node = path_.back().rises() ? arc.tail : arc.head;
    path_.pop_back();
  }
  return !path_.empty();
}

void CostScaling::PushAlongPath(std::int32_t from) {
  std::int32_t node = from;
  for (const ResidualArc& step : path_) {
    FlowArc& arc = arcs_[step.arc()];
    const Microwatts amount = std::min(Room(arc, step.rises()), excess_[At(node)]);
    if (amount <= 0) break;
    Change(arc, step.rises() ? amount : -amount);
    excess_[At(node)] -= amount;
    excess_[At(step.head)] += amount;
    if (node != from && excess_[At(node)] > 0) Activate(node);
    node = step.head;
  }
  if (node != from && excess_[At(node)] > 0) Activate(node);
}

// Raises every potential by its distance, in units of epsilon, to the nearest node that lacks flow
// (Dijkstra with buckets), after which excess finds its way without local trial and error.
void CostScaling::UpdateGlobally(Cost epsilon) {
  relabels_since_update_ = 0;
  constexpr std::int32_t kFar = std::numeric_limits<std::int32_t>::max();
  const std::int64_t farthest = 2 * std::int64_t{nodes_};
  bucket_.assign(1, -1);
  distance_.assign(At(nodes_), kFar);
  const auto insert = [&](std::int32_t node, std::int32_t distance) {
    if (distance >= static_cast<std::int32_t>(bucket_.size())) bucket_.resize(At(distance) + 1, -1);
    std::int32_t& first = bucket_[At(distance)];
    next_[At(node)] = first;
    previous_[At(node)] = -1;
    if (first >= 0) previous_[At(first)] = node;
    first = node;
    distance_[At(node)] = distance;
  };
  const auto remove = [&](std::int32_t node) {
    const std::int32_t next = next_[At(node)];
    const std::int32_t previous = previous_[At(node)];
    (previous >= 0 ? next_[At(previous)] : bucket_[At(distance_[At(node)])]) = next;
    if (next >= 0) previous_[At(next)] = previous;
  };

  std::int32_t waiting = 0;  // Nodes with excess that have not been reached.
  for (std::int32_t v = 0; v < nodes_; ++v) {
    if (excess_[At(v)] < 0) insert(v, 0);
    if (excess_[At(v)] > 0) ++waiting;
  }
  std::int32_t reached = 0;
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(bucket_.size()) && waiting > 0; ++d) {
    reached = d;
    while (bucket_[At(d)] >= 0 && waiting > 0) {
      const std::int32_t node = bucket_[At(d)];
      remove(node);
      if (excess_[At(node)] > 0) --waiting;
      for (const ResidualArc& away : ResidualsOf(node)) {
        const std::int32_t other = away.head;
        // Of the residual arc from the other node to here.
        const Cost reluctance =
            potentials_[At(node)] - potentials_[At(other)] - away.opposite_limit;
        if (reluctance > kNever / 2) continue;
        const std::int64_t distance = d + (reluctance < 0 ? 0 : reluctance / epsilon + 1);
        if (distance > farthest || distance >= distance_[At(other)]) continue;
        if (distance_[At(other)] != kFar) remove(other);
        insert(other, static_cast<std::int32_t>(distance));
      }
    }
  }
  for (Index v = 0; v < At(nodes_); ++v) {
    potentials_[v] += std::min(distance_[v], reached) * epsilon;
  }
  std::copy(first_residual_.begin(), first_residual_.end() - 1, current_.begin());
}

// Integer event times that satisfy (1) and (2) exactly for the present flow, if there are any: the
// flow is then optimal. Raises times that are too early until nothing is (Bellman-Ford with a
// queue), starting close by. Gives up after `effort` visits.
std::optional<std::vector<Nanoseconds>> CostScaling::ExactEventTimes(std::int64_t effort) const {
  std::vector<Nanoseconds> times(At(nodes_));
  const Cost origin = potentials_[At(source_)];
  for (Index v = 0; v < At(nodes_); ++v) times[v] = (potentials_[v] - origin) / scale_;
  std::vector<std::int32_t> queue(At(nodes_));
  std::iota(queue.begin(), queue.end(), 0);
  std::vector<std::uint8_t> queued(At(nodes_), 1);
  for (Index next = 0; next < queue.size(); ++next) {
    if (--effort < 0) return std::nullopt;
    if (next > 4 * At(nodes_)) {
      queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(next));
      next = 0;
    }
    const std::int32_t node = queue[next];
    queued[At(node)] = 0;
    for (const ResidualArc& residual : ResidualsOf(node)) {
      if (residual.limit == -kNever) continue;
      const std::int32_t other = residual.head;
      const Nanoseconds earliest = times[At(node)] + residual.limit / scale_;
      if (times[At(other)] >= earliest) continue;
      times[At(other)] = earliest;
      if (queued[At(other)] == 0) {
        queued[At(other)] = 1;
        queue.push_back(other);
      }
    }
  }
  const Nanoseconds start = times[At(source_)];
  for (Nanoseconds& time : times) time -= start;
  return times;
}

Solution CostScaling::Solve() {
  Solution solution;
  for (Cost epsilon = longest_arc_;; epsilon = std::max<Cost>(1, epsilon / kEpsilonFactor)) {
    Refine(epsilon);
    if (epsilon > 1 && epsilon / scale_ >= kTryFinishBelow) continue;
    const std::int64_t effort = epsilon == 1 ? std::numeric_limits<std::int64_t>::max()
                                             : std::int64_t{kFinishEffort} * nodes_;
    if (auto times = ExactEventTimes(effort)) {
      solution.event_times = std::move(*times);
      break;
    }
  }
  for (const FlowArc& arc : arcs_) solution.flow.push_back(arc.flow);
  solution.price = price_floor_ + solution.flow.back();
  solution.flow.pop_back();
  return solution;
}

}  // namespace

Result<Solution> SolveDeadline(const Network& network, Nanoseconds deadline,
                               Microwatts price_floor) {
  const auto sink = static_cast<std::size_t>(network.sink);
  const Nanoseconds least = EarliestTimes(network, Pace::kFastest)[sink];
  if (deadline < least) {
    // Rounded up, so that whoever asks for what the message says gets it.
    constexpr Nanoseconds kMicrosecond = 1'000;
    const Nanoseconds digits = (least + kMicrosecond - 1) / kMicrosecond * kMicrosecond;
    return FailAs(ErrorKind::kUnreachable,
                  "no plan can meet {:.6f} s: the least possible iteration time is {:.6f} s",
                  ToSeconds(deadline), ToSeconds(digits));
  }
  Solution solution;
  solution.event_times = EarliestTimes(network, Pace::kSlowest);
  deadline = std::min(deadline, solution.event_times[sink]);
  if (deadline == solution.event_times[sink] && price_floor == 0) {  // Nothing needs to hurry.
    solution.flow.assign(network.arcs.size(), 0);
    return solution;
  }
  // Curves are scaled up to their slowest vertex, whatever the deadline.
  const Nanoseconds longest = solution.event_times[sink];
  if (longest > std::numeric_limits<Nanoseconds>::max() / 8 / (network.nodes + 1)) {
    return Fail(
        "an iteration of {} operations that may last {:.0f} s does not fit the solver's 64 bits "
        "(walk the whole frontier instead)",
        network.operations, ToSeconds(longest));
  }
  solution = CostScaling(network, deadline, price_floor).Solve();
  for (std::size_t i = 0; i < static_cast<std::size_t>(network.operations); ++i) {
    const Arc& arc = network.arcs[i];
    solution.extra_energy += network.curve_of(arc).ExtraEnergyAt(
        solution.event_times[static_cast<std::size_t>(arc.head)] -
        solution.event_times[static_cast<std::size_t>(arc.tail)]);
  }
  return solution;
}

}  // namespace perseus
