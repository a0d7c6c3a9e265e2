#include "perseus/planning/noise/noise_bound.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/random.h"
#include "perseus/planning/few_switches/rank_clocks.h"
#include "perseus/planning/few_switches/switch_bound.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::noise {
namespace {

// The ratio of one price to the previous one.
constexpr double kPriceRatio = 1.3;
constexpr int kMostPrices = 60;
// The search ends after this number of prices in a row without a gain.
constexpr int kPricesWithoutGain = 2;
// For each new price, the step size starts as if this number of steps were done, because w is
// already good.
constexpr int kStepsBefore = 300;
// Steps for plans within a limit on clock changes: their total work (LimitedCost::work() is the
// work of one step), their maximum number, and kStepsBefore for them.
constexpr double kLimitedWork = 60e6;
constexpr double kMostLimitedSteps = 400;
constexpr int kLimitedStepsBefore = 10;

// The convex curve of an option set, in seconds, joules and watts.
class Curve {
 public:
  explicit Curve(const profile::Curve& curve) {
    for (const Nanoseconds time : curve.times) times_s_.push_back(ToSeconds(time));
    energies_j_.assign(times_s_.size(), curve.least_effective_energy_j);
    for (std::size_t v = times_s_.size() - 1; v-- > 0;) {
      slopes_w_.insert(slopes_w_.begin(), static_cast<double>(curve.slopes[v].count()) * 1e-6);
      energies_j_[v] = energies_j_[v + 1] + slopes_w_.front() * (times_s_[v + 1] - times_s_[v]);
    }
  }

  // Returns the least value of energy + price * time.
  double LeastCost(double price_w) const {
    const std::size_t v = VertexAt(price_w);
    return energies_j_[v] + price_w * times_s_[v];
  }
  // Returns a time near the time of least cost, continuous in the price. If the price is the slope
  // of a segment, the result is the middle of the segment. Between two slopes, the result is linear
  // in the price.
  double SmoothTime(double price_w) const {
    if (slopes_w_.empty()) return times_s_.front();
    const std::size_t v = VertexAt(price_w);
    const auto middle = [&](std::size_t s) { return (times_s_[s] + times_s_[s + 1]) / 2; };
    const bool is_fastest = v == 0;
    const bool is_slowest = v == slopes_w_.size();
    const double high_w = is_fastest ? kFastestAt * slopes_w_.front() : slopes_w_[v - 1];
    const double low_w = is_slowest ? 0 : slopes_w_[v];
    const double high_s = is_fastest ? times_s_.front() : middle(v - 1);
    const double low_s = is_slowest ? times_s_.back() : middle(v);
    const double part = std::min(1.0, (price_w - low_w) / (high_w - low_w));
    return low_s + part * (high_s - low_s);
  }

 private:
  // From a price of kFastestAt times the steepest slope on, the smooth time is the fastest time.
  static constexpr double kFastestAt = 1.5;

  // The number of slopes above the price.
  std::size_t VertexAt(double price_w) const {
    return At(std::ranges::upper_bound(slopes_w_, price_w, std::greater<>()) - slopes_w_.begin());
  }

  std::vector<double> times_s_;  // Fast to slow.
  std::vector<double> energies_j_;
  std::vector<double> slopes_w_;  // Steepest first.
};

// Weights of paths, or their means.
struct Paths {
  std::vector<double> of_instructions;  // w
  std::vector<double> of_stalls;        // The same as w, but with each factor 1.
  double delays_s = 0;
  double length_s = 0;  // The mean length of the baseline's longest path.
};

// Executes iterations with any durations.
class Executor {
 public:
  explicit Executor(const schedule::InstructionGraph& graph) : first_(1, 0) {
    std::vector<std::vector<Before>> before(graph.instructions.size());
    for (const schedule::Dependency& dependency : graph.dependencies) {
      before[At(dependency.to)].push_back({dependency.from, ToSeconds(dependency.delay)});
    }
    for (const std::vector<Before>& list : before) {
      before_.insert(before_.end(), list.begin(), list.end());
      first_.push_back(before_.size());
    }
    ends_s_.resize(graph.instructions.size());
    chosen_.resize(graph.instructions.size());
  }

