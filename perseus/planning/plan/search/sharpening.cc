#include "perseus/planning/plan/search/sharpening.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/planning/frontier/deadline.h"

namespace perseus::plan {
namespace {

// Uniform in [-1, 1), and the same on every machine.
double Uniform(std::mt19937_64& random) {
  constexpr double kHalfRange = 4503599627370496.0;  // 2^52, because the shift leaves 53 bits.
  return static_cast<double>(static_cast<std::int64_t>(random()) >> 11) / kHalfRange;
}

profile::Curve TiltCurve(const profile::Curve& curve, double part) {
  profile::Curve tilted = curve;
  Microwatts least = 1;  // The loop starts at the flat end and keeps the slopes strictly ordered.
  for (std::size_t i = curve.slopes.size(); i-- > 0;) {
    const double slope = static_cast<double>(curve.slopes[i]) * (1 + part);
    tilted.slopes[i] = std::max(static_cast<Microwatts>(std::llround(slope)), least);
    least = tilted.slopes[i] + 1;
  }
  return tilted;
}

// The same network, in which each instruction has its own tilted curve.
frontier::Network TiltNetwork(const frontier::Network& network,
                              const schedule::InstructionGraph& graph, const Tilt& tilt) {
  std::mt19937_64 random(tilt.seed);
  std::vector<double> part_of_microbatch;
  frontier::Network tilted = network;
  tilted.curves.clear();
  for (std::size_t i = 0; i < network.arcs.size(); ++i) {
    const profile::Curve& curve = network.curve_of(network.arcs[i]);
    tilted.arcs[i].curve = static_cast<std::int32_t>(i);
    if (i >= At(network.instructions)) {
      tilted.curves.push_back(curve);
      continue;
    }
    const int microbatch = graph.instructions[i].microbatch;
    double part = 0;
    if (tilt.by == TiltBy::kMicrobatch && microbatch >= 0) {
      while (part_of_microbatch.size() <= At(microbatch)) {
        part_of_microbatch.push_back(Uniform(random));
      }
      part = part_of_microbatch[At(microbatch)];
    } else {
      part = Uniform(random);
    }
    tilted.curves.push_back(TiltCurve(curve, tilt.size * part));
  }
  return tilted;
}

// The segment with `duration` strictly inside, or nothing if `duration` is at a vertex or outside.
std::optional<std::size_t> SegmentAround(const profile::Curve& curve, Nanoseconds duration) {
  if (duration >= curve.slowest()) return std::nullopt;
  const auto after = std::lower_bound(curve.times.begin(), curve.times.end(), duration);
  if (*after == duration || after == curve.times.begin()) return std::nullopt;
  return static_cast<std::size_t>(after - curve.times.begin()) - 1;
}

profile::Curve SharpenCurve(const profile::Curve& curve, std::size_t segment,
                            Nanoseconds duration) {
  profile::Curve sharpened = curve;
  const bool nearer_slow = duration - curve.times[segment] > curve.times[segment + 1] - duration;
  const Microwatts slope = curve.slopes[segment];
  if (nearer_slow) {
    const Microwatts steepest = segment == 0 ? slope + slope / 2 : curve.slopes[segment - 1] - 1;
    sharpened.slopes[segment] = std::max(slope, steepest);
  } else {
    const bool last = segment + 1 == curve.slopes.size();
    const Microwatts flattest =
        last ? std::max<Microwatts>(1, slope / 2) : curve.slopes[segment + 1] + 1;
    sharpened.slopes[segment] = std::min(slope, flattest);
  }
  return sharpened;
}

}  // namespace

Result<Windows> SharpenedWindows(const frontier::Network& network,
                                 const schedule::InstructionGraph& graph,
                                 const frontier::Solution& optimum, const Tilt& tilt, int rounds,
                                 const std::stop_token& stop) {
  const Nanoseconds length = optimum.time(network);
  frontier::Network tilted = TiltNetwork(network, graph, tilt);
  std::vector<Nanoseconds> near = optimum.event_times;
  for (int round = 0;; ++round) {
    PERSEUS_ASSIGN_OR_RETURN(frontier::Solution solution,
                             frontier::SolveDeadline(tilted, length, 0, stop, near));
    Windows windows = WindowsOf(tilted, solution);
    windows.length = length;
    if (round == rounds) return windows;
    near = std::move(solution.event_times);
    for (std::int32_t i = 0; i < network.instructions; ++i) {
      const profile::Curve& curve = network.curve_of(network.arcs[At(i)]);
      const Nanoseconds duration = windows.ends[At(i)] - windows.starts[At(i)];
      if (const std::optional<std::size_t> segment = SegmentAround(curve, duration)) {
        tilted.curves[At(i)] = SharpenCurve(curve, *segment, duration);
      }
    }
  }
}

}  // namespace perseus::plan
