#include "perseus/planning/noise/noise_margin.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/noise/margin_moves.h"

namespace perseus::noise {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::uint64_t kCheckSeed = 1'000'003;
constexpr int kChecks = 6;
// Of a plan with a limit of clock changes. Each is a search, with this effort.
constexpr int kEarlierStarts = 3;
constexpr double kEffortOfStart = 0.3;

// Makes the first moves, until `most_s` of mean time are used up. Returns false if there is none.
bool Apply(const std::vector<Move>& moves, double most_s, std::vector<int>& options) {
  for (const Move& move : moves) {
    for (const auto& [instruction, option] : move.options) options[At(instruction)] = option;
    most_s -= move.time_s;
    if (most_s <= 0) break;
  }
  return !moves.empty();
}

class Descent {
 public:
  Descent(const plan::Planner& planner, const Noise& noise, const MarginLimits& limits,
          const MarginMoves& moves, std::span<const int> options)
      : moves_(moves),
        execution_(planner.graph(), planner.model(), noise, limits.samples, kSeed),
        quiet_(planner.graph(), planner.model(), {}, 1, kSeed),
        runs_left_(limits.runs),
        options_(options.begin(), options.end()),
        mean_(Run(execution_, options_)) {}

  const NoisyMean& mean() const { return mean_; }
  const std::vector<int>& options() const { return options_; }
  int runs_left() const { return runs_left_; }
  double MeanTimeOf(std::span<const int> options) { return execution_.Run(options).time_s; }

  // Returns false if it finds no options that take at most `target_s`.
  bool Repair(double target_s) { return RepairFrom(execution_, options_, mean_, target_s); }

  // The same for the time without noise. Usually, it is short enough already.
  bool RepairWithoutNoise(double target_s) {
    NoisyMean quiet = quiet_.Run(options_);
    if (quiet.time_s <= target_s) return true;
    const bool is_in_time = RepairFrom(quiet_, options_, quiet, target_s);
    mean_ = Run(execution_, options_);
    return is_in_time;
  }

  void Polish(double target_s) {
    double budget_s = kFirstBudget * target_s;
    for (const Move& move : moves_.Slower(options_, mean_)) {
      budget_s = std::max(budget_s, move.time_s);
    }
    while (budget_s > kLastBudget * target_s && runs_left_ > 0) {
      if (!ImproveWithin(budget_s, target_s)) budget_s /= 2;
    }
  }

 private:
  // Of a step of polishing, as parts of the time of an iteration.
  static constexpr double kFirstBudget = 2e-3;
  static constexpr double kLastBudget = 1e-6;

  NoisyMean Run(const NoisyExecution& execution, std::span<const int> options) {
    if (&execution == &execution_) --runs_left_;  // The other one has a single sample.
    return execution.Run(options);
  }

  // Makes what gains most slower, for so much mean time, and then repairs. Whether this saves
  // energy. If not, nothing changes.
  bool ImproveWithin(double budget_s, double target_s) {
    std::vector<Move> slower = moves_.Slower(options_, mean_);
    std::erase_if(slower, [&](const Move& move) { return move.time_s > 2 * budget_s; });
    std::ranges::stable_sort(slower, {}, &Move::price_w);
    std::vector<int> options = options_;
    if (!Apply(slower, budget_s, options)) return false;
    NoisyMean mean = Run(execution_, options);
    if (!RepairFrom(execution_, options, mean, target_s)) return false;
    if (mean.energy_j >= mean_.energy_j) return false;
    options_ = std::move(options);
    mean_ = std::move(mean);
    return true;
  }

  // Makes what is cheapest faster until the mean time is short enough.
  bool RepairFrom(const NoisyExecution& execution, std::vector<int>& options, NoisyMean& mean,
                  double target_s) {
    while (mean.time_s > target_s) {
      std::vector<Move> faster = moves_.Faster(options, mean);
      if (faster.empty()) faster = moves_.BeforeCritical(options, mean);
      std::ranges::stable_sort(faster, {}, &Move::price_w);
      if (!Apply(faster, mean.time_s - target_s, options)) return false;
      mean = Run(execution, options);
    }
    return true;
  }

