#include "perseus/planning/frontier/cost_scaling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

#include "perseus/base/index.h"

namespace perseus::frontier {
namespace {

// A time in nanoseconds, multiplied by (nodes + 1).
using Cost = std::int64_t;
constexpr Cost kNever = std::numeric_limits<Cost>::max() / 2;
// More than any flow.
constexpr Microwatts kUnboundedFlow = Microwatts::Max() / 2;

constexpr int kLogFactor = 4;                // Each phase divides epsilon by 2^4.
constexpr std::size_t kPathLength = 8;       // The longest partial augmentation, in arcs.
constexpr int kLogNear = 12;                 // A near guess divides the first epsilon by 2^12.
constexpr int kLogUnbalanced = 8;            // An unbalanced flow guess divides it by 2^8.
constexpr Cost kFinishBelow = 2048;          // The epsilon, in ns, at which Finisher starts.
constexpr std::int64_t kFinishEffort = 500;  // Arcs for each node that Finisher may examine.

struct Node {
  Cost potential = 0;
  Microwatts excess = 0;
  std::int32_t first_residual = 0;
  std::int32_t current = 0;   // The first of its residual arcs that may be admissible.
  std::int32_t distance = 0;  // Used by UpdateGlobally.
  bool is_active = false;
};

struct FlowArc {
  std::int32_t tail;
  std::int32_t head;
  std::int32_t first_vertex;
  std::int32_t slowest;  // The number of segments.
  std::int32_t vertex;   // slope after `vertex` <= flow <= slope before `vertex`.
  Microwatts flow = 0;
  std::int32_t residual[2] = {};  // The two directions of the arc, as indices into residuals_.
};

// One direction of an arc, in which the flow of the arc rises or falls. It has only the data of the
// inner loops. It is admissible if (the potential of its head) - (the potential of its tail) is
// below its limit.
struct ResidualArc {
  std::int32_t limit = 0;     // Index into limits_; 0 if the flow has no room.
  std::int32_t opposite = 0;  // The limit of the other direction of the same arc.
  std::int32_t head = 0;
  std::int32_t code = 0;  // 2 * arc, plus 1 for the direction in which the flow falls.

  std::size_t arc() const { return static_cast<std::size_t>(code) / 2; }
  bool rises() const { return (code & 1) == 0; }
};

class CostScaling {
 public:
  CostScaling(const TimingProblem& problem, const std::stop_token& stop);
  std::optional<TimingSolution> Solve();

 private:
  using Index = std::size_t;

  // Indices into limits_ for a vertex. A flow just above the vertex requires a length of at least
  // the rising limit. A flow just below the vertex requires that minus the length is at least the
  // falling limit.
  static std::int32_t RisingLimit(std::int32_t vertex) { return 2 * vertex + 1; }
  static std::int32_t FallingLimit(std::int32_t vertex) { return 2 * vertex + 2; }
  Cost FastestLength(const FlowArc& arc) const {
    return limits_[At(RisingLimit(arc.first_vertex))];
  }
  Cost Length(const FlowArc& arc) const {
    return nodes_[At(arc.head)].potential - nodes_[At(arc.tail)].potential;
  }
  Microwatts LowestFlow(const FlowArc& arc, std::int32_t vertex) const {
    return problem_.slopes[At(arc.first_vertex + vertex)];
  }
  Microwatts HighestFlow(const FlowArc& arc, std::int32_t vertex) const {
    return vertex == 0 ? kUnboundedFlow : problem_.slopes[At(arc.first_vertex + vertex - 1)];
  }
  Microwatts Room(const FlowArc& arc, bool rising) const;
  bool Rises(const ResidualArc& residual) const { return residual.rises() != mirrored_; }
  Microwatts Room(const ResidualArc& residual) const {
    return Room(arcs_[residual.arc()], Rises(residual));
  }
  void Change(FlowArc& arc, Microwatts amount);
  void Push(const ResidualArc& residual, Microwatts amount) {
    Change(arcs_[residual.arc()], Rises(residual) ? amount : -amount);
  }
  void RefreshLimits(const FlowArc& arc);
  std::span<const ResidualArc> ResidualsOf(std::int32_t node) const {
    return {residuals_.data() + nodes_[At(node)].first_residual,
            residuals_.data() + nodes_[At(node) + 1].first_residual};
  }
  // The reduced cost of a residual arc. It is negative if the arc is admissible, and about kNever
  // if the arc has no room.
  Cost Reluctance(const ResidualArc& residual, Cost tail_potential) const {
    return nodes_[At(residual.head)].potential - tail_potential - limits_[At(residual.limit)];
  }

