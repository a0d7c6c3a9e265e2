#include "perseus/planning/frontier/enclosure.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "perseus/base/mutex.h"
#include "perseus/base/parallel.h"
#include "perseus/base/stopped.h"
#include "perseus/planning/frontier/deadline.h"

namespace perseus::frontier {
namespace {

// The solver may leave 1 / kPartsOfError of the error at each deadline. If this part is smaller,
// the solver needs one more phase of scaling. If it is larger, more deadlines are necessary.
constexpr int kPartsOfError = 3;

// Only for decisions, never for bounds.
using Approximate = long double;
Approximate Approximately(Femtojoules energy) { return static_cast<Approximate>(energy); }

// The time at which two lines have the same energy. Requires different prices.
Approximate Crossing(const SupportingLine& a, const SupportingLine& b) {
  return Approximately(a.value - b.value) / static_cast<Approximate>((a.price - b.price).count());
}

// A schedule of at most `time` has at most this energy.
struct UpperPoint {
  Nanoseconds time = 0;
  Femtojoules energy = 0;
  bool is_given = false;  // A given optimum. It stays a point of the result.
};

// A deadline, its schedule and flow, and the bounds that they prove.
struct SolvedPoint {
  Solution solution;
  UpperPoint upper;
  SupportingLine line;
};
using SharedPoint = std::shared_ptr<const SolvedPoint>;

struct Gap {
  SharedPoint fast;
  SharedPoint slow;
};

// The result for a gap between neighbors: two bounds inside the gap, and a solved deadline if
// necessary.
struct Examined {
  UpperPoint upper;
  SupportingLine line;
  SharedPoint middle;
};

Result<SharedPoint> Prove(const Network& network, Nanoseconds deadline, Solution solution) {
  PERSEUS_ASSIGN_OR_RETURN(const Femtojoules energy, CheckSchedule(network, solution.event_times));
  PERSEUS_ASSIGN_OR_RETURN(const SupportingLine line,
                           CheckFlow(network, solution.flow, solution.price));
  if (solution.time(network) > deadline) return Fail("a schedule is longer than its deadline");
  return std::make_shared<const SolvedPoint>(
      SolvedPoint{std::move(solution), {deadline, energy}, line});
}

// Returns the time at which the lines of the neighbors cross. At this time, the chord is farthest
// above the lines.
Nanoseconds WorstTime(const SolvedPoint& fast, const SolvedPoint& slow) {
  const Nanoseconds range = slow.upper.time - fast.upper.time;
  Approximate part = 0.5L;
  if (fast.line.price > slow.line.price) {
    part = (Crossing(fast.line, slow.line) - static_cast<Approximate>(fast.upper.time)) /
           static_cast<Approximate>(range);
  }
  // If the interval is cut near one end, the other part is hardly smaller than before.
  part = std::clamp(part, 0.125L, 0.875L);
  const auto offset = static_cast<Nanoseconds>(part * static_cast<Approximate>(range));
  return fast.upper.time + std::clamp<Nanoseconds>(offset, 1, range - 1);
}

// Returns the schedule that lies between two schedules as `time` lies between their deadlines. The
// times are rounded down. This keeps the schedule feasible: if two real times are at least a whole
// number apart, so are their floors.
std::vector<Nanoseconds> ScheduleBetween(const SolvedPoint& fast, const SolvedPoint& slow,
                                         Nanoseconds time) {
  const Nanoseconds range = slow.upper.time - fast.upper.time;
  std::vector<Nanoseconds> times = fast.solution.event_times;
  for (std::size_t v = 0; v < times.size(); ++v) {
    const Femtojoules later =
        Femtojoules{slow.solution.event_times[v] - times[v]} * (time - fast.upper.time);
    times[v] +=
        static_cast<Nanoseconds>(later >= 0 ? later / range : -((range - 1 - later) / range));
  }
  return times;
}

// Returns the mean of two flows. At each node, the rounding error goes to the widest arc that
// leaves the node. So the mean is balanced and proves a bound, and its gap shows the solver how
// near it is. If such an arc becomes negative because of the rounding errors, returns the first
// flow instead.
Solution MeanFlow(const Network& network, const SolvedPoint& fast, const SolvedPoint& slow) {
  const auto at = [](std::int32_t i) { return static_cast<std::size_t>(i); };
  Solution mean;
  std::vector<Microwatts> excess(at(network.nodes), 0);
  std::vector<std::int32_t> widest(at(network.nodes), -1);  // [node] The widest arc that leaves it.
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(network.arcs.size()); ++i) {
    const Arc& arc = network.arcs[at(i)];
    const Microwatts flow = (fast.solution.flow[at(i)] + slow.solution.flow[at(i)]) / 2;
    mean.flow.push_back(flow);
    excess[at(arc.tail)] -= flow;
    excess[at(arc.head)] += flow;
    std::int32_t& most = widest[at(arc.tail)];
    if (most < 0 || mean.flow[at(most)] < flow) most = i;
  }
  for (const std::int32_t i : ArcsInOrder(network)) {
    const Arc& arc = network.arcs[at(i)];
    if (arc.tail == network.source || widest[at(arc.tail)] != i) continue;
    mean.flow[at(i)] += excess[at(arc.tail)];
    excess[at(arc.head)] += excess[at(arc.tail)];
    if (mean.flow[at(i)] < 0) {
      mean.flow = fast.solution.flow;
      mean.price = fast.solution.price;
      return mean;
    }
  }
  mean.price = excess[at(network.sink)];
  return mean;
}

// The greatest distance between the bounds within the gap. It occurs where two lines cross.
Approximate WidestIn(const Gap& gap, const Examined& inside) {
  const UpperPoint uppers[] = {gap.fast->upper, inside.upper, gap.slow->upper};
  const SupportingLine lines[] = {gap.fast->line, inside.line, gap.slow->line};
  const auto distance = [&](Approximate time) {
    const int part = time < static_cast<Approximate>(inside.upper.time) ? 0 : 1;
    const UpperPoint& a = uppers[part];
    const UpperPoint& b = uppers[part + 1];
    const Approximate offset = time - static_cast<Approximate>(a.time);
    const Approximate upper =
        Approximately(a.energy) -
        Approximately(a.energy - b.energy) / static_cast<Approximate>(b.time - a.time) * offset;
    Approximate lower = 0;
    for (const SupportingLine& line : lines) {
      lower = std::max(lower, Approximately(line.At(a.time)) -
                                  static_cast<Approximate>(line.price.count()) * offset);
    }
    return upper - lower;
  };
  Approximate widest = 0;
  for (const UpperPoint& upper : uppers) {
    widest = std::max(widest, distance(static_cast<Approximate>(upper.time)));
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = i + 1; j < 3; ++j) {
      if (lines[i].price == lines[j].price) continue;
      widest = std::max(widest, distance(std::clamp(Crossing(lines[i], lines[j]),
                                                    static_cast<Approximate>(uppers[0].time),
                                                    static_cast<Approximate>(uppers[2].time))));
    }
  }
  return widest;
}

