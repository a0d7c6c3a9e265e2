#include "perseus/planning/plan/search/choice_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/stopped.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/plan/search/choices.h"
#include "perseus/planning/plan/search/window_search.h"

namespace perseus::plan {
namespace {

constexpr WindowSearch::Effort kShortSearch{8, 1'000};
constexpr WindowSearch::Effort kLongSearch[] = {{10, 3'000}, {12, 5'000}, {14, 10'000}};
// Rounds of one window size end after this number of rounds in a row without a gain. (Rounds
// alternate between three schedules.)
constexpr int kRoundsWithoutGain = 3;
// A round counts as a gain if it saves at least this fraction of the effective energy.
constexpr double kNotWorthIt = 1e-5;
// The search ends when the gap is below this fraction of the effective energy.
constexpr double kGoodEnough = 1e-6;

// The number of sharpening rounds for each tilt in turn. Different numbers give more varied starts
// than equal ones: if all are 4, the gap is 3 to 10 % greater with 12 and 24 microbatches.
constexpr int kSharpeningRounds[] = {4, 3, 2, 2};
// The fraction of the work of a cycle that is spent on starts.
constexpr double kPartOfStarts = 0.6;
// The work of the setup of a window, and of a solve for each instruction, as a number of tried
// options. Measured: 10 ns for an option, 2 us for a window, and 5 us for each instruction of a
// solve that starts near the optimum.
constexpr std::int64_t kWindowWork = 200;
constexpr std::int64_t kSolveWork = 500;
// Above this number of instructions, the first cycle has no sharpened schedules, because the solves
// would take longer than everything else.
constexpr int kMostSharpened = 16'000;

// The work of a cycle: 0.06 s for 192 instructions, 0.26 s for 1,536, and 0.8 s for 65,536.
std::int64_t CycleWork(int instructions) {
  const std::int64_t n = instructions;
  return std::min<std::int64_t>(28'000'000, 45'000 * n) + 700 * n;
}

// The best tilt depends on the profile, so several are tried. The first tilt is by microbatch,
// because that is the best single choice.
Tilt TiltNumber(int number) {
  constexpr double kSizes[] = {0.1, 0.1, 0.1, 0.05, 0.2};
  return {number % 3 == 2 ? TiltBy::kInstruction : TiltBy::kMicrobatch,
          kSizes[At(number) % std::size(kSizes)], static_cast<std::uint64_t>(number)};
}

double EffectiveBound(const frontier::Network& network, const frontier::Solution& solution) {
  double bound_j = ToJoules(solution.extra_energy);
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    bound_j += network.curve_of(network.arcs[At(i)]).least_effective_energy_j;
  }
  return bound_j;
}

// Uniform in [-1, 1), and the same on every machine.
double Uniform(std::mt19937_64& random) {
  constexpr double kHalfRange = 4503599627370496.0;  // 2^52, because the shift leaves 53 bits.
  return static_cast<double>(static_cast<std::int64_t>(random()) >> 11) / kHalfRange;
}

profile::Curve TiltCurve(const profile::Curve& curve, double part) {
  profile::Curve tilted = curve;
  Microwatts least = 1;  // Keeps the slopes strictly ordered, from the flat end on.
  for (std::size_t i = curve.slopes.size(); i-- > 0;) {
    const double slope = static_cast<double>(curve.slopes[i].count()) * (1 + part);
    tilted.slopes[i] = std::max(Microwatts(std::llround(slope)), least);
    least = tilted.slopes[i] + 1;
  }
  return tilted;
}

// Returns the same network, but each instruction has its own tilted curve.
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

// Returns the segment that has `duration` strictly inside. nullopt if `duration` is at a vertex or
// outside.
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

// The work of one cycle, and the best start so far.
class ChoiceSearch::Cycle {
 public:
  Cycle(const ChoiceSearch& search, const std::stop_token& stop)
      : graph_(search.graph_),
        bound_j_(search.bound_j_),
        windows_(search.graph_, search.network_, search.solution_, stop) {}

  // Rounds a schedule in both directions, and improves both results a little.
  void Consider(const Windows& schedule) {
    for (const TimeDirection direction : {TimeDirection::kForward, TimeDirection::kBackward}) {
      Choices choices = DiffuseRounding(graph_, schedule, direction);
      Improve(choices, kShortSearch);
      const double energy_j = graph_.EffectiveEnergy(choices);
      if (choices_.empty() || energy_j < energy_j_) Begin(std::move(choices), energy_j);
    }
  }
  void Begin(Choices choices, double energy_j) {
    choices_ = std::move(choices);
    energy_j_ = energy_j;
  }
  void CountSolves(int solves) { work_ += kSolveWork * graph_.instructions() * solves; }

  // Improves the best start until the work is done.
  void SearchLong(std::int64_t most_work, const std::stop_token& finish) {
    for (const WindowSearch::Effort& effort : kLongSearch) {
      for (int without_gain = 0; without_gain < kRoundsWithoutGain;) {
        if (work() > most_work || finish.stop_requested()) return;
        const double saved_j = Improve(choices_, effort);
        energy_j_ -= saved_j;
        without_gain = saved_j > kNotWorthIt * std::abs(bound_j_) ? 0 : without_gain + 1;
      }
    }
  }

  std::int64_t work() const { return work_ + windows_.tries(); }
  const Choices& choices() const { return choices_; }

 private:
  double Improve(Choices& choices, const WindowSearch::Effort& effort) {
    work_ += kWindowWork * graph_.instructions();
    return windows_.Improve(choices, effort);
  }

  const ChoiceGraph& graph_;
  double bound_j_;
  WindowSearch windows_;
  std::int64_t work_ = 0;
  Choices choices_;
  double energy_j_ = 0;
};

ChoiceSearch::ChoiceSearch(const ChoiceGraph& graph, const frontier::Network& network,
                           const frontier::Solution& solution)
    : graph_(graph),
      network_(network),
      solution_(solution),
      bound_j_(EffectiveBound(network, solution)) {}

Result<void> ChoiceSearch::LookFirst(const std::stop_token& stop) {
  Cycle look(*this, stop);
  look.Consider(WindowsOf(network_, solution_));
  if (stop.stop_requested()) return FailAsStopped();
  best_ = look.choices();
  energy_j_ = graph_.EffectiveEnergy(best_);
  return {};
}

Result<void> ChoiceSearch::RunCycle(const SearchLimits& limits) {
  Cycle cycle(*this, limits.stop);
  const auto most_work = static_cast<std::int64_t>(
      limits.work * static_cast<double>(CycleWork(graph_.instructions())));
  const auto most_start_work =
      static_cast<std::int64_t>(kPartOfStarts * static_cast<double>(most_work));
  const bool is_first = cycles_ == 0;
  if (is_first) cycle.Begin(best_, energy_j_);
  const bool may_skip = is_first && graph_.instructions() > kMostSharpened;
  // A start takes about as much work as the previous start.
  for (std::int64_t start_work = 0; !may_skip && !limits.finish.stop_requested();) {
    const std::int64_t before = cycle.work();
    if (before > 0 && before + start_work > most_start_work) break;
    const int rounds = kSharpeningRounds[At(tilts_) % std::size(kSharpeningRounds)];
    PERSEUS_ASSIGN_OR_RETURN(const Windows schedule,
                             SharpenedWindows(network_, graph_.graph(), solution_,
                                              TiltNumber(tilts_++), rounds, limits.stop));
    cycle.CountSolves(rounds + 1);
    cycle.Consider(schedule);
    if (limits.stop.stop_requested()) return FailAsStopped();
    start_work = cycle.work() - before;
  }
  cycle.SearchLong(most_work, limits.finish);
  if (limits.stop.stop_requested()) return FailAsStopped();
  const double energy_j = graph_.EffectiveEnergy(cycle.choices());
  if (!cycle.choices().empty() && energy_j < energy_j_) {
    best_ = cycle.choices();
    energy_j_ = energy_j;
  }
  ++cycles_;
  return {};
}

Result<Choices> ChoiceSearch::Spend(const SearchLimits& limits) {
  if (best_.empty()) PERSEUS_RETURN_IF_ERROR(LookFirst(limits.stop));
  while (cycles_ < limits.effort && energy_j_ - bound_j_ > kGoodEnough * std::abs(bound_j_) &&
         !limits.finish.stop_requested()) {
    PERSEUS_RETURN_IF_ERROR(RunCycle(limits));
  }
  return best_;
}

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