  void BuildResiduals();
  void Mirror();
  void MakeFeasible();
  void SatisfyConditions();
  void Refine(int log_epsilon);
  void UpdateGlobally(int log_epsilon);
  bool Prepare();
  void Discharge(std::int32_t node, int log_epsilon);
  bool ExtendPath(std::int32_t from, int log_epsilon);
  void PushAlongPath(std::int32_t from);
  void Activate(std::int32_t node);
  void StartFromGuess();
  int FirstLogEpsilon() const;
  int LogEpsilonFor(Femtojoules gap) const;
  Nanoseconds WholeTime(std::int32_t node) const;
  Femtojoules Gap() const;
  Femtojoules CostOfSchedule() const;
  std::optional<TimingSolution> SolveExactly(int log_epsilon);
  TimingSolution Finished(std::vector<Nanoseconds> times) const;

  class Finisher;

  const TimingProblem& problem_;
  const std::stop_token& stop_;
  Cost scale_;
  // [0] is the limit of residual arcs without room. After it, each vertex has two limits: its
  // duration, and minus its duration.
  std::vector<Cost> limits_ = {-kNever};
  std::vector<FlowArc> arcs_;
  std::vector<Node> nodes_;             // One additional node at the end, for first_residual.
  std::vector<ResidualArc> residuals_;  // Ordered by the node that they leave.

  bool mirrored_ = false;
  std::vector<std::int32_t> active_;  // Nodes with an excess, first in, first out.
  std::vector<ResidualArc> path_;
  std::int64_t relabels_since_update_ = 0;