  // The longest path in seconds.
  double Run(std::span<const double> times_s, std::span<const double> factors) {
    last_ = 0;
    for (std::size_t i = 0; i < times_s.size(); ++i) {
      double start_s = 0;
      std::size_t chosen = kNone;
      for (std::size_t b = first_[i]; b < first_[i + 1]; ++b) {
        const double ready_s = ends_s_[At(before_[b].instruction)] + before_[b].delay_s;
        if (ready_s < start_s) continue;
        start_s = ready_s;
        chosen = b;
      }
      chosen_[i] = chosen;
      ends_s_[i] = start_s + times_s[i] * factors[i];
      if (ends_s_[i] > ends_s_[last_]) last_ = i;
    }
    return ends_s_[last_];
  }
  // Adds the longest path of the latest run.
  void AddPath(std::span<const double> factors, double share, Paths& paths) const {
    for (std::size_t i = last_;;) {
      paths.of_instructions[i] += share * factors[i];
      paths.of_stalls[i] += share;
      if (chosen_[i] == kNone) return;
      paths.delays_s += share * before_[chosen_[i]].delay_s;
      i = At(before_[chosen_[i]].instruction);
    }
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Before {
    int instruction = 0;
    double delay_s = 0;
  };
  std::vector<std::size_t> first_;  // [instruction] an index into before_.
  std::vector<Before> before_;
  std::vector<double> ends_s_;
  std::vector<std::size_t> chosen_;  // [instruction] an index into before_.
  std::size_t last_ = 0;             // The instruction that ends last.
};

// The least cost of a plan with few clock changes, if each instruction has a price for a second of
// its time.
//
// This uses the program of few_switches/switch_bound.h. There, the prices are a flow, and the value
// of the flow limits the iteration. Here, the prices are the weights of paths under noise.
class LimitedCost {
 public:
  // `most_changes` limits each pp_rank, in an iteration that repeats. Keeps a reference to the
  // planner.
  LimitedCost(const plan::Planner& planner, int most_changes)
      : most_changes_(most_changes),
        ranks_(few_switches::CollectClocks(planner.graph(), planner.model().blocking_power_w)),
        bound_(planner, ranks_, planner.baseline().time, planner.blocking_price()) {
    // With this price, the bound has no term for the deadline. Without flow, it has no term for
    // dependencies.
    prices_.price = planner.blocking_price();
    prices_.flow.assign(planner.network().arcs.size(), 0);
    prices_.of_stalls.assign(planner.graph().instructions.size(), 0);
  }

  // Returns the least sum over all instructions of the effective energy and the price of the time,
  // plus the cost of changes, in J. No plan within the limit on changes costs less. nullopt if no
  // plan keeps the limit. The prices are [instruction], in W, for the time of the instruction and
  // for a stall before it.
  std::optional<double> Solve(std::span<const double> of_times_w,
                              std::span<const double> of_stalls_w) {
    for (std::size_t i = 0; i < of_times_w.size(); ++i) {
      prices_.flow[i] = FromWatts(of_times_w[i]);
      prices_.of_stalls[i] = FromWatts(of_stalls_w[i]);
    }
    best_ = bound_.Solve(prices_, most_changes_);
    if (!best_.exists) return std::nullopt;
    return ToJoules(best_.bound);
  }