Result<Examined> Examine(const Network& network, const Gap& gap, Femtojoules most_error,
                         const std::stop_token& stop) {
  const SolvedPoint& fast = *gap.fast;
  const SolvedPoint& slow = *gap.slow;
  const Nanoseconds time = WorstTime(fast, slow);
  Solution near = MeanFlow(network, fast, slow);
  near.event_times = ScheduleBetween(fast, slow, time);
  PERSEUS_ASSIGN_OR_RETURN(const Femtojoules energy, CheckSchedule(network, near.event_times));
  PERSEUS_ASSIGN_OR_RETURN(const SupportingLine line, CheckFlow(network, near.flow, near.price));
  Examined inside{{time, energy}, line, nullptr};
  if (WidestIn(gap, inside) <= Approximately(most_error)) return inside;
  PERSEUS_ASSIGN_OR_RETURN(
      Solution solution,
      ApproximateDeadline(network, time, near, std::max<Femtojoules>(most_error / kPartsOfError, 1),
                          stop));
  PERSEUS_ASSIGN_OR_RETURN(inside.middle, Prove(network, time, std::move(solution)));
  return inside;
}

// All bounds that were found, in any order.
struct Bounds {
  std::vector<UpperPoint> uppers;
  std::vector<SupportingLine> lines;
};