  const MarginMoves& moves_;
  NoisyExecution execution_;
  NoisyExecution quiet_;
  int runs_left_;
  std::vector<int> options_;
  NoisyMean mean_;
};

tl::unexpected<Error> OutOfReach(double found, double allowed) {
  return FailAs(ErrorKind::kUnreachable,
                "with this noise, a plan was found that takes {:.3f} % more time on average than "
                "maximum frequency with the same noise, and {:.3f} % are allowed (allow more "
                "slowdown)",
                100 * found, 100 * allowed);
}

// A plan for so much less time (a fraction), with at most so many clock changes. Where segments are
// long, it is a better start than the plan itself: the search for it moves the changes, too.
// Nothing if no plan is so fast.
std::optional<plan::Plan> LimitedPlanBefore(const plan::Planner& planner, const plan::Plan& plan,
                                            double earlier, int most_changes) {
  const auto deadline =
      static_cast<Nanoseconds>(static_cast<double>(plan.deadline) * (1 - earlier));
  if (deadline < planner.least_time()) return std::nullopt;
  auto limited = few_switches::PlanFewSwitches(
      planner, deadline, std::span(&most_changes, 1), std::span(&plan, 1),
      {.effort = kEffortOfStart, .breadth = few_switches::SwitchLimits::Breadth::kNarrow});
  if (!limited) return std::nullopt;
  return std::move(limited->front().plan);
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
  std::optional<NoisyPlan> DescendFrom(const plan::Plan& plan, std::span<const int> start,
                                       const MarginMoves& moves) {
    NoisyPlan result{plan, {}, {}, 0};
    const plan::Evaluator evaluator(planner_.graph(), planner_.model());
    Descent descent(planner_, noise_, limits_, moves, start);
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

  // Descents from plans for earlier deadlines, until one of them ends well. Only a switch latency
  // makes this necessary.
  std::optional<NoisyPlan> DescendFromEarlier(const plan::Plan& plan, const MarginMoves& moves) {
    for (const double earlier : {0.002, 0.005, 0.01, 0.02, 0.04}) {
      const auto deadline =
          static_cast<Nanoseconds>(static_cast<double>(plan.deadline) * (1 - earlier));
      const auto faster =
          planner_.PlanFor(deadline, {.effort = plan::kFirstLook, .stop = {}, .finish = {}});
      if (!faster) break;
      if (auto found = DescendFrom(plan, faster->options, moves)) return found;
    }
    return DescendFromBaseline(plan, moves);
  }
  std::optional<NoisyPlan> DescendFromBaseline(const plan::Plan& plan, const MarginMoves& moves) {
    return DescendFrom(plan, baseline_, moves);
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
  std::optional<NoisyPlan> found;
  const auto take_better = [&](std::optional<NoisyPlan> other) {
    if (other && (!found || other->after.saving > found->after.saving)) found = std::move(other);
  };
  // With hardly any noise, the given plan needs no margin.
  if (search.Keeps(before)) found = NoisyPlan{plan, before, before, 0};
  const bool keeps_changes = limits.changes == MarginLimits::Changes::kNoMore;
  const SegmentMoves of_segments(planner);
  if (!keeps_changes) {
    const InstructionMoves of_instructions(planner);
    take_better(search.DescendFrom(plan, plan.options, of_instructions));
    if (!planner.model().switch_cost.IsNone()) {
      take_better(search.DescendFrom(plan, plan.options, of_segments));
    }
    if (!found && !planner.model().SwitchesAreFree()) {
      found = search.DescendFromEarlier(plan, of_instructions);
    }
  } else {
    const int most_changes = few_switches::MostSwitches(plan.evaluation);
    take_better(search.DescendFrom(plan, plan.options, of_segments));
    // The second start may still be late, or lose much to its margin. So others are earlier.
    const double excess = before.slowdown - slowdown;
    for (int k = 1; k <= kEarlierStarts && !search.Keeps(before); ++k) {
      const auto start = LimitedPlanBefore(planner, plan, k * excess, most_changes);
      if (start) take_better(search.DescendFrom(plan, start->options, of_segments));
    }
    // The baseline has changes where the highest clocks of a pp_rank differ.
    if (!found && few_switches::MostSwitches(planner.baseline()) <= most_changes) {
      found = search.DescendFromBaseline(plan, of_segments);
    }
  }
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
