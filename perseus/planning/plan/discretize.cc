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
// Instructions in all relaxations solved: about 0.7 s.
constexpr int kMostRelaxedInstructions = 24'000;

constexpr WindowSearch::Effort kFirstLook{8, 1'000};
constexpr WindowSearch::Effort kLongSearch[] = {{10, 5'000}, {12, 20'000}, {14, 100'000}};
constexpr std::int64_t kMostTries = 80'000'000;  // About half a second.
// Gaps, as a part of the effective energy: one that needs no other start, and one not worth a
// round.
constexpr double kGoodEnough = 5e-4;
constexpr double kNotWorthIt = 1e-5;

// Which tilt helps depends on the profile; per microbatch is the best single choice.
Tilt TiltNumber(int number) {
  constexpr double kSizes[] = {0.1, 0.1, 0.1, 0.05, 0.2};
  return {number % 3 == 2 ? TiltBy::kGeneric : TiltBy::kMicrobatch,
          kSizes[At(number) % std::size(kSizes)], static_cast<std::uint64_t>(number)};
}

// The best plan so far, and how good it could be.
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
      // Rounds alternate between three schedules: only when none of them helps is it over.
      for (int fruitless = 0; fruitless < 3;) {
        if (search_.tries() - tries_until_now > kMostTries) return;
        const double saved_j = search_.Improve(choices_, effort);
        energy_j_ -= saved_j;
        fruitless = saved_j > kNotWorthIt * std::abs(bound_j_) ? 0 : fruitless + 1;
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

  // Relaxed optima of large graphs take seconds each.
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