  // Used by UpdateGlobally. Each distance has a linked list of nodes. If the search found a shorter
  // path to a node, the node may still be in the list of a larger distance, too.
  struct Entry {
    std::int32_t node;
    std::int32_t next;
  };
  std::vector<std::int32_t> bucket_;
  std::vector<Entry> entries_;
};

CostScaling::CostScaling(const TimingProblem& problem, const std::stop_token& stop)
    : problem_(problem), stop_(stop), scale_(problem.nodes + 1), nodes_(At(problem.nodes) + 1) {
  for (const Nanoseconds duration : problem.durations) {
    limits_.push_back(duration * scale_);
    limits_.push_back(-duration * scale_);
  }
  for (const TimingProblem::Arc& arc : problem.arcs) {
    arcs_.push_back({arc.tail, arc.head, arc.first_vertex, arc.segments, arc.segments});
  }
  BuildResiduals();
  for (Index v = 0; v < At(problem.nodes); ++v) {
    nodes_[v].potential = problem.guess[v] * scale_;
    nodes_[v].excess = problem.supply[v];
  }
  if (!problem.flow_guess.empty()) StartFromGuess();
}

void CostScaling::StartFromGuess() {
  for (Index i = 0; i < arcs_.size(); ++i) {
    FlowArc& arc = arcs_[i];
    arc.flow = problem_.flow_guess[i];
    while (arc.flow > HighestFlow(arc, arc.vertex)) --arc.vertex;
    RefreshLimits(arc);
    nodes_[At(arc.tail)].excess -= arc.flow;
    nodes_[At(arc.head)].excess += arc.flow;
  }
}

void CostScaling::BuildResiduals() {
  for (const FlowArc& arc : arcs_) {
    ++nodes_[At(arc.tail) + 1].first_residual;
    ++nodes_[At(arc.head) + 1].first_residual;
  }
  for (Index v = 0; v + 1 < nodes_.size(); ++v) {
    nodes_[v + 1].first_residual += nodes_[v].first_residual;
    nodes_[v].current = nodes_[v].first_residual;  // Here, this is the next free slot.
  }
  residuals_.resize(2 * arcs_.size());
  for (Index i = 0; i < arcs_.size(); ++i) {
    FlowArc& arc = arcs_[i];
    const auto code = static_cast<std::int32_t>(2 * i);
    arc.residual[0] = nodes_[At(arc.tail)].current++;
    arc.residual[1] = nodes_[At(arc.head)].current++;
    residuals_[At(arc.residual[0])] = {0, 0, arc.head, code};
    residuals_[At(arc.residual[1])] = {0, 0, arc.tail, code + 1};
    RefreshLimits(arc);
  }
}

// The amount by which the flow can rise (or fall) before the limit changes.
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
  // If the flow is at the end of the range of its vertex, more flow is in the range of the next
  // vertex.
  const std::int32_t up = arc.vertex - (arc.flow == HighestFlow(arc, arc.vertex) ? 1 : 0);
  const std::int32_t down = arc.vertex + (arc.flow == LowestFlow(arc, arc.vertex) ? 1 : 0);
  ResidualArc& rising = residuals_[At(arc.residual[0])];
  ResidualArc& falling = residuals_[At(arc.residual[1])];
  rising.limit = up >= 0 ? RisingLimit(arc.first_vertex + up) : 0;
  falling.limit = down <= arc.slowest ? FallingLimit(arc.first_vertex + down) : 0;
  if (mirrored_) std::swap(rising.limit, falling.limit);
  rising.opposite = falling.limit;
  falling.opposite = rising.limit;
}

// Requires 0 < amount <= Room(arc, true), or 0 < -amount <= Room(arc, false).
void CostScaling::Change(FlowArc& arc, Microwatts amount) {
  if (amount > 0 && arc.flow == HighestFlow(arc, arc.vertex)) --arc.vertex;
  if (amount < 0 && arc.flow == LowestFlow(arc, arc.vertex)) ++arc.vertex;
  arc.flow += amount;
  RefreshLimits(arc);
}

void CostScaling::MakeFeasible() {
  const Cost origin = nodes_.front().potential;
  for (Index v = 0; v + 1 < nodes_.size(); ++v) {
    nodes_[v].potential = std::clamp(nodes_[v].potential - origin, problem_.earliest[v] * scale_,
                                     problem_.latest[v] * scale_);
  }
  for (const std::int32_t i : problem_.repair_order) {
    const FlowArc& arc = arcs_[At(i)];
    Cost& head = nodes_[At(arc.head)].potential;
    head = std::max(head, nodes_[At(arc.tail)].potential + FastestLength(arc));
  }
}

void CostScaling::SatisfyConditions() {
  for (FlowArc& arc : arcs_) {
    const Cost length = Length(arc);
    const Microwatts before = arc.flow;
    const auto limit = [&](int direction) {
      return limits_[At(residuals_[At(arc.residual[direction])].limit)];
    };
    while (length < limit(0)) Change(arc, Room(arc, true));
    while (-length < limit(1)) Change(arc, -Room(arc, false));
    nodes_[At(arc.tail)].excess -= arc.flow - before;
    nodes_[At(arc.head)].excess += arc.flow - before;
  }
}

void CostScaling::Activate(std::int32_t node) {
  if (nodes_[At(node)].is_active) return;
  nodes_[At(node)].is_active = true;
  active_.push_back(node);
}

// Reverses the problem: nodes that lack flow now have an excess, and the solver pushes this excess
// in the other direction.
void CostScaling::Mirror() {
  mirrored_ = !mirrored_;
  for (Node& node : nodes_) {
    node.potential = -node.potential;
    node.excess = -node.excess;
  }
  for (ResidualArc& residual : residuals_) std::swap(residual.limit, residual.opposite);
}

void CostScaling::Refine(int log_epsilon) {
  MakeFeasible();
  SatisfyConditions();
  while (!stop_.stop_requested() && Prepare()) {
    UpdateGlobally(log_epsilon);
    for (Index next = 0; next < active_.size() && relabels_since_update_ <= problem_.nodes;
         ++next) {
      const std::int32_t node = active_[next];
      nodes_[At(node)].is_active = false;
      Discharge(node, log_epsilon);
    }
  }
  if (mirrored_) Mirror();
}

// Fills active_ with the nodes that have an excess. Before that, mirrors the problem if more nodes
// lack flow than have an excess. Returns false if no node has an excess.
bool CostScaling::Prepare() {
  std::int64_t excesses = 0;
  std::int64_t deficits = 0;
  for (Node& node : nodes_) {
    node.is_active = false;
    if (node.excess > 0) ++excesses;
    if (node.excess < 0) ++deficits;
  }
  if (deficits > excesses) Mirror();
  active_.clear();
  for (std::int32_t v = 0; v < problem_.nodes; ++v) {
    if (nodes_[At(v)].excess > 0) Activate(v);
  }
  return !active_.empty();
}

void CostScaling::Discharge(std::int32_t node, int log_epsilon) {
  while (nodes_[At(node)].excess > 0 && relabels_since_update_ <= problem_.nodes) {
    if (ExtendPath(node, log_epsilon)) PushAlongPath(node);
  }
}

// Fills path_ with up to kPathLength admissible arcs that start at `from`. Raises the potentials of
// nodes without an admissible arc (a relabel).
bool CostScaling::ExtendPath(std::int32_t from, int log_epsilon) {
  path_.clear();
  std::int32_t node = from;
  while (path_.size() < kPathLength) {
    Node& here = nodes_[At(node)];
    const std::int32_t end = nodes_[At(node) + 1].first_residual;
    while (here.current < end && Reluctance(residuals_[At(here.current)], here.potential) >= 0) {
      ++here.current;
    }
    if (here.current < end) {
      path_.push_back(residuals_[At(here.current)]);
      node = path_.back().head;
      if (nodes_[At(node)].excess < 0) break;
      continue;
    }
    // Raise the node just far enough that its arc with the least reluctance becomes admissible.
    Cost least = kNever;
    for (const ResidualArc& residual : ResidualsOf(node)) {
      least = std::min(least, Reluctance(residual, here.potential));
    }
    here.potential += least + (Cost{1} << log_epsilon);
    here.current = here.first_residual;
    ++relabels_since_update_;
    if (path_.empty()) continue;
    // Step back: after this, the last arc of the path may no longer be admissible.
    const FlowArc& arc = arcs_[path_.back().arc()];
    node = path_.back().head == arc.head ? arc.tail : arc.head;
    path_.pop_back();
  }
  return !path_.empty();
}

void CostScaling::PushAlongPath(std::int32_t from) {
  std::int32_t node = from;
  for (const ResidualArc& step : path_) {
    const Microwatts amount = std::min(Room(step), nodes_[At(node)].excess);
    if (amount <= 0) break;
    Push(step, amount);
    nodes_[At(node)].excess -= amount;
    nodes_[At(step.head)].excess += amount;
    if (node != from && nodes_[At(node)].excess > 0) Activate(node);
    node = step.head;
  }
  if (node != from && nodes_[At(node)].excess > 0) Activate(node);
}

// Raises the potential of every node, so that fewer relabels move the excess. The raise is the
// distance to the nearest node that lacks flow, in units of epsilon (Dijkstra with buckets).
void CostScaling::UpdateGlobally(int log_epsilon) {
  relabels_since_update_ = 0;
  constexpr std::int32_t kFar = std::numeric_limits<std::int32_t>::max();
  const std::int64_t farthest = 2 * std::int64_t{problem_.nodes};
  bucket_.assign(1, -1);
  entries_.clear();
  const auto insert = [&](std::int32_t node, std::int32_t distance) {
    if (distance >= static_cast<std::int32_t>(bucket_.size())) bucket_.resize(At(distance) + 1, -1);
    entries_.push_back({node, bucket_[At(distance)]});
    bucket_[At(distance)] = static_cast<std::int32_t>(entries_.size()) - 1;
    nodes_[At(node)].distance = distance;
  };
  std::int32_t waiting = 0;  // The number of unreached nodes with an excess.
  for (std::int32_t v = 0; v < problem_.nodes; ++v) {
    Node& node = nodes_[At(v)];
    node.distance = kFar;
    if (node.excess < 0) insert(v, 0);
    if (node.excess > 0) ++waiting;
  }
  std::int32_t reached = 0;
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(bucket_.size()) && waiting > 0; ++d) {
    reached = d;
    while (bucket_[At(d)] >= 0 && waiting > 0) {
      const Entry entry = entries_[At(bucket_[At(d)])];
      bucket_[At(d)] = entry.next;
      const Node& here = nodes_[At(entry.node)];
      if (here.distance != d) continue;  // The search has found a shorter path to the node.
      if (here.excess > 0) --waiting;
      for (const ResidualArc& away : ResidualsOf(entry.node)) {
        const Node& other = nodes_[At(away.head)];
        if (other.distance <= d) continue;
        // The reluctance of the residual arc from the other node to `here`.
        const Cost reluctance = here.potential - other.potential - limits_[At(away.opposite)];
        if (reluctance > kNever / 2) continue;
        const std::int64_t distance = d + (reluctance < 0 ? 0 : (reluctance >> log_epsilon) + 1);
        if (distance > farthest || distance >= other.distance) continue;
        insert(away.head, static_cast<std::int32_t>(distance));
      }
    }
  }
  for (std::int32_t v = 0; v < problem_.nodes; ++v) {
    Node& node = nodes_[At(v)];
    node.potential += Cost{std::min(node.distance, reached)} << log_epsilon;
    node.current = node.first_residual;
  }
}

