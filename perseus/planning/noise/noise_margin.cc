#include "perseus/planning/noise/noise_margin.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::noise {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::uint64_t kCheckSeed = 1'000'003;
constexpr int kChecks = 6;
constexpr double kLateStep = 1e-6;

// The useful options of an option set, from the fastest to the cheapest.
struct Ladder {
  std::vector<int> options;
  std::vector<double> times_s;
  std::vector<double> costs_j;  // Effective energies: without the waiting that they replace.

  // The place of the option, or of the slowest useful one that is no slower.
  std::size_t PlaceOf(const schedule::OptionSet& set, int option) const {
    std::size_t place = 0;
    for (std::size_t k = 0; k < options.size(); ++k) {
      if (options[k] == option) return k;
      if (set.options[At(options[k])].time <= set.options[At(option)].time) place = k;
    }
    return place;
  }
};

class Descent {
 public:
  Descent(const plan::Planner& planner, const Noise& noise, const MarginLimits& limits,
          std::span<const int> options)
      : planner_(planner),
        execution_(planner.graph(), planner.model(), noise, limits.samples, kSeed),
        runs_left_(limits.runs),
        fixed_(options.begin(), options.end()) {
    const schedule::InstructionGraph& graph = planner.graph();
    for (const schedule::OptionSet& set : graph.option_sets) {
      Ladder& ladder = ladders_.emplace_back();
      const double power_w = planner.model().blocking_power_w;
      ladder.options = profile::ParetoFront(set.options, power_w);
      for (const int option : ladder.options) {
        ladder.times_s.push_back(ToSeconds(set.options[At(option)].time));
        ladder.costs_j.push_back(profile::EffectiveEnergy(set.options[At(option)], power_w));
      }
    }
    for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
      const int set = graph.instructions[i].option_set;
      places_.push_back(ladders_[At(set)].PlaceOf(graph.option_sets[At(set)], options[i]));
    }
    mean_ = Run(places_);
  }

  const NoisyMean& mean() const { return mean_; }
  std::vector<int> options() const { return OptionsAt(places_); }
  int runs_left() const { return runs_left_; }
  double MeanTimeOf(std::span<const int> options) { return execution_.Run(options).time_s; }

  // Returns false if the fastest options take longer than `target_s`.
  bool Repair(double target_s) { return RepairFrom(places_, mean_, target_s); }

  void Polish(double target_s) {
    double budget_s = kFirstBudget * target_s;
    while (budget_s > kLastBudget * target_s && runs_left_ > 0) {
      Places places = places_;
      if (!SlowDown(places, budget_s)) return;
      NoisyMean mean = Run(places);
      if (RepairFrom(places, mean, target_s) && mean.energy_j < mean_.energy_j) {
        places_ = std::move(places);
        mean_ = std::move(mean);
      } else {
        budget_s /= 2;
      }
    }
  }

 private:
  using Places = std::vector<std::size_t>;
  // Of a step of polishing, as parts of the time of an iteration.
  static constexpr double kFirstBudget = 2e-3;
  static constexpr double kLastBudget = 1e-6;
  // An instruction that was never critical may become so.
  static constexpr double kLeastCriticality = 0.01;

  struct Move {
    std::size_t instruction = 0;
    double price = 0;   // Joules per second of mean time.
    double time_s = 0;  // Of mean time, to first order.
  };

  const Ladder& LadderOf(std::size_t instruction) const {
    return ladders_[At(planner_.graph().instructions[instruction].option_set)];
  }
  // Instructions that were not moved keep their option, which need not be on the ladder.
  std::vector<int> OptionsAt(const Places& places) const {
    std::vector<int> options = fixed_;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const schedule::OptionSet& set =
          planner_.graph().option_sets[At(planner_.graph().instructions[i].option_set)];
      if (LadderOf(i).PlaceOf(set, fixed_[i]) == places[i]) continue;
      options[i] = LadderOf(i).options[places[i]];
    }
    return options;
  }
  NoisyMean Run(const Places& places) {
    --runs_left_;
    return execution_.Run(OptionsAt(places));
  }

  // Makes the cheapest instructions faster until the mean time is short enough.
  bool RepairFrom(Places& places, NoisyMean& mean, double target_s) {
    while (mean.time_s > target_s) {
      std::vector<Move> moves;
      for (std::size_t i = 0; i < places.size(); ++i) {
        if (places[i] == 0 || mean.criticality[i] <= 0) continue;
        const Ladder& ladder = LadderOf(i);
        const double shorter_s = ladder.times_s[places[i]] - ladder.times_s[places[i] - 1];
        const double cost_j = ladder.costs_j[places[i] - 1] - ladder.costs_j[places[i]];
        const double time_s = mean.criticality[i] * shorter_s;
        if (time_s > 0) moves.push_back({i, cost_j / time_s, time_s});
      }
      if (moves.empty()) return false;
      std::stable_sort(moves.begin(), moves.end(),
                       [](const Move& a, const Move& b) { return a.price < b.price; });
      double gap_s = mean.time_s - target_s;
      for (const Move& move : moves) {
        --places[move.instruction];
        gap_s -= move.time_s;
        if (gap_s <= 0) break;
      }
      mean = Run(places);
    }
    return true;
  }

  // Makes the instructions slower that gain most. Returns false if none can be.
  bool SlowDown(Places& places, double budget_s) const {
    std::vector<Move> moves;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const Ladder& ladder = LadderOf(i);
      if (places[i] + 1 == ladder.options.size()) continue;
      const double longer_s = ladder.times_s[places[i] + 1] - ladder.times_s[places[i]];
      const double gain_j = ladder.costs_j[places[i]] - ladder.costs_j[places[i] + 1];
      const double time_s = std::max(mean_.criticality[i], kLeastCriticality) * longer_s;
      moves.push_back({i, gain_j / time_s, time_s});
    }
    if (moves.empty()) return false;
    std::stable_sort(moves.begin(), moves.end(),
                     [](const Move& a, const Move& b) { return a.price > b.price; });
    for (const Move& move : moves) {
      ++places[move.instruction];
      budget_s -= move.time_s;
      if (budget_s <= 0) break;
    }
    return true;
  }

  const plan::Planner& planner_;
  NoisyExecution execution_;
  int runs_left_;
  std::vector<int> fixed_;       // The options of the given plan.
  std::vector<Ladder> ladders_;  // [option set]
  Places places_;                // [instruction] a place on its ladder.
  NoisyMean mean_;
};