  // Calls visit(instruction, seconds) for every instruction with a clock. `seconds` is its time in
  // the plan that Solve found.
  template <typename Visit>
  void ForEachTime(const Visit& visit) const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const few_switches::RankClocks& rank = ranks_[r];
      for (int p = 0; p < rank.positions(); ++p) {
        visit(rank.instructions[At(p)],
              ToSeconds(rank.times[rank.Cell(p, best_.clocks[r][At(p)])]));
      }
    }
  }
  // The work of one call of Solve: about positions * clocks * (changes + 2).
  double work() const {
    double choices = 0;
    for (const few_switches::RankClocks& rank : ranks_) {
      choices += static_cast<double>(rank.positions()) * rank.clocks;
    }
    return choices * (most_changes_ + 2);
  }

 private:
  int most_changes_;
  std::vector<few_switches::RankClocks> ranks_;
  few_switches::SwitchBound bound_;
  few_switches::Prices prices_;
  few_switches::SwitchBound::Answer best_;
};

class FrankWolfe {
 public:
  FrankWolfe(const plan::Planner& planner, const Noise& noise, const BoundLimits& limits)
      : graph_(planner.graph()), noise_(noise), limits_(limits), executor_(planner.graph()) {
    random_.state = limits.seed;
    for (const profile::Curve& curve : planner.network().curves) {
      curves_.emplace_back(curve);
      if (curves_.size() == graph_.option_sets.size()) break;  // The rest belong to dependencies.
    }
    const double blocking_w = planner.model().blocking_power_w;
    const std::vector<int> options = schedule::BaselineOptions(graph_);
    for (std::size_t i = 0; i < graph_.instructions.size(); ++i) {
      const profile::Option& option =
          graph_.options_of(static_cast<int>(i)).options[At(options[i])];
      baseline_times_s_.push_back(ToSeconds(option.time));
      baseline_energy_j_ += profile::EffectiveEnergy(option, blocking_w);
    }
    times_s_ = baseline_times_s_;
    const std::vector<double> no_noise(times_s_.size(), 1);
    quiet_length_s_ = executor_.Run(times_s_, no_noise);
    quiet_path_.of_instructions.assign(times_s_.size(), 0);
    quiet_path_.of_stalls = quiet_path_.of_instructions;
    executor_.AddPath(no_noise, 1, quiet_path_);
    paths_ = Sampled();
    if (limits.most_changes) limited_.emplace(planner, *limits.most_changes);
  }

  // Optimizes the paths for a price.
  void Optimize(double price_w) {
    for (int k = 0; k < limits_.steps; ++k) {
      for (std::size_t i = 0; i < times_s_.size(); ++i) {
        times_s_[i] = CurveOf(i).SmoothTime(price_w * paths_.of_instructions[i]);
      }
      MoveTowards(Sampled(), Step(k + kStepsBefore));
    }
  }
  // The same for plans within the limit of clock changes. Requires a limit.
  void OptimizeWithinLimit(double price_w) {
    const auto steps =
        static_cast<int>(std::min(kMostLimitedSteps, 1 + kLimitedWork / limited_->work()));
    for (int k = 0; k < steps; ++k) {
      if (!SolveWithinLimit(price_w)) return;
      const double step = k == 0 ? 1 : Step(k + kLimitedStepsBefore);
      limited_->ForEachTime([&](int instruction, double time_s) {
        double& mean_s = times_s_[At(instruction)];
        mean_s += step * (time_s - mean_s);
      });
      MoveTowards(Sampled(), Step(k + kLimitedStepsBefore));
    }
  }

  // The least cost of all plans (within the limit, if there is one) with these paths.
  double LeastCost(double price_w) {
    double cost_j = price_w * paths_.delays_s;
    if (limited_) {
      if (const auto limited_j = SolveWithinLimit(price_w)) return cost_j + *limited_j;
    }
    for (std::size_t i = 0; i < times_s_.size(); ++i) {
      cost_j += CurveOf(i).LeastCost(price_w * paths_.of_instructions[i]);
    }
    return cost_j;
  }