// Finds event times in whole nanoseconds that satisfy (1) and (2) exactly. If it finds a negative
// cycle, it cancels the cycle.
class CostScaling::Finisher {
 public:
  Finisher(CostScaling& scaling, std::int64_t effort)
      : scaling_(scaling),
        effort_(effort),
        times_(At(scaling.problem_.nodes)),
        state_(times_.size(), State::kUnseen),
        depth_(times_.size()) {
    const Cost origin = scaling.nodes_.front().potential;
    for (Index v = 0; v < times_.size(); ++v) {
      times_[v] = (scaling.nodes_[v].potential - origin) / scaling.scale_;
    }
    bounds_.push_back(-kNever);
    for (const Cost limit : std::span(scaling.limits_).subspan(1)) {
      bounds_.push_back(limit / scaling.scale_);
    }
  }

  std::optional<std::vector<Nanoseconds>> Run() {
    std::vector<std::int32_t> roots(times_.size());
    std::iota(roots.begin(), roots.end(), 0);
    for (;;) {
      std::erase_if(roots, [&](std::int32_t node) { return !ViolatesAny(node); });
      if (roots.empty()) break;
      if (effort_ < 0 || scaling_.stop_.stop_requested()) return std::nullopt;
      order_.clear();
      for (const std::int32_t root : roots) {
        if (state_[At(root)] == State::kUnseen) Search(root);
      }
      roots = Relax();
    }
    const Nanoseconds origin = times_.front();
    for (Nanoseconds& time : times_) time -= origin;
    return std::move(times_);
  }

