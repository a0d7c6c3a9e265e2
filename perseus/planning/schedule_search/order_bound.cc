#include "perseus/planning/schedule_search/order_bound.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::schedule_search {
namespace {

using Kind = InstructionKind;

// The windows of a pp_rank (order_bound.h).
enum Window { kWhole, kSuffix, kMiddle };
constexpr int kWindows = 3;

// Returns the curve of an instruction if its time has a price. The curve ends where each further
// second saves at most the price.
profile::Curve PricedCurve(profile::Curve curve, Microwatts price) {
  std::size_t kept = 0;
  while (kept < curve.slopes.size() && curve.slopes[kept] > price) ++kept;
  curve.slopes.resize(kept);
  curve.times.resize(kept + 1);
  for (Microwatts& slope : curve.slopes) slope -= price;
  return curve;
}

// The network without orders. Its instructions are all forwards and all backwards. In addition,
// each pp_rank has an instant before its first forward, an instant after its last backward, and its
// windows.
class OrderFreeJob {
 public:
  static Result<OrderFreeJob> Create(const SearchJob& job, Nanoseconds deadline,
                                     const MemoryLimit& limit) {
    OrderFreeJob free;
    free.pp_ranks_ = job.pp_ranks;
    free.microbatches_ = job.microbatches;
    free.deadline_ = deadline;
    free.blocking_power_w_ = job.execution.blocking_power_w;
    for (int pp_rank = 0; pp_rank < free.pp_ranks_; ++pp_rank) {
      const std::int64_t size = std::max<std::int64_t>(1, limit.size_of_stage[At(pp_rank)]);
      free.held_.push_back(static_cast<int>(
          std::clamp<std::int64_t>(limit.of_pp_rank[At(pp_rank)] / size, 1, free.microbatches_)));
      for (const Kind kind : {Kind::kForward, Kind::kBackward}) {
        std::vector<profile::Option> options = job.profile.Find(pp_rank, 0, kind)->options;
        for (profile::Option& option : options) option.energy_j *= job.model.gpus_per_stage;
        PERSEUS_ASSIGN_OR_RETURN(auto curve, profile::LowerHull(options, free.blocking_power_w_));
        free.curves_.push_back(std::move(curve));
      }
    }
    free.AddDependencies(job);
    free.AddFixedInstructions(job);
    return free;
  }

  // The bound for these prices, and by how much the work of each window exceeds its time (ns).
  struct Outcome {
    double bound_j = 0;
    std::vector<Nanoseconds> excess;
    std::vector<Nanoseconds> event_times = {};
  };
  // Solves for `prices` ([kWindows * pp_rank + window]). `near` has the event times of a solution
  // for other prices, which the solver starts from (deadline.h). Empty: no such solution.
  Result<Outcome> Solve(const std::vector<Microwatts>& prices,
                        std::span<const Nanoseconds> near) const {
    const PricedCurves priced = Price(prices);
    PERSEUS_ASSIGN_OR_RETURN(
        const auto network,
        frontier::BuildNetwork(priced.curves, priced.curve_of_instruction, dependencies_));
    const auto floor = FromWatts(blocking_power_w_ * pp_ranks_);
    PERSEUS_ASSIGN_OR_RETURN(const auto solution,
                             frontier::SolveDeadline(network, deadline_, floor, {}, near));
    PERSEUS_RETURN_IF_ERROR(frontier::CheckDeadline(network, solution, deadline_, floor));

    Outcome outcome{.bound_j = priced.constant_j + ToJoules(solution.extra_energy) +
                               ToWatts(floor) * ToSeconds(solution.time(network)),
                    .excess = {}};
    const auto duration = [&](int instruction) {
      const frontier::Arc& arc = network.arcs[At(instruction)];
      return solution.event_times[At(arc.head)] - solution.event_times[At(arc.tail)];
    };
    const auto work = [&](int instruction) {
      const std::size_t curve = At(priced.curve_of_instruction[At(instruction)]);
      return std::min(duration(instruction), priced.curves[curve].slowest());
    };
    const auto excess = [&](int pp_rank, int window) {
      if (window >= WindowsOf(pp_rank)) return Nanoseconds{0};
      Nanoseconds all_work = 0;
      const Contents forwards = ContentsOf(pp_rank, window, Kind::kForward);
      const Contents backwards = ContentsOf(pp_rank, window, Kind::kBackward);
      for (int m = forwards.first; m <= forwards.last; ++m) all_work += work(Forward(pp_rank, m));
      for (int m = backwards.first; m <= backwards.last; ++m)
        all_work += work(Backward(pp_rank, m));
      return all_work - duration(WindowOf(pp_rank, window));
    };
    for (int pp_rank = 0; pp_rank < pp_ranks_; ++pp_rank) {
      for (int window = 0; window < kWindows; ++window) {
        outcome.excess.push_back(excess(pp_rank, window));
      }
    }
    outcome.event_times = solution.event_times;
    return outcome;
  }