  const Paths& paths() const { return paths_; }
  void Restore(const Paths& paths) { paths_ = paths; }
  bool has_limit() const { return limited_.has_value(); }
  // The baseline's mean time in the samples of the present paths.
  double baseline_time_s() const { return paths_.length_s; }
  // The baseline's mean time from all samples. The mean length of the path that is longest without
  // noise is known exactly. So only one part has an error: by how much the longest path of each
  // sample is longer.
  double exact_baseline_time_s() const {
    return quiet_length_s_ + longer_s_ / static_cast<double>(samples_);
  }
  // The effective energy of the baseline.
  double baseline_energy_j() const { return baseline_energy_j_; }

 private:
  const Curve& CurveOf(std::size_t instruction) const {
    return curves_[At(graph_.instructions[instruction].option_set)];
  }

  // The length of the baseline's longest path without noise, with these factors.
  double QuietPath(std::span<const double> factors) const {
    double length_s = quiet_path_.delays_s;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      length_s += quiet_path_.of_instructions[i] * factors[i] * baseline_times_s_[i];
    }
    return length_s;
  }

  static double Step(int steps_before) { return 2.0 / (steps_before + 2); }

  void MoveTowards(const Paths& sampled, double step) {
    const auto move = [&](double& value, double to) { value += step * (to - value); };
    for (std::size_t i = 0; i < times_s_.size(); ++i) {
      move(paths_.of_instructions[i], sampled.of_instructions[i]);
      move(paths_.of_stalls[i], sampled.of_stalls[i]);
    }
    move(paths_.delays_s, sampled.delays_s);
    move(paths_.length_s, sampled.length_s);
  }

  std::optional<double> SolveWithinLimit(double price_w) {
    std::vector<double> of_times_w = paths_.of_instructions;
    std::vector<double> of_stalls_w = paths_.of_stalls;
    for (double& price : of_times_w) price *= price_w;
    for (double& price : of_stalls_w) price *= price_w;
    return limited_->Solve(of_times_w, of_stalls_w);
  }

  // Returns the mean over new samples.
  Paths Sampled() {
    Paths paths{.of_instructions = std::vector<double>(times_s_.size(), 0),
                .of_stalls = std::vector<double>(times_s_.size(), 0)};
    const double share = 1.0 / limits_.samples;
    for (int s = 0; s < limits_.samples; ++s) {
      const std::vector<double> factors = Sample(graph_, noise_, random_).time_factors;
      const double length_s = executor_.Run(baseline_times_s_, factors);
      paths.length_s += share * length_s;
      longer_s_ += length_s - QuietPath(factors);
      ++samples_;
      executor_.Run(times_s_, factors);
      executor_.AddPath(factors, share, paths);
    }
    return paths;
  }

  const schedule::InstructionGraph& graph_;
  Noise noise_;
  BoundLimits limits_;
  Executor executor_;
  SplitMix64 random_;
  std::vector<Curve> curves_;  // [option set]
  std::vector<double> baseline_times_s_;
  double baseline_energy_j_ = 0;
  double quiet_length_s_ = 0;  // The length of the baseline without noise.
  Paths quiet_path_;
  double longer_s_ = 0;  // The length above the quiet path, summed over all samples.
  std::int64_t samples_ = 0;
  std::vector<double> times_s_;
  Paths paths_;
  std::optional<LimitedCost> limited_;
};

}  // namespace

// Collects the lines of a bound.
class NoiseBound::Search {
 public:
  Search(const plan::Planner& planner, const Noise& noise, const BoundLimits& limits)
      : planner_(planner),
        limits_(limits),
        waiting_w_(planner.model().blocking_power_w * planner.pp_ranks()),
        paths_(planner, noise, limits) {}

  // Tries prices from low to high. Ends when they gain nothing at the least slowdown.
  void TryPrices(double least_slowdown) {
    double price_w = waiting_w_ > 0 ? waiting_w_ : 1;
    int without_gain = 0;
    for (int n = 0; n < kMostPrices && without_gain < kPricesWithoutGain; ++n) {
      if (n > 0 && limits_.finish.stop_requested()) return;
      const double before = bound_.MostSaving(least_slowdown);
      paths_.Optimize(price_w);
      AddLineOf(price_w);
      if (paths_.has_limit()) tried_.push_back({price_w, paths_.paths()});
      without_gain = bound_.MostSaving(least_slowdown) < before ? 0 : without_gain + 1;
      price_w *= kPriceRatio;
    }
  }