 private:
  enum class State : std::uint8_t { kUnseen, kOnStack, kDone };
  struct Frame {
    std::int32_t node;
    std::int32_t next;  // The next residual arc. The previous one leads to the next frame.
  };

  // Negative if the arc violates its condition, zero if it is tight.
  Nanoseconds Slack(std::int32_t tail, const ResidualArc& residual) const {
    return times_[At(residual.head)] - times_[At(tail)] - bounds_[At(residual.limit)];
  }
  bool ViolatesAny(std::int32_t node) const {
    const auto residuals = scaling_.ResidualsOf(node);
    return std::any_of(residuals.begin(), residuals.end(),
                       [&](const ResidualArc& residual) { return Slack(node, residual) < 0; });
  }
  void Enter(std::int32_t node, Nanoseconds depth) {
    state_[At(node)] = State::kOnStack;
    depth_[At(node)] = depth;
    stack_.push_back({node, scaling_.nodes_[At(node)].first_residual});
  }

  // A depth-first search along violated and tight arcs. Appends the nodes to order_ in postorder.
  void Search(std::int32_t root) {
    Enter(root, 0);
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      if (frame.next == scaling_.nodes_[At(frame.node) + 1].first_residual) {
        state_[At(frame.node)] = State::kDone;
        order_.push_back(frame.node);
        stack_.pop_back();
        continue;
      }
      const ResidualArc& residual = scaling_.residuals_[At(frame.next++)];
      --effort_;
      const Nanoseconds slack = Slack(frame.node, residual);
      if (slack > 0) continue;
      const Nanoseconds depth = depth_[At(frame.node)] + slack;
      if (state_[At(residual.head)] == State::kUnseen) {
        Enter(residual.head, depth);
      } else if (state_[At(residual.head)] == State::kOnStack &&
                 depth < depth_[At(residual.head)]) {
        Cancel(residual.head);
      }
    }
  }

  // The stack from `node` on is a cycle of negative cost. Sends the most possible flow around the
  // cycle. Then resumes the search at the tail of the first arc that has no more room.
  void Cancel(std::int32_t node) {
    const auto arc_of = [&](const Frame& frame) { return scaling_.residuals_[At(frame.next - 1)]; };
    Index first = stack_.size();
    Microwatts amount = kUnboundedFlow;
    do {
      --first;
      amount = std::min(amount, scaling_.Room(arc_of(stack_[first])));
    } while (stack_[first].node != node);
    Index full = stack_.size();
    for (Index i = stack_.size(); i-- > first;) {
      if (scaling_.Room(arc_of(stack_[i])) == amount) full = i;
      scaling_.Push(arc_of(stack_[i]), amount);
    }
    effort_ -= static_cast<std::int64_t>(stack_.size() - first);
    for (; stack_.size() > full + 1; stack_.pop_back()) {
      state_[At(stack_.back().node)] = State::kUnseen;
    }
    --stack_.back().next;  // At its next vertex, the arc may have room again.
  }

  // Moves the heads of violated arcs later, in topological order. Returns these nodes.
  std::vector<std::int32_t> Relax() {
    std::vector<std::int32_t> moved;
    for (Index i = order_.size(); i-- > 0;) {
      const std::int32_t node = order_[i];
      state_[At(node)] = State::kUnseen;
      for (const ResidualArc& residual : scaling_.ResidualsOf(node)) {
        const Nanoseconds slack = Slack(node, residual);
        if (slack >= 0) continue;
        times_[At(residual.head)] -= slack;
        moved.push_back(residual.head);
      }
      effort_ -= 3;
    }
    std::sort(moved.begin(), moved.end());
    moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
    return moved;
  }

  CostScaling& scaling_;
  std::int64_t effort_;
  std::vector<Nanoseconds> times_;
  std::vector<Nanoseconds> bounds_;  // limits_ in whole nanoseconds.
  std::vector<State> state_;
  std::vector<Nanoseconds> depth_;  // [node on the stack] The sum of slacks from the root.
  std::vector<Frame> stack_;
  std::vector<std::int32_t> order_;
};

