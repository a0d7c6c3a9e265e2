#include "perseus/planning/noise/noise_margin.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/planning/noise/raised_segments.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::noise {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::uint64_t kCheckSeed = 1'000'003;
constexpr int kChecks = 6;

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
        quiet_(planner.graph(), planner.model(), {}, 1, kSeed),
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

  // Returns false if it finds no options that take at most `target_s`.
  bool Repair(double target_s) { return RepairFrom(execution_, places_, mean_, target_s); }

  // The same for the time without noise. Usually, it is short enough already.
  bool RepairWithoutNoise(double target_s) {
    NoisyMean quiet = quiet_.Run(OptionsAt(places_));
    if (quiet.time_s <= target_s) return true;
    const bool is_in_time = RepairFrom(quiet_, places_, quiet, target_s);
    mean_ = Run(places_);
    return is_in_time;
  }

  void Polish(double target_s) {
    double budget_s = kFirstBudget * target_s;
    while (budget_s > kLastBudget * target_s && runs_left_ > 0) {
      Places places = places_;
      if (!SlowDown(places, budget_s)) return;
      NoisyMean mean = Run(places);
      if (RepairFrom(execution_, places, mean, target_s) && mean.energy_j < mean_.energy_j) {
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
  NoisyMean Run(const Places& places) { return Run(execution_, places); }
  NoisyMean Run(const NoisyExecution& execution, const Places& places) {
    if (&execution == &execution_) --runs_left_;  // The other one has a single sample.
    return execution.Run(OptionsAt(places));
  }

  // Makes the cheapest instructions faster until the mean time is short enough.
  bool RepairFrom(const NoisyExecution& execution, Places& places, NoisyMean& mean,
                  double target_s) {
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
      if (moves.empty()) {
        if (!HurryBeforeCritical(places, mean)) return false;
        mean = Run(execution, places);
        continue;
      }
      std::stable_sort(moves.begin(), moves.end(),
                       [](const Move& a, const Move& b) { return a.price < b.price; });
      double gap_s = mean.time_s - target_s;
      for (const Move& move : moves) {
        --places[move.instruction];
        gap_s -= move.time_s;
        if (gap_s <= 0) break;
      }
      mean = Run(execution, places);
    }
    return true;
  }

  // If all critical instructions have their fastest option, they may still begin at the clock of
  // the instruction before them on their pp_rank. Makes those faster. Returns false if none can be.
  bool HurryBeforeCritical(Places& places, const NoisyMean& mean) const {
    bool has_changed = false;
    for (const std::vector<int>& order : planner_.graph().pp_rank_orders) {
      std::optional<std::size_t> before;
      for (const int instruction : order) {
        const std::size_t i = At(instruction);
        if (LadderOf(i).options.size() == 1) continue;
        if (before && mean.criticality[i] > 0 && places[*before] > 0) {
          --places[*before];
          has_changed = true;
        }
        before = i;
      }
    }
    return has_changed;
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
  NoisyExecution quiet_;
  int runs_left_;
  std::vector<int> fixed_;       // The options of the given plan.
  std::vector<Ladder> ladders_;  // [option set]
  Places places_;                // [instruction] a place on its ladder.
  NoisyMean mean_;
};

tl::unexpected<Error> OutOfReach(double found, double allowed) {
  return FailAs(ErrorKind::kUnreachable,
                "with this noise, a plan was found that takes {:.3f} % more time on average than "
                "maximum frequency with the same noise, and {:.3f} % are allowed (allow more "
                "slowdown)",
                100 * found, 100 * allowed);
}

// The search for one plan with a margin.
class MarginSearch {
 public:
  MarginSearch(const plan::Planner& planner, const Noise& noise, double slowdown,
               const MarginLimits& limits)
      : planner_(planner),
        noise_(noise),
        slowdown_(slowdown),
        limits_(limits),
        baseline_(schedule::BaselineOptions(planner.graph())),
        check_(planner.graph(), planner.model(), noise, limits.check_samples, kCheckSeed) {}

  // The comparison with the baseline, by new samples.
  NoisyDifference Check(std::span<const int> options) const {
    return check_.Compare(options, baseline_);
  }
  bool Keeps(const NoisyDifference& difference) const {
    return difference.slowdown <= slowdown_ + limits_.allowance + limits_.tolerance;
  }
  int runs() const { return runs_; }
  // The least mean slowdown of all descents that failed.
  double least_slowdown() const { return least_slowdown_; }

  // The plan with the options to which a descent from `start` leads. Empty if its mean time is too
  // long. The plan takes no longer than its deadline without noise.
  std::optional<NoisyPlan> DescendFrom(const plan::Plan& plan, std::span<const int> start) {
    NoisyPlan result{plan, {}, {}, 0};
    const plan::Evaluator evaluator(planner_.graph(), planner_.model());
    Descent descent(planner_, noise_, limits_, start);
    const double baseline_s = descent.MeanTimeOf(baseline_);
    double target_s = (1 + slowdown_ + limits_.allowance) * baseline_s;
    bool found = false;
    for (int i = 0; i < kChecks && !found && descent.Repair(target_s); ++i) {
      descent.Polish(target_s);
      if (!descent.RepairWithoutNoise(ToSeconds(plan.deadline))) break;
      result.plan.options = descent.options();
      result.plan.evaluation = evaluator.Evaluate(result.plan.options);
      result.after = Check(result.plan.options);
      const double excess = result.after.slowdown - slowdown_ - limits_.allowance;
      found = excess <= limits_.tolerance;
      target_s -= excess * baseline_s;
    }
    runs_ += limits_.runs - descent.runs_left();
    if (found) return result;
    least_slowdown_ = std::min(least_slowdown_, descent.mean().time_s / baseline_s - 1);
    return std::nullopt;
  }

  // The given plan, with segments at faster clocks.
  std::optional<NoisyPlan> RaiseFrom(const plan::Plan& plan) const {
    NoisyPlan result{plan, {}, {}, 0};
    const NoisyExecution execution(planner_.graph(), planner_.model(), noise_, limits_.samples,
                                   kSeed);
    const NoisyExecution quiet(planner_.graph(), planner_.model(), {}, 1, kSeed);
    const double baseline_s = execution.Run(baseline_).time_s;
    double target_s = (1 + slowdown_ + limits_.allowance) * baseline_s;
    std::vector<int>& options = result.plan.options;
    for (int i = 0; i < kChecks; ++i) {
      if (!RaiseSegments(planner_, execution, target_s, options)) return std::nullopt;
      if (!RaiseSegments(planner_, quiet, ToSeconds(plan.deadline), options)) return std::nullopt;
      result.after = Check(options);
      if (Keeps(result.after)) {
        result.plan.evaluation =
            plan::Evaluator(planner_.graph(), planner_.model()).Evaluate(options);
        return result;
      }
      target_s -= (result.after.slowdown - slowdown_ - limits_.allowance) * baseline_s;
    }
    return std::nullopt;
  }

  // Descents from plans for earlier deadlines, until one of them ends well. Only a switch latency
  // makes this necessary.
  std::optional<NoisyPlan> DescendFromEarlier(const plan::Plan& plan) {
    for (const double earlier : {0.002, 0.005, 0.01, 0.02, 0.04}) {
      const auto deadline =
          static_cast<Nanoseconds>(static_cast<double>(plan.deadline) * (1 - earlier));
      const auto faster =
          planner_.PlanFor(deadline, {.effort = plan::kFirstLook, .stop = {}, .finish = {}});
      if (!faster) break;
      if (auto found = DescendFrom(plan, faster->options)) return found;
    }
    return DescendFrom(plan, baseline_);
  }

 private:
  const plan::Planner& planner_;
  Noise noise_;
  double slowdown_;
  MarginLimits limits_;
  std::vector<int> baseline_;
  NoisyExecution check_;
  int runs_ = 0;
  double least_slowdown_ = std::numeric_limits<double>::infinity();
};

}  // namespace

Result<NoisyPlan> AddNoiseMargin(const plan::Planner& planner, const plan::Plan& plan,
                                 const Noise& noise, double slowdown, const MarginLimits& limits) {
  MarginSearch search(planner, noise, slowdown, limits);
  const NoisyDifference before = search.Check(plan.options);
  std::optional<NoisyPlan> found = search.DescendFrom(plan, plan.options);
  // With hardly any noise, the given plan needs no margin.
  if (search.Keeps(before) && (!found || before.saving >= found->after.saving)) {
    found = NoisyPlan{plan, before, before, 0};
  }
  if (!planner.model().switch_cost.IsNone()) {
    auto raised = search.RaiseFrom(plan);
    if (raised && (!found || raised->after.saving > found->after.saving)) found = std::move(raised);
  }
  if (!found && !planner.model().SwitchesAreFree()) found = search.DescendFromEarlier(plan);
  if (!found) return OutOfReach(search.least_slowdown(), slowdown);
  found->before = before;
  found->runs = search.runs();
  return *std::move(found);
}

bool LimitsTime(plan::Target::Kind kind) {
  return kind == plan::Target::Kind::kSlowdown || kind == plan::Target::Kind::kDeadline;
}

Result<NoisyPlan> AddNoiseMargin(const plan::Planner& planner, const plan::Plan& plan,
                                 const plan::Target& target, const Noise& noise,
                                 const MarginLimits& limits) {
  if (!LimitsTime(target.kind)) {
    const NoisyDifference difference = CompareWithBaseline(planner, plan.options, noise, limits);
    return NoisyPlan{plan, difference, difference, 0};
  }
  double baseline_s = ToSeconds(planner.baseline().time);
  if (target.kind == plan::Target::Kind::kDeadline) {
    const NoisyExecution check(planner.graph(), planner.model(), noise, limits.check_samples,
                               kCheckSeed);
    baseline_s = check.Run(schedule::BaselineOptions(planner.graph())).time_s;
  }
  return AddNoiseMargin(planner, plan, noise, ToSeconds(plan.deadline) / baseline_s - 1, limits);
}

NoisyDifference CompareWithBaseline(const plan::Planner& planner, std::span<const int> options,
                                    const Noise& noise, const MarginLimits& limits) {
  return NoisyExecution(planner.graph(), planner.model(), noise, limits.check_samples, kCheckSeed)
      .Compare(options, schedule::BaselineOptions(planner.graph()));
}

}  // namespace perseus::noise
