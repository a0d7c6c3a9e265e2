#include "perseus/plan/discretize.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "perseus/frontier/deadline.h"
#include "perseus/plan/rounding.h"
#include "perseus/plan/window_search.h"

namespace perseus {
namespace {

std::size_t At(int i) { return static_cast<std::size_t>(i); }

enum class TiltBy { kNothing, kOperation, kMicrobatch };

struct Tilt {
  TiltBy by = TiltBy::kNothing;
  double size = 0;  // Slopes change by up to this part.
  std::uint64_t seed = 0;
};

constexpr Tilt kTilts[] = {
    {TiltBy::kNothing, 0, 0},     {TiltBy::kMicrobatch, 0.01, 1}, {TiltBy::kOperation, 0.001, 2},
    {TiltBy::kOperation, 0.1, 3}, {TiltBy::kMicrobatch, 0.01, 4}, {TiltBy::kOperation, 0.01, 5},
};
// Relaxed optima of large graphs take seconds each.
std::size_t AffordableTilts(int operations) {
  return std::clamp<std::size_t>(At(12'000) / At(operations), 1, std::size(kTilts));
}

constexpr WindowSearch::Effort kFirstLook{8, 1'000};
constexpr WindowSearch::Effort kLongSearch[] = {{10, 5'000}, {12, 20'000}};
constexpr std::int64_t kMostTries = 120'000'000;  // About a second.
constexpr double kGoodEnough = 1e-4;  // Of the effective energy: a gap not worth the time.

double Uniform(std::mt19937_64& random) {  // In [-1, 1), the same on every machine.
  return static_cast<double>(static_cast<std::int64_t>(random()) >> 11) / 4503599627370496.0;
}

Curve TiltCurve(const Curve& curve, double part) {
  Curve tilted = curve;
  Microwatts above = 0;  // From the flat end up, so that slopes stay strictly ordered.
  for (std::size_t i = curve.slopes.size(); i-- > 0;) {
    const auto slope =
        static_cast<Microwatts>(std::llround(static_cast<double>(curve.slopes[i]) * (1 + part)));
    above = tilted.slopes[i] = std::max(slope, above + 1);
  }
  return tilted;
}

// The same network with a curve of its own, tilted, for each operation.
Network TiltNetwork(const Network& network, const OperationGraph& graph, const Tilt& tilt) {
  std::mt19937_64 random(tilt.seed);
  std::vector<double> part_of_microbatch;
  Network tilted = network;
  tilted.curves.clear();
  for (std::size_t i = 0; i < network.arcs.size(); ++i) {
    const Curve& curve = network.curve_of(network.arcs[i]);
    tilted.arcs[i].curve = static_cast<std::int32_t>(i);
    if (i >= At(network.operations)) {
      tilted.curves.push_back(curve);
      continue;
    }
    double part = Uniform(random);
    const int microbatch = graph.operations[i].microbatch;
    if (tilt.by == TiltBy::kMicrobatch && microbatch >= 0) {
      while (part_of_microbatch.size() <= At(microbatch)) {
        part_of_microbatch.push_back(Uniform(random));
      }
      part = part_of_microbatch[At(microbatch)];
    }
    tilted.curves.push_back(TiltCurve(curve, tilt.size * part));
  }
  return tilted;
}

Windows WindowsOf(const Network& network, const Solution& solution) {
  Windows windows;
  windows.length = solution.time(network);
  for (std::int32_t i = 0; i < network.operations; ++i) {
    const Arc& arc = network.arcs[At(i)];
    windows.starts.push_back(solution.event_times[At(arc.tail)]);
    windows.ends.push_back(solution.event_times[At(arc.head)]);
  }
  return windows;
}

}  // namespace

Result<Choices> Discretize(const ChoiceGraph& graph, const Network& network,
                           const Solution& solution, SearchEffort effort) {
  WindowSearch search(graph, network, solution);
  Choices best;
  double least = 0;
  const std::size_t tilts = effort == SearchEffort::kFull ? AffordableTilts(graph.operations()) : 1;
  for (std::size_t t = 0; t < tilts; ++t) {
    Windows windows = WindowsOf(network, solution);
    if (kTilts[t].by != TiltBy::kNothing) {
      const Network tilted = TiltNetwork(network, graph.graph(), kTilts[t]);
      const Result<Solution> other = SolveDeadline(tilted, windows.length);
      if (!other) return Fail(other);
      windows = WindowsOf(tilted, *other);
      windows.length = solution.time(network);
    }
    for (const TimeDirection direction : {TimeDirection::kForward, TimeDirection::kBackward}) {
      for (const CandidateClass candidates : {CandidateClass::kAll, CandidateClass::kHull}) {
        Choices choices = DiffuseRounding(graph, windows, direction, candidates);
        search.Improve(choices, kFirstLook);
        const double energy = graph.EffectiveEnergy(choices);
        if (best.empty() || energy < least) {
          best = std::move(choices);
          least = energy;
        }
      }
    }
  }
  if (effort == SearchEffort::kFirstLook) return best;
  // Rounds alternate between three schedules: only when none of them helps is a stage over.
  const std::int64_t tries_until_now = search.tries();
  for (const WindowSearch::Effort& window : kLongSearch) {
    for (int fruitless = 0; fruitless < 3;) {
      if (search.tries() - tries_until_now > kMostTries) return best;
      const double saved = search.Improve(best, window);
      fruitless = saved > kGoodEnough * 0.1 * std::abs(least) ? 0 : fruitless + 1;
    }
  }
  return best;
}

}  // namespace perseus