// The points of the lower hull of the upper bounds, fastest first. A chord between any two points
// is a valid bound, so the hull need not be exact.
std::vector<UpperPoint> UpperHull(std::vector<UpperPoint> points) {
  std::ranges::sort(points, [](const UpperPoint& a, const UpperPoint& b) {
    return a.time != b.time ? a.time < b.time : a.energy < b.energy;
  });
  const auto price = [](const UpperPoint& a, const UpperPoint& b) {
    return Approximately(a.energy - b.energy) / static_cast<Approximate>(b.time - a.time);
  };
  std::vector<UpperPoint> hull;
  for (const UpperPoint& next : points) {
    if (!hull.empty() && hull.back().time == next.time) continue;
    while (hull.size() >= 2 && !hull.back().is_given &&
           price(hull[hull.size() - 2], hull.back()) <= price(hull.back(), next)) {
      hull.pop_back();
    }
    hull.push_back(next);
  }
  return hull;
}

// The lines that are the greatest line at some time, steepest first.
std::vector<SupportingLine> Envelope(std::vector<SupportingLine> lines) {
  std::ranges::sort(lines, [](const SupportingLine& a, const SupportingLine& b) {
    return a.price != b.price ? a.price > b.price : a.value > b.value;
  });
  std::vector<SupportingLine> envelope;
  for (const SupportingLine& next : lines) {
    if (!envelope.empty() && envelope.back().price == next.price) continue;
    while (envelope.size() >= 2 && Crossing(envelope[envelope.size() - 2], next) <=
                                       Crossing(envelope[envelope.size() - 2], envelope.back())) {
      envelope.pop_back();
    }
    envelope.push_back(next);
  }
  return envelope;
}

// Merges both bounds into one list of points. Between two points, the lower bound must not be above
// the greatest line. So at a point where the greatest line changes, the lower bound is the lower of
// the two lines.
std::vector<EnclosedPoint> MergeBounds(const Bounds& bounds) {
  const std::vector<UpperPoint> hull = UpperHull(bounds.uppers);
  const std::vector<SupportingLine> lines = Envelope(bounds.lines);
  const Nanoseconds first = hull.front().time;
  const Nanoseconds last = hull.back().time;
  std::vector<Nanoseconds> changes;  // [line] When the next line becomes the greatest.
  std::vector<Nanoseconds> times;
  for (const UpperPoint& upper : hull) times.push_back(upper.time);
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    const Approximate crossing =
        std::clamp(Crossing(lines[i], lines[i + 1]), static_cast<Approximate>(first) - 1,
                   static_cast<Approximate>(last) + 1);
    auto change = static_cast<Nanoseconds>(crossing);
    // A point of the hull may be exact. It stays exact if the line changes only after it.
    const bool is_exact = lines[i].At(change) == lines[i + 1].At(change);
    if (!is_exact && std::ranges::binary_search(hull, change, {}, &UpperPoint::time)) ++change;
    changes.push_back(changes.empty() ? change : std::max(change, changes.back()));
    if (change > first && change < last) times.push_back(change);
  }
  std::ranges::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());

  std::vector<EnclosedPoint> points;
  std::size_t line = 0;
  std::size_t after = 0;  // The first upper point that is not before the time.
  for (const Nanoseconds time : times) {
    EnclosedPoint point{.time = time, .lower = 0, .upper = 0, .price = 0};
    while (line < changes.size() && changes[line] < time) ++line;
    point.lower = lines[line].At(time);
    while (line < changes.size() && changes[line] == time) {
      point.lower = std::min(point.lower, lines[++line].At(time));
    }
    point.lower = std::max<Femtojoules>(point.lower, 0);
    point.price = lines[line].price;
    while (hull[after].time < time) ++after;
    point.upper = hull[after].energy;
    if (const Nanoseconds until = hull[after].time - time; until > 0) {
      // The price of the chord, rounded up, times the time to its slow end. So it is never below
      // the chord.
      const UpperPoint& before = hull[after - 1];
      const Nanoseconds range = hull[after].time - before.time;
      point.upper += (before.energy - hull[after].energy + range - 1) / range * until;
    }
    points.push_back(point);
  }
  return points;
}