  int windows() const { return kWindows * pp_ranks_; }
  // For each second by which a pp_rank is slowed down, it saves at most the steepest slope of its
  // curves (energy per second). So a second of time is worth at most the sum of these slopes over
  // all pp_ranks.
  double MostPriceW() const {
    double sum_w = 0;
    for (std::size_t i = 0; i < curves_.size(); i += 2) {
      Microwatts steepest = 0;
      for (const profile::Curve* curve : {&curves_[i], &curves_[i + 1]}) {
        if (!curve->slopes.empty()) steepest = std::max(steepest, curve->slopes.front());
      }
      sum_w += ToWatts(steepest);
    }
    return sum_w;
  }

  int instructions() const { return 2 * pp_ranks_ * microbatches_; }

 private:
  struct PricedCurves {
    std::vector<profile::Curve> curves;
    std::vector<std::int32_t> curve_of_instruction;
    double constant_j = 0;  // The energy that the curves leave out.

    std::int32_t Add(profile::Curve curve) {
      curves.push_back(std::move(curve));
      return static_cast<std::int32_t>(curves.size()) - 1;
    }
  };
  PricedCurves Price(const std::vector<Microwatts>& prices) const {
    PricedCurves priced{.curves = {},
                        .curve_of_instruction = std::vector<std::int32_t>(
                            At(instructions() + (2 + kWindows) * pp_ranks_), 0),
                        .constant_j = fixed_j_};
    // Curve 0 is the curve of the instants, which take no time.
    priced.Add({.times = {0}, .slopes = {}, .options = {}, .least_effective_energy_j = 0});
    for (int pp_rank = 0; pp_rank < pp_ranks_; ++pp_rank) {
      PriceComputations(pp_rank, Kind::kForward, prices, priced);
      PriceComputations(pp_rank, Kind::kBackward, prices, priced);
      for (int window = 0; window < WindowsOf(pp_rank); ++window) {
        profile::Curve curve =
            WindowCurve(pp_rank, window, prices[At(kWindows * pp_rank + window)]);
        if (!curve.slopes.empty()) {
          priced.constant_j -= ToWatts(curve.slopes.front()) * ToSeconds(curve.slowest());
        }
        priced.curve_of_instruction[At(WindowOf(pp_rank, window))] = priced.Add(std::move(curve));
      }
    }
    return priced;
  }

  void PriceComputations(int pp_rank, Kind kind, const std::vector<Microwatts>& prices,
                         PricedCurves& priced) const {
    const bool is_forward = kind == Kind::kForward;
    const profile::Curve& original = curves_[At(2 * pp_rank + (is_forward ? 0 : 1))];
    std::map<Microwatts, std::int32_t> curve_of_price;
    for (int m = 0; m < microbatches_; ++m) {
      Microwatts price = 0;
      for (int window = 0; window < WindowsOf(pp_rank); ++window) {
        if (!ContentsOf(pp_rank, window, kind).Has(m)) continue;
        price += prices[At(kWindows * pp_rank + window)];
      }
      const auto [curve, is_new] = curve_of_price.try_emplace(price);
      if (is_new) curve->second = priced.Add(PricedCurve(original, price));
      const int instruction = is_forward ? Forward(pp_rank, m) : Backward(pp_rank, m);
      priced.curve_of_instruction[At(instruction)] = curve->second;
      const Nanoseconds slowest = priced.curves[At(curve->second)].slowest();
      priced.constant_j += original.least_effective_energy_j +
                           ToJoules(original.ExtraEnergyAt(slowest)) +
                           ToWatts(price) * ToSeconds(slowest);
    }
  }