  // Makes more steps at the best price for the slowdown. Does the same at neighboring prices, as
  // long as the line gets better.
  void ImproveWithinLimit(double slowdown) {
    if (!paths_.has_limit()) return;
    const auto of_line = [&](std::size_t n) { return bound_.lines_[n].At(slowdown); };
    int best = 0;  // The first lines are those of the prices.
    for (int n = 1; n < Count(tried_); ++n) {
      if (of_line(At(n)) < of_line(At(best))) best = n;
    }
    for (const int direction : {1, -1}) {
      double last = of_line(ImprovedLine(best));
      for (int n = best + direction; n >= 0 && n < Count(tried_); n += direction) {
        if (limits_.finish.stop_requested()) return;
        const double own = of_line(ImprovedLine(n));
        if (own >= last) break;
        last = own;
      }
    }
  }

  // Adds the line of the bound without noise. This line is also valid with noise.
  void AddLineWithoutNoise(double slowdown) {
    const auto deadline =
        static_cast<Nanoseconds>(static_cast<double>(planner_.baseline().time) * (1 + slowdown));
    const auto relaxed = planner_.Relax(deadline, planner_.blocking_price());
    if (!relaxed) return;  // No plan is so fast.
    const Nanoseconds time = relaxed->time(planner_.network());
    const double slope_w = std::max(0.0, ToWatts(relaxed->price) - waiting_w_);
    AddLine(planner_.BoundOf(time, relaxed->extra_energy) + slope_w * ToSeconds(time), slope_w,
            paths_.exact_baseline_time_s());
  }

  NoiseBound Take() { return std::move(bound_); }

 private:
  struct Tried {
    double price_w = 0;
    Paths paths;
    std::optional<std::size_t> improved_line = {};
  };

  static int Count(const std::vector<Tried>& tried) { return static_cast<int>(tried.size()); }

  // Adds a line: no plan that takes `time_s` on average has less energy than energy_j - slope_w *
  // time_s. The baseline takes `baseline_s`.
  void AddLine(double energy_j, double slope_w, double baseline_s) {
    const double baseline_j = paths_.baseline_energy_j() + waiting_w_ * baseline_s;
    const double of_slowdown = slope_w * baseline_s / baseline_j;
    bound_.lines_.push_back({1 - energy_j / baseline_j + of_slowdown, of_slowdown});
  }
  void AddLineOf(double price_w) {
    AddLine(paths_.LeastCost(price_w), price_w - waiting_w_, paths_.baseline_time_s());
  }

  std::size_t ImprovedLine(int number) {
    Tried& one = tried_[At(number)];
    if (!one.improved_line) {
      paths_.Restore(one.paths);
      paths_.OptimizeWithinLimit(one.price_w);
      one.improved_line = bound_.lines_.size();
      AddLineOf(one.price_w);
    }
    return *one.improved_line;
  }

  const plan::Planner& planner_;
  BoundLimits limits_;
  double waiting_w_;
  FrankWolfe paths_;
  std::vector<Tried> tried_;
  NoiseBound bound_;
};

NoiseBound ComputeNoiseBound(const plan::Planner& planner, const Noise& noise,
                             std::span<const double> slowdowns, const BoundLimits& limits) {
  NoiseBound::Search search(planner, noise, limits);
  search.TryPrices(std::ranges::min(slowdowns));
  for (const double slowdown : slowdowns) {
    search.ImproveWithinLimit(slowdown);
    search.AddLineWithoutNoise(slowdown);
  }
  return search.Take();
}

}  // namespace perseus::noise