int CostScaling::FirstLogEpsilon() const {
  const auto bits = [](Cost cost) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(cost)));
  };
  Cost widest = 1;
  for (const FlowArc& arc : arcs_) {
    widest = std::max(
        widest, limits_[At(RisingLimit(arc.first_vertex + arc.slowest))] - FastestLength(arc));
  }
  // A phase raises potentials by a few times nodes * epsilon. This must stay far below 2^62.
  const int first = std::min(bits(widest) - 1, 58 - bits(scale_));
  return std::max(0, first - (problem_.guess_is_near ? kLogNear : 0));
}

// Returns the epsilon for which a phase leaves about this gap.
int CostScaling::LogEpsilonFor(Femtojoules gap) const {
  double flow = 1;
  for (const FlowArc& arc : arcs_) flow += static_cast<double>(arc.flow.count());
  const double epsilon = static_cast<double>(gap) / flow * static_cast<double>(scale_);
  return epsilon < 2 ? 0 : static_cast<int>(std::log2(epsilon));
}

// The time of a node, rounded down. Fastest times are whole, so rounding down keeps a schedule
// feasible.
Nanoseconds CostScaling::WholeTime(std::int32_t node) const {
  const Cost potential = nodes_[At(node)].potential - nodes_.front().potential;
  return potential >= 0 ? potential / scale_ : -((scale_ - 1 - potential) / scale_);
}

