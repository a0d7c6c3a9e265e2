#include "perseus/planning/plan/discretize.h"

#include <algorithm>
#include <cmath>

#include "perseus/base/index.h"
#include "perseus/base/stopped.h"
#include "perseus/planning/plan/rounding.h"
#include "perseus/planning/plan/sharpening.h"
#include "perseus/planning/plan/window_search.h"

namespace perseus::plan {
namespace {

constexpr int kSharpeningRounds = 4;
constexpr int kMostTilts = 12;
// The sum of instructions over all relaxations that are solved. These take about 0.7 s.
constexpr int kMostRelaxedInstructions = 24'000;

constexpr WindowSearch::Effort kFirstLook{8, 1'000};
constexpr WindowSearch::Effort kLongSearch[] = {{10, 5'000}, {12, 20'000}, {14, 100'000}};
constexpr std::int64_t kMostTries = 80'000'000;  // About half a second.
// With a smaller gap (divided by the effective energy), no further relaxed schedule is tried.
constexpr double kGoodEnough = 5e-4;
// A round that saves less (divided by the effective energy) counts as no improvement.
constexpr double kNotWorthIt = 1e-5;

// The best tilt depends on the profile. If only one were tried, it should be by microbatch.
Tilt TiltNumber(int number) {
  constexpr double kSizes[] = {0.1, 0.1, 0.1, 0.05, 0.2};
  return {number % 3 == 2 ? TiltBy::kInstruction : TiltBy::kMicrobatch,
          kSizes[At(number) % std::size(kSizes)], static_cast<std::uint64_t>(number)};
}

// The best plan so far, and its lower bound.
class Best {
 public:
  Best(const ChoiceGraph& graph, WindowSearch& search, double bound_j)
      : graph_(graph), search_(search), bound_j_(bound_j) {}

  void Consider(const Windows& windows) {
    for (const TimeDirection direction : {TimeDirection::kForward, TimeDirection::kBackward}) {
      Choices choices = DiffuseRounding(graph_, windows, direction);
      search_.Improve(choices, kFirstLook);
      const double energy_j = graph_.EffectiveEnergy(choices);
      if (choices_.empty() || energy_j < energy_j_) {
        choices_ = std::move(choices);
        energy_j_ = energy_j;
      }
    }
  }

  void SearchLong() {
    const std::int64_t tries_until_now = search_.tries();
    for (const WindowSearch::Effort& effort : kLongSearch) {
      // Rounds alternate between three schedules. The search ends when none of them helps.
      for (int without_gain = 0; without_gain < 3;) {
        if (search_.tries() - tries_until_now > kMostTries) return;
        const double saved_j = search_.Improve(choices_, effort);
        energy_j_ -= saved_j;
        without_gain = saved_j > kNotWorthIt * std::abs(bound_j_) ? 0 : without_gain + 1;
      }
    }
  }

  bool good_enough() const { return energy_j_ - bound_j_ < kGoodEnough * std::abs(bound_j_); }
  const Choices& choices() const { return choices_; }

 private:
  const ChoiceGraph& graph_;
  WindowSearch& search_;
  double bound_j_;
  Choices choices_;
  double energy_j_ = 0;
};

double EffectiveBound(const frontier::Network& network, const frontier::Solution& solution) {
  double bound_j = ToJoules(solution.extra_energy);
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    bound_j += network.curve_of(network.arcs[At(i)]).least_effective_energy_j;
  }
  return bound_j;
}

}  // namespace

Result<Choices> Discretize(const ChoiceGraph& graph, const frontier::Network& network,
                           const frontier::Solution& solution, const SearchLimits& limits) {
  WindowSearch search(graph, network, solution, limits.stop);
  Best best(graph, search, EffectiveBound(network, solution));
  best.Consider(WindowsOf(network, solution));
  if (limits.stop.stop_requested()) return FailAsStopped();
  if (limits.effort == SearchEffort::kFirstLook) return best.choices();

  // A relaxed optimum of a large graph takes seconds, so large graphs get fewer of them.
  const int relaxations = kMostRelaxedInstructions / graph.instructions();
  const int rounds = std::min(kSharpeningRounds, relaxations - 1);
  const int tilts = rounds < 0 ? 0 : std::min(kMostTilts, relaxations / (rounds + 1));
  for (int i = 0; i < tilts && !best.good_enough(); ++i) {
    PERSEUS_ASSIGN_OR_RETURN(const Windows windows,
                             SharpenedWindows(network, graph.graph(), solution.time(network),
                                              TiltNumber(i), rounds, limits.stop));
    best.Consider(windows);
    if (limits.stop.stop_requested()) return FailAsStopped();
  }
  best.SearchLong();
  if (limits.stop.stop_requested()) return FailAsStopped();
  return best.choices();
}

}  // namespace perseus::plan