// Examines all gaps on all cores, including the new gaps that an examined gap leaves.
class Sandwich {
 public:
  Sandwich(const Network& network, Femtojoules most_error,
           const std::function<void(double)>& progress, const std::stop_token& stop)
      : network_(network), most_error_(most_error), progress_(progress), stop_(stop) {}

  Result<Bounds> Run(std::span<const Solution> solved) {
    PERSEUS_ASSIGN_OR_RETURN(const std::size_t gaps, AddSolved(solved));
    DrainOnAllCores(gaps, [this] { return ExamineNext(); });
    if (stop_.stop_requested()) return FailAsStopped();
    const MutexLock lock(mutex_);
    if (error_) return tl::unexpected<Error>(*std::move(error_));
    return std::move(bounds_);
  }

 private:
  // Returns how many gaps it adds.
  Result<std::size_t> AddSolved(std::span<const Solution> solved) {
    std::vector<std::optional<Result<SharedPoint>>> proved(solved.size());
    ForEachOnAllCores(solved.size(), [&](std::size_t i) {
      proved[i] = Prove(network_, solved[i].time(network_), solved[i]);
    });
    const MutexLock lock(mutex_);
    SharedPoint last;
    for (const std::optional<Result<SharedPoint>>& one : proved) {
      if (!*one) return Fail(*one);
      const SharedPoint& point = **one;
      Add(*point);
      bounds_.uppers.back().is_given = true;
      if (last) AddGap(last, point);
      last = point;
    }
    range_ = last->upper.time - bounds_.uppers.front().time;
    return gaps_.size();
  }

  // Returns how many gaps it leaves.
  std::size_t ExamineNext() {
    Gap gap;
    {
      const MutexLock lock(mutex_);
      gap = std::move(gaps_.front());
      gaps_.pop_front();
      if (error_ || stop_.stop_requested()) return 0;
    }
    const Result<Examined> examined = Examine(network_, gap, most_error_, stop_);
    const MutexLock lock(mutex_);
    if (!examined) {
      error_ = examined.error();
      return 0;
    }
    bounds_.uppers.push_back(examined->upper);
    bounds_.lines.push_back(examined->line);
    if (examined->middle) {
      Add(*examined->middle);
      return AddGap(gap.fast, examined->middle) + AddGap(examined->middle, gap.slow);
    }
    completed_ += gap.slow->upper.time - gap.fast->upper.time;
    if (progress_) progress_(static_cast<double>(completed_) / static_cast<double>(range_));
    return 0;
  }

  void Add(const SolvedPoint& point) PERSEUS_REQUIRES(mutex_) {
    bounds_.uppers.push_back(point.upper);
    bounds_.lines.push_back(point.line);
  }
  // Returns how many gaps it adds: none if the two times are neighboring nanoseconds.
  std::size_t AddGap(const SharedPoint& fast, const SharedPoint& slow) PERSEUS_REQUIRES(mutex_) {
    if (slow->upper.time - fast->upper.time <= 1) return 0;
    gaps_.push_back({fast, slow});
    return 1;
  }

  const Network& network_;
  const Femtojoules most_error_;
  const std::function<void(double)>& progress_;
  const std::stop_token& stop_;
  Mutex mutex_;
  std::deque<Gap> gaps_ PERSEUS_GUARDED_BY(mutex_);
  Bounds bounds_ PERSEUS_GUARDED_BY(mutex_);
  std::optional<Error> error_ PERSEUS_GUARDED_BY(mutex_);
  Nanoseconds range_ PERSEUS_GUARDED_BY(mutex_) = 1;
  Nanoseconds completed_ PERSEUS_GUARDED_BY(mutex_) = 0;
};

}  // namespace

Result<std::vector<EnclosedPoint>> EncloseFrontier(const Network& network,
                                                   std::span<const Solution> solved,
                                                   Femtojoules most_error,
                                                   const std::function<void(double)>& progress,
                                                   const std::stop_token& stop) {
  PERSEUS_ASSIGN_OR_RETURN(const Bounds bounds,
                           Sandwich(network, most_error, progress, stop).Run(solved));
  return MergeBounds(bounds);
}

}  // namespace perseus::frontier