  // Returns the curve of a window. No window is longer than the deadline, so its arc never reaches
  // the end of this curve.
  profile::Curve WindowCurve(int pp_rank, int window, Microwatts price) const {
    Nanoseconds least_work = 0;
    for (const Kind kind : {Kind::kForward, Kind::kBackward}) {
      const profile::Curve& curve = curves_[At(2 * pp_rank + (kind == Kind::kForward ? 0 : 1))];
      least_work += ContentsOf(pp_rank, window, kind).count() * curve.fastest();
    }
    profile::Curve priced{
        .times = {least_work}, .slopes = {}, .options = {}, .least_effective_energy_j = 0};
    if (price > 0) {
      priced.times.push_back(std::max(deadline_, least_work) + 1);
      priced.slopes.push_back(price);
    }
    return priced;
  }

  int Forward(int pp_rank, int microbatch) const { return pp_rank * microbatches_ + microbatch; }
  int Backward(int pp_rank, int microbatch) const {
    return pp_ranks_ * microbatches_ + Forward(pp_rank, microbatch);
  }
  int Begin(int pp_rank) const { return instructions() + pp_rank; }
  int End(int pp_rank) const { return Begin(pp_rank) + pp_ranks_; }
  int WindowOf(int pp_rank, int window) const {
    return instructions() + 2 * pp_ranks_ + kWindows * pp_rank + window;
  }

  // The range of microbatches whose forwards (or backwards) are in a window.
  struct Contents {
    int first = 0;
    int last = -1;
    int count() const { return std::max(0, last - first + 1); }
    bool Has(int microbatch) const { return first <= microbatch && microbatch <= last; }
  };
  Contents ContentsOf(int pp_rank, int window, Kind kind) const {
    const int held = held_[At(pp_rank)];
    const int last = microbatches_ - 1;
    if (window == kWhole) return {0, last};
    if (kind == Kind::kForward) return {held, window == kMiddle ? last - 1 : last};
    return {1, window == kMiddle ? last - held : last};
  }

  // Returns the number of windows of a pp_rank that are not empty.
  int WindowsOf(int pp_rank) const {
    // The middle window ends with the last forward. If memory does not put the last forward after
    // the first backward, this window does not exist.
    if (microbatches_ > held_[At(pp_rank)]) return kWindows;
    return microbatches_ > 1 ? kMiddle : kSuffix;
  }

  void AddDependencies(const SearchJob& job) {
    const Nanoseconds p2p = job.model.fixed.p2p;
    const int last = microbatches_ - 1;
    for (int pp_rank = 0; pp_rank < pp_ranks_; ++pp_rank) {
      const int held = held_[At(pp_rank)];
      for (int m = 0; m < microbatches_; ++m) {
        Add(Forward(pp_rank, m), Backward(pp_rank, m));
        if (m > 0) {
          Add(Forward(pp_rank, m - 1), Forward(pp_rank, m));
          Add(Backward(pp_rank, m - 1), Backward(pp_rank, m));
        }
        if (m + held < microbatches_) Add(Backward(pp_rank, m), Forward(pp_rank, m + held));
        if (pp_rank > 0) {
          Add(Forward(pp_rank - 1, m), m == 0 ? Begin(pp_rank) : Forward(pp_rank, m), p2p);
          Add(m == last ? End(pp_rank) : Backward(pp_rank, m), Backward(pp_rank - 1, m), p2p);
        }
      }
      Add(Begin(pp_rank), Forward(pp_rank, 0));
      Add(Backward(pp_rank, last), End(pp_rank));
      AddWindows(pp_rank);
    }
  }

  void AddWindows(int pp_rank) {
    const int windows = WindowsOf(pp_rank);
    Add(Begin(pp_rank), WindowOf(pp_rank, kWhole));
    Add(WindowOf(pp_rank, kWhole), End(pp_rank));
    if (windows > kSuffix) {
      Add(Backward(pp_rank, 0), WindowOf(pp_rank, kSuffix));
      Add(WindowOf(pp_rank, kSuffix), End(pp_rank));
    }
    if (windows > kMiddle) {
      Add(Backward(pp_rank, 0), WindowOf(pp_rank, kMiddle));
      Add(WindowOf(pp_rank, kMiddle), Forward(pp_rank, microbatches_ - 1));
    }
  }

