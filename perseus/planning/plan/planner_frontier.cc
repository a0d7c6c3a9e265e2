// The frontier of a planner: every breakpoint, or bounds from a few deadlines.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/base/stopped.h"
#include "perseus/planning/frontier/enclosure.h"
#include "perseus/planning/frontier/walk.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/relaxations.h"

namespace perseus::plan {
namespace {

// A walk is slow if it moves more nodes than this: about five seconds. 32 stages x 128 microbatches
// need 455 million, and 64 x 512 need 22 billion.
constexpr double kMostNodesMoved = 5e8;
// After this many moves (half a second), IsSlow can predict whether the walk is slow.
constexpr std::int64_t kMovesToJudge = 50'000'000;
// Jobs with this many instructions have slow walks.
constexpr std::size_t kInstructionsOfSlowWalk = 20'000;

// Whether a walk is slow. `completed` is the completed fraction of its range of times. Breakpoints
// get denser: the moves grow with the square of this fraction (within a factor of three, measured).
bool IsSlow(const frontier::Walk& walk, double completed) {
  const std::int64_t moves = walk.statistics().nodes_moved;
  return moves > kMovesToJudge &&
         static_cast<double>(moves) > kMostNodesMoved * completed * completed;
}

}  // namespace

double Frontier::BoundAt(Nanoseconds time) const {
  return BoundLasting(std::min(time, points[least_energy].time));
}

double Frontier::BoundLasting(Nanoseconds time) const {
  const auto after = std::ranges::upper_bound(points, time, {}, &FrontierPoint::time);
  if (after == points.end()) return points.back().bound_j;
  if (after == points.begin()) return points.front().bound_j;
  const FrontierPoint& fast = *(after - 1);
  const FrontierPoint& slow = *after;
  const double part =
      static_cast<double>(time - fast.time) / static_cast<double>(slow.time - fast.time);
  return fast.bound_j + part * (slow.bound_j - fast.bound_j);
}

// Requires breakpoints from the slowest to the fastest.
Frontier Planner::FrontierOf(const std::vector<frontier::Breakpoint>& breakpoints) const {
  Frontier frontier;
  frontier.points.reserve(breakpoints.size());
  const Nanoseconds slowest = breakpoints.front().time;
  frontier.points.push_back({slowest, BoundOf(slowest, 0), 0});
  for (std::size_t i = 1; i < breakpoints.size(); ++i) {
    const auto& [time, extra_energy] = breakpoints[i];
    const Microwatts price(static_cast<std::int64_t>(
        (extra_energy - breakpoints[i - 1].extra_energy) / (breakpoints[i - 1].time - time)));
    frontier.points.push_back({time, BoundOf(time, extra_energy), ToWatts(price)});
  }
  std::reverse(frontier.points.begin(), frontier.points.end());
  const auto least = std::min_element(
      frontier.points.begin(), frontier.points.end(),
      [](const FrontierPoint& a, const FrontierPoint& b) { return a.bound_j < b.bound_j; });
  frontier.least_energy = static_cast<std::size_t>(least - frontier.points.begin());
  return frontier;
}

Result<std::optional<Frontier>> Planner::WalkFrontier(FrontierPrecision precision,
                                                      const Progress& progress,
                                                      const std::stop_token& stop) const {
  frontier::Walk walk(network_);
  const Nanoseconds slowest = walk.time();
  const auto range = static_cast<double>(std::max<Nanoseconds>(slowest - least_time_, 1));
  std::vector<frontier::Breakpoint> breakpoints{{slowest, 0}};
  constexpr std::size_t kPointsPerReport = 1024;
  while (!walk.finished()) {
    if (stop.stop_requested()) return FailAsStopped();
    const double completed = static_cast<double>(slowest - walk.time()) / range;
    if (precision != FrontierPrecision::kExact && IsSlow(walk, completed)) {
      return std::optional<Frontier>();
    }
    walk.Advance(least_time_);
    if (walk.time() == breakpoints.back().time) break;
    breakpoints.push_back({walk.time(), walk.extra_energy()});
    if (progress && breakpoints.size() % kPointsPerReport == 0) progress(completed);
  }
  Result<void> proof = frontier::CheckConvex(breakpoints);
  if (proof) proof = frontier::CheckOptimality(network_, walk.solution());
  if (!proof) {
    return FailAs(ErrorKind::kSystem, "the frontier failed its own check: {} (please report this)",
                  proof.error().Message());
  }
  return std::optional(FrontierOf(breakpoints));
}

// Returns the optima at which the bounds are exact: the fastest schedule, the schedule of least
// total energy, and the cheapest schedule. Optima of earlier plans are not used: for a budget, the
// plan must not depend on what was planned before.
Result<std::vector<frontier::Solution>> Planner::ExactPoints(const std::stop_token& stop) const {
  const Microwatts floor = blocking_price();
  std::vector<std::optional<Result<frontier::Solution>>> found(2);
  ForEachOnAllCores(found.size(), [&](std::size_t i) {
    found[i] = Relax(i == 0 ? least_time_ : SlowestTime(), floor, stop);
  });
  std::vector<frontier::Solution> solved;
  for (std::optional<Result<frontier::Solution>>& solution : found) {
    if (!*solution) return Fail(*solution);
    solved.push_back(**std::move(solution));
  }
  PERSEUS_ASSIGN_OR_RETURN(auto cheapest, Relax(SlowestTime(), 0, stop));
  solved.push_back(std::move(cheapest));
  const auto time_of = [&](const frontier::Solution& solution) { return solution.time(network_); };
  std::ranges::stable_sort(solved, {}, time_of);
  const auto have_same_time = [&](const frontier::Solution& a, const frontier::Solution& b) {
    return time_of(a) == time_of(b);
  };
  solved.erase(std::unique(solved.begin(), solved.end(), have_same_time), solved.end());
  return solved;
}

Result<Frontier> Planner::EncloseFrontier(const Progress& progress,
                                          const std::stop_token& stop) const {
  PERSEUS_ASSIGN_OR_RETURN(const auto solved, ExactPoints(stop));
  const auto energy_of = [&](const frontier::Solution& solution) {
    return BoundOf(solution.time(network_), solution.extra_energy);
  };
  const auto least = std::ranges::min_element(solved, {}, energy_of);
  const double least_j = energy_of(*least);
  // The factor leaves room for the rounding of times.
  const double most_error_j = kFrontierError * 0.999 * std::max(least_j, 0.0);
  PERSEUS_ASSIGN_OR_RETURN(
      const auto points,
      frontier::EncloseFrontier(
          network_, solved,
          std::max<Femtojoules>(static_cast<Femtojoules>(most_error_j * kFemtojoulesPerJoule), 1),
          progress, stop));
  Frontier frontier;
  for (const frontier::EnclosedPoint& point : points) {
    if (point.time == least->time(network_)) frontier.least_energy = frontier.points.size();
    frontier.points.push_back({.time = point.time,
                               .bound_j = BoundOf(point.time, point.lower),
                               .price_w = ToWatts(point.price),
                               .error_j = ToJoules(point.upper - point.lower)});
    frontier.error = std::max(frontier.error, frontier.points.back().error_j / least_j);
  }
  if (progress) progress(1);
  return frontier;
}

Result<Frontier> Planner::ComputeFrontier(const Progress& progress, const std::stop_token& stop,
                                          FrontierPrecision precision) const {
  if (precision == FrontierPrecision::kBounds) return EncloseFrontier(progress, stop);
  PERSEUS_ASSIGN_OR_RETURN(auto exact, WalkFrontier(precision, progress, stop));
  if (!exact) return EncloseFrontier(progress, stop);
  if (progress) progress(1);
  return *std::move(exact);
}

bool Planner::ProbablyWalks() const { return graph_.instructions.size() < kInstructionsOfSlowWalk; }

Result<FrontierPoint> Planner::CheapestPoint(double price_w, const std::stop_token& stop) const {
  // No instruction saves more power than this. So at a higher price, the answer is the same.
  Microwatts most = 1;
  for (std::int32_t i = 0; i < network_.instructions; ++i) {
    const profile::Curve& curve = network_.curve_of(network_.arcs[static_cast<std::size_t>(i)]);
    if (!curve.slopes.empty()) most += curve.slopes.front();
  }
  const double price = std::min(price_w * kMicrowattsPerWatt, static_cast<double>(most.count()));
  PERSEUS_ASSIGN_OR_RETURN(
      const frontier::Solution solution,
      Relax(SlowestTime(), blocking_price() + Microwatts(static_cast<std::int64_t>(price)), stop));
  const Nanoseconds time = solution.time(network_);
  return FrontierPoint{.time = time, .bound_j = BoundOf(time, solution.extra_energy)};
}

Nanoseconds Planner::SlowestTime() const {
  return frontier::EarliestTimes(network_,
                                 frontier::Pace::kSlowest)[static_cast<std::size_t>(network_.sink)];
}

}  // namespace perseus::plan