tl::unexpected<Error> OutOfReach(double found_s, double allowed_s) {
  return FailAs(
      ErrorKind::kUnreachable,
      "with this noise, the plan takes {:.6f} s on average, at most {:.6f} s are allowed, "
      "and no margin was found that is enough (allow more slowdown; with a switch latency, "
      "try a smaller one)",
      found_s, allowed_s);
}

}  // namespace

Result<NoisyPlan> AddNoiseMargin(const plan::Planner& planner, const plan::Plan& plan,
                                 const Noise& noise, double slowdown, const MarginLimits& limits) {
  const std::vector<int> baseline = schedule::BaselineOptions(planner.graph());
  const NoisyExecution check(planner.graph(), planner.model(), noise, limits.check_samples,
                             kCheckSeed);
  NoisyPlan result{plan, check.Compare(plan.options, baseline), {}, 0};
  const plan::Evaluator evaluator(planner.graph(), planner.model());
  Descent descent(planner, noise, limits, plan.options);
  const double baseline_s = descent.MeanTimeOf(baseline);
  double target_s = (1 + slowdown + limits.allowance) * baseline_s;
  for (int i = 0; i < kChecks; ++i) {
    if (!descent.Repair(target_s)) {
      return OutOfReach(descent.mean().time_s, target_s);
    }
    descent.Polish(target_s);
    result.plan.options = descent.options();
    result.plan.evaluation = evaluator.Evaluate(result.plan.options);
    result.after = check.Compare(result.plan.options, baseline);
    const double excess = result.after.slowdown - slowdown - limits.allowance;
    // Without much noise, the allowance may not go to the time of the plan itself.
    const double late =
        ToSeconds(result.plan.evaluation.time - plan.deadline) / ToSeconds(plan.deadline);
    if (excess <= limits.tolerance && late <= 0) break;
    target_s -= std::max(excess, late + kLateStep) * baseline_s;
  }
  const double most = slowdown + limits.allowance + limits.tolerance;
  const bool found = result.after.slowdown <= most && result.plan.evaluation.time <= plan.deadline;
  // With hardly any noise, the given plan needs no margin.
  if (result.before.slowdown <= most && (!found || result.before.saving >= result.after.saving)) {
    result.plan = plan;
    result.after = result.before;
  } else if (!found) {
    return OutOfReach((1 + result.after.slowdown) * baseline_s, (1 + slowdown) * baseline_s);
  }
  result.runs = limits.runs - descent.runs_left();
  return result;
}

}  // namespace perseus::noise