  // Every pp_rank ends with the all-reduce and the optimizer, so the computations have less time.
  // The time of loading is left out, which can only lower the bound.
  void AddFixedInstructions(const SearchJob& job) {
    const schedule::FixedInstructions& fixed = job.model.fixed;
    const auto effective_j = [&](const schedule::FixedInstructions::Cost& cost) {
      if (cost.energy_j < 0 || cost.time == 0)
        return 0.0;  // The instruction draws the blocking power, or is absent.
      return (cost.energy_j - job.model.blocking_power_w * ToSeconds(cost.time)) *
             job.model.gpus_per_stage;
    };
    const Nanoseconds at_end = fixed.all_reduce.time + fixed.optimizer.time;
    deadline_ -= at_end;
    fixed_j_ = microbatches_ * effective_j(fixed.load) +
               pp_ranks_ * (effective_j(fixed.all_reduce) + effective_j(fixed.optimizer) +
                            blocking_power_w_ * ToSeconds(at_end));
  }

  void Add(int from, int to, Nanoseconds delay = 0) { dependencies_.push_back({from, to, delay}); }

  int pp_ranks_ = 0;
  int microbatches_ = 0;
  std::vector<int> held_;     // [pp_rank] The maximum number of microbatches.
  Nanoseconds deadline_ = 0;  // For the computations.
  double blocking_power_w_ = 0;
  double fixed_j_ = 0;                  // The energy of fixed instructions, with the waiting of all
                                        // pp_ranks while those at the end run.
  std::vector<profile::Curve> curves_;  // [2 * pp_rank]: forward, [2 * pp_rank + 1]: backward.
  std::vector<schedule::Dependency> dependencies_;
};

// Returns fewer steps for larger jobs, like the evaluations of the search.
int AscentSteps(int instructions) { return std::max(12, UsualEvaluations(instructions) / 5); }

// Raises the bound. Each price has its own step size. The step grows while the price moves in the
// same direction, and shrinks when the direction changes. If the optimum of the durations is not
// unique, a window may have too much work at any price. So prices and steps are limited.
Result<double> Ascend(const OrderFreeJob& job, const std::stop_token& finish) {
  constexpr double kFirstStepW = 20;
  constexpr double kGrow = 1.3;
  constexpr double kShrink = 0.5;
  std::vector<double> prices_w(At(job.windows()), 0);
  std::vector<double> steps_w(prices_w.size(), kFirstStepW);
  std::vector<bool> rose(prices_w.size(), true);
  const double most_w = job.MostPriceW();
  double best_j = 0;
  std::vector<Nanoseconds> event_times;
  for (int step = 0; step < AscentSteps(job.instructions()); ++step) {
    std::vector<Microwatts> prices;
    for (const double price_w : prices_w) {
      prices.push_back(FromWatts(price_w));
    }
    PERSEUS_ASSIGN_OR_RETURN(auto outcome, job.Solve(prices, event_times));
    event_times = std::move(outcome.event_times);
    best_j = std::max(best_j, outcome.bound_j);
    if (finish.stop_requested()) break;
    for (std::size_t i = 0; i < prices_w.size(); ++i) {
      const bool rises = outcome.excess[i] > 0;
      steps_w[i] = std::min(most_w, steps_w[i] * (rises == rose[i] ? kGrow : kShrink));
      rose[i] = rises;
      prices_w[i] = std::clamp(prices_w[i] + (rises ? steps_w[i] : -steps_w[i]), 0.0, most_w);
    }
  }
  return best_j;
}

bool HasOnlyForwardsAndBackwards(const profile::Profile& profile) {
  return profile.chunks() == 1 && std::ranges::all_of(profile.entries(), [](const auto& entry) {
           return entry.kind == Kind::kForward || entry.kind == Kind::kBackward;
         });
}

}  // namespace

Result<std::optional<double>> BoundOfAnyOrder(const SearchJob& job, Nanoseconds deadline,
                                              const MemoryLimit& limit,
                                              const std::stop_token& finish) {
  if (!HasOnlyForwardsAndBackwards(job.profile)) return std::optional<double>();
  PERSEUS_ASSIGN_OR_RETURN(const auto free, OrderFreeJob::Create(job, deadline, limit));
  PERSEUS_ASSIGN_OR_RETURN(const double bound_j, Ascend(free, finish));
  return std::optional<double>(bound_j);
}

}  // namespace perseus::schedule_search