// Returns the energy of the schedule in whole times, minus the bound of the flow. The gap is a sum
// over arcs. If the times are feasible, no part of this sum is negative.
Femtojoules CostScaling::Gap() const {
  Femtojoules gap = 0;
  for (const FlowArc& arc : arcs_) {
    const Nanoseconds length = WholeTime(arc.head) - WholeTime(arc.tail);
    const auto duration = [&](std::int32_t vertex) {
      return problem_.durations[At(arc.first_vertex + vertex)];
    };
    // The flow matches the duration of its vertex. The length of the arc may be several vertices
    // away.
    Nanoseconds at = duration(arc.vertex);
    for (std::int32_t v = arc.vertex; at < length; ++v) {
      const bool last = v == arc.slowest;
      const Nanoseconds until = last ? length : std::min(length, duration(v + 1));
      gap += (arc.flow - LowestFlow(arc, v)) * (until - at);
      at = until;
    }
    for (std::int32_t v = arc.vertex; at > length && v > 0; --v) {
      const Nanoseconds until = std::max(length, duration(v - 1));
      gap += (HighestFlow(arc, v) - arc.flow) * (at - until);
      at = until;
    }
  }
  return gap;
}

// Returns the cost of the schedule in whole times: the extra energy of all arcs, and the price of
// time.
Femtojoules CostScaling::CostOfSchedule() const {
  Femtojoules cost = 0;
  for (const FlowArc& arc : arcs_) {
    const Nanoseconds length = WholeTime(arc.head) - WholeTime(arc.tail);
    for (std::int32_t v = arc.slowest; v > 0; --v) {
      const Nanoseconds until = problem_.durations[At(arc.first_vertex + v)];
      const Nanoseconds from = std::max(length, problem_.durations[At(arc.first_vertex + v - 1)]);
      if (until <= from) break;
      cost += LowestFlow(arc, v - 1) * (until - from);
    }
  }
  for (std::int32_t v = 0; v < problem_.nodes; ++v) {
    cost -= problem_.supply[At(v)] * WholeTime(v);
  }
  return cost;
}

TimingSolution CostScaling::Finished(std::vector<Nanoseconds> times) const {
  TimingSolution solution{std::move(times), {}};
  for (const FlowArc& arc : arcs_) solution.flow.push_back(arc.flow);
  return solution;
}

std::optional<TimingSolution> CostScaling::SolveExactly(int log_epsilon) {
  for (;; log_epsilon = std::max(0, log_epsilon - kLogFactor)) {
    Refine(log_epsilon);
    if (stop_.stop_requested()) return std::nullopt;  // The flow may be incomplete.
    if (log_epsilon > 0 && (Cost{1} << log_epsilon) / scale_ >= kFinishBelow) continue;
    // With epsilon = 1, the flow is optimal, so there are no cycles to cancel.
    const std::int64_t effort = log_epsilon == 0 ? std::numeric_limits<std::int64_t>::max()
                                                 : kFinishEffort * problem_.nodes;
    if (auto times = Finisher(*this, effort).Run()) return Finished(*std::move(times));
  }
}

std::optional<TimingSolution> CostScaling::Solve() {
  if (problem_.tolerance == 0) return SolveExactly(FirstLogEpsilon());
  MakeFeasible();
  // The gap of an unbalanced flow is only a guess. If this guess is too small, the excess has to
  // travel far in small steps.
  const bool is_balanced =
      std::ranges::all_of(nodes_, [](const Node& node) { return node.excess == 0; });
  const int first = FirstLogEpsilon();
  const int least = is_balanced ? 0 : std::max(0, first - kLogUnbalanced);
  int log_epsilon = std::min(first, std::max(least, LogEpsilonFor(Gap())));
  for (;;) {
    Refine(log_epsilon);
    if (stop_.stop_requested()) return std::nullopt;
    MakeFeasible();
    const Femtojoules gap = Gap();
    if (gap <= problem_.tolerance) break;
    // The cost of every schedule is at least the cost of this schedule minus the gap.
    if (problem_.most_cost && CostOfSchedule() - gap > *problem_.most_cost) break;
    if (log_epsilon == 0) return SolveExactly(0);
    const int enough = std::max(log_epsilon - kLogFactor, LogEpsilonFor(problem_.tolerance));
    log_epsilon = std::max(0, std::min(log_epsilon - 1, enough));
  }
  std::vector<Nanoseconds> times;
  for (std::int32_t v = 0; v < problem_.nodes; ++v) times.push_back(WholeTime(v));
  return Finished(std::move(times));
}

}  // namespace

std::optional<TimingSolution> SolveByCostScaling(const TimingProblem& problem,
                                                 const std::stop_token& stop) {
  return CostScaling(problem, stop).Solve();
}

}  // namespace perseus::frontier
