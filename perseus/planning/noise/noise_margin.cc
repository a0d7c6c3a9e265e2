#include "perseus/planning/noise/noise_margin.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/stopped.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/noise/margin_moves.h"
#include "perseus/planning/noise/noisy_execution.h"

namespace perseus::noise {
namespace {

constexpr std::uint64_t kCheckSeed = 1'000'003;
constexpr int kChecks = 6;
// If clock changes are limited, the search also starts from this many plans for earlier deadlines.
// A search with the effort kEffortOfStart makes each of these plans.
constexpr int kEarlierStarts = 3;
constexpr double kEffortOfStart = 0.3;

tl::unexpected<Error> OutOfReach(double found, double allowed) {
  return FailAs(ErrorKind::kUnreachable,
                "with this noise, a plan was found that takes {:.3f} % more time on average than "
                "maximum frequency with the same noise, and {:.3f} % are allowed (allow more "
                "slowdown)",
                100 * found, 100 * allowed);
}

constexpr std::uint64_t kSeed = 1;
// The sizes of a polishing step, as fractions of the time of an iteration.
constexpr double kFirstBudget = 2e-3;
constexpr double kLastBudget = 1e-6;

// Makes the first moves, until `most_s` of mean time are used up.
void Apply(const std::vector<Move>& moves, double most_s, std::vector<int>& options) {
  for (const Move& move : moves) {
    for (const auto& [instruction, option] : move.options) options[At(instruction)] = option;
    most_s -= move.time_s;
    if (most_s <= 0) break;
  }
}

// The descent from a plan to another plan that is short enough on average and needs little energy.
class MarginDescent {
 public:
  struct Limits {
    int samples = 0;
    int runs = 0;                 // How often all samples run. A repair may add a few runs.
    std::stop_token stop = {};    // Ends repairs.
    std::stop_token finish = {};  // Ends polishing.
  };
  // Starts from `options`. Keeps references to the planner and `moves`.
  MarginDescent(const plan::Planner& planner, const Noise& noise, const Limits& limits,
                const MarginMoves& moves, std::span<const int> options)
      : moves_(moves),
        limits_(limits),
        execution_(planner.graph(), planner.model(), noise, limits.samples, kSeed),
        quiet_(planner.graph(), planner.model(), {}, 1, kSeed),
        runs_left_(limits.runs),
        options_(options.begin(), options.end()),
        mean_(Run(execution_, options_)) {}

  const NoisyMean& mean() const { return mean_; }  // The mean under noise with options().
  const std::vector<int>& options() const { return options_; }
  int runs() const { return limits_.runs - runs_left_; }
  double MeanTimeOf(std::span<const int> options) { return execution_.Run(options).time_s; }

  // Returns false if it finds no options that take at most `target_s`.
  bool Repair(double target_s) { return RepairFrom(execution_, options_, mean_, target_s); }

  // As Repair, but for the time without noise. This time is usually already short enough.
  bool RepairWithoutNoise(double target_s) {
    NoisyMean quiet = quiet_.Run(options_);
    if (quiet.time_s <= target_s) return true;
    const bool is_in_time = RepairFrom(quiet_, options_, quiet, target_s);
    mean_ = Run(execution_, options_);
    return is_in_time;
  }

  // Saves energy within `target_s`. Ends when further steps would gain nothing.
  void Polish(double target_s) {
    double budget_s = kFirstBudget * target_s;
    for (const Move& move : moves_.Slower(options_, mean_)) {
      budget_s = std::max(budget_s, move.time_s);
    }
    while (budget_s > kLastBudget * target_s && runs_left_ > 0) {
      if (limits_.finish.stop_requested()) return;
      if (!ImproveWithin(budget_s, target_s)) budget_s /= 2;
    }
  }

 private:
  NoisyMean Run(const NoisyExecution& execution, std::span<const int> options) {
    if (&execution == &execution_) --runs_left_;  // The other execution has one sample.
    return execution.Run(options);
  }

  // Makes the slower moves with the highest gain per second of mean time, up to this budget of mean
  // time. Then repairs. Returns whether this saves energy. If not, changes nothing.
  bool ImproveWithin(double budget_s, double target_s) {
    std::vector<Move> slower = moves_.Slower(options_, mean_);
    std::erase_if(slower, [&](const Move& move) { return move.time_s > 2 * budget_s; });
    std::ranges::stable_sort(slower, {}, &Move::price_w);
    std::vector<int> options = options_;
    if (slower.empty()) return false;
    Apply(slower, budget_s, options);
    NoisyMean mean = Run(execution_, options);
    if (!RepairFrom(execution_, options, mean, target_s)) return false;
    if (mean.energy_j >= mean_.energy_j) return false;
    options_ = std::move(options);
    mean_ = std::move(mean);
    return true;
  }

  // Makes the cheapest moves to a faster option until the mean time is short enough.
  bool RepairFrom(const NoisyExecution& execution, std::vector<int>& options, NoisyMean& mean,
                  double target_s) {
    while (mean.time_s > target_s) {
      if (limits_.stop.stop_requested()) return false;
      std::vector<Move> faster = moves_.Faster(options, mean);
      if (faster.empty()) faster = moves_.BeforeCritical(options, mean);
      if (faster.empty()) return false;
      std::ranges::stable_sort(faster, {}, &Move::price_w);
      Apply(faster, mean.time_s - target_s, options);
      mean = Run(execution, options);
    }
    return true;
  }

  const MarginMoves& moves_;
  Limits limits_;
  NoisyExecution execution_;
  NoisyExecution quiet_;
  int runs_left_;
  std::vector<int> options_;
  NoisyMean mean_;
};

// The search for one plan with a margin.
class MarginSearch {
 public:
  // `plan` gets the margin.
  MarginSearch(const plan::Planner& planner, const plan::Plan& plan, const Noise& noise,
               double slowdown, const MarginLimits& limits)
      : planner_(planner),
        plan_(plan),
        noise_(noise),
        slowdown_(slowdown),
        limits_(limits),
        of_segments_(planner),
        baseline_(schedule::BaselineOptions(planner.graph())),
        check_(planner.graph(), planner.model(), noise, limits.check_samples, kCheckSeed),
        before_(Check(plan.options)),
        least_slowdown_(before_.slowdown) {
    // With very little noise, the given plan needs no margin.
    if (Excess(before_) <= limits.tolerance) TakeIfBetter(plan.options, before_);
  }

  // Searches with any number of clock changes.
  void ChangeAnything() {
    const InstructionMoves of_instructions(planner_);
    DescendFrom(plan_.options, of_instructions);
    if (!planner_.model().switch_cost.IsNone()) DescendFrom(plan_.options, of_segments_);
    if (!found_ && !planner_.model().SwitchesAreFree()) DescendFromEarlier(of_instructions);
  }

  // Searches plans in which no pp_rank has more changes than the busiest pp_rank of the given plan.
  void KeepChanges() {
    const int most_changes = few_switches::MostSwitches(plan_.evaluation);
    DescendFrom(plan_.options, of_segments_);
    // The result of this start may still be late, or may lose much energy by its margin. So other
    // starts follow, from earlier deadlines.
    const double excess = before_.slowdown - slowdown_;
    for (int k = 1; k <= kEarlierStarts && Excess(before_) > limits_.tolerance; ++k) {
      if (found_ && IsDone()) break;
      const auto start = LimitedPlanBefore(k * excess, most_changes);
      if (start) DescendFrom(start->options, of_segments_);
    }
    // Even the baseline has changes, if the highest clocks of a pp_rank differ.
    if (!found_ && few_switches::MostSwitches(planner_.baseline()) <= most_changes) {
      DescendFrom(baseline_, of_segments_);
    }
  }

  // Returns the best plan that was found.
  Result<NoisyPlan> Take() {
    if (limits_.stop.stop_requested()) return FailAsStopped();
    if (!found_) return OutOfReach(least_slowdown_, slowdown_);
    found_->runs = runs_;
    return *std::move(found_);
  }

 private:
  // Compares with the baseline, on new samples.
  NoisyDifference Check(std::span<const int> options) const {
    return check_.Compare(options, baseline_);
  }
  // The fraction by which the mean time is longer than the target.
  double Excess(const NoisyDifference& difference) const {
    return difference.slowdown - slowdown_ - limits_.allowance;
  }
  bool IsDone() const { return limits_.stop.stop_requested() || limits_.finish.stop_requested(); }

  // `after` is the result of Check for the options. Requires that they keep the mean time.
  void TakeIfBetter(const std::vector<int>& options, const NoisyDifference& after) {
    if (found_ && after.saving <= found_->after.saving) return;
    NoisyPlan other{plan_, before_, after, 0};
    if (options != plan_.options) {
      const plan::Evaluator evaluator(planner_.graph(), planner_.model());
      other.plan.options = options;
      other.plan.evaluation = evaluator.Evaluate(options);
    }
    found_ = std::move(other);
  }

  // Takes the result of a descent, if its mean time is short enough. Without noise, the result must
  // also meet the deadline.
  void DescendFrom(std::span<const int> start, const MarginMoves& moves) {
    MarginDescent descent(planner_, noise_,
                          {limits_.samples, limits_.runs, limits_.stop, limits_.finish}, moves,
                          start);
    const double baseline_s = descent.MeanTimeOf(baseline_);
    double target_s = (1 + slowdown_ + limits_.allowance) * baseline_s;
    bool found = false;
    for (int i = 0; i < kChecks && !found && descent.Repair(target_s); ++i) {
      descent.Polish(target_s);
      if (!descent.RepairWithoutNoise(ToSeconds(plan_.deadline))) break;
      const NoisyDifference after = Check(descent.options());
      found = Excess(after) <= limits_.tolerance;
      if (found) TakeIfBetter(descent.options(), after);
      target_s -= Excess(after) * baseline_s;
    }
    runs_ += descent.runs();
    if (!found) {
      least_slowdown_ = std::min(least_slowdown_, descent.mean().time_s / baseline_s - 1);
    }
  }

  // Descends from plans for earlier deadlines, until one descent finds a plan. This is necessary
  // only with a switch latency.
  void DescendFromEarlier(const MarginMoves& moves) {
    for (const double earlier : {0.002, 0.005, 0.01, 0.02, 0.04}) {
      const auto faster =
          planner_.PlanFor(DeadlineBefore(earlier),
                           {.effort = plan::kFirstLook, .stop = limits_.stop, .finish = {}});
      if (!faster) break;
      DescendFrom(faster->options, moves);
      if (found_) return;
    }
    DescendFrom(baseline_, moves);
  }

  Nanoseconds DeadlineBefore(double earlier) const {
    return static_cast<Nanoseconds>(static_cast<double>(plan_.deadline) * (1 - earlier));
  }

  // Returns a plan that is faster by the fraction `earlier` and has at most `most_changes` changes.
  // nullopt if no plan is as fast. If segments are long, this plan is a better start than the given
  // plan, because its search also moves the changes.
  std::optional<plan::Plan> LimitedPlanBefore(double earlier, int most_changes) const {
    const Nanoseconds deadline = DeadlineBefore(earlier);
    if (deadline < planner_.least_time()) return std::nullopt;
    auto limited = few_switches::PlanFewSwitches(
        planner_, deadline, std::span(&most_changes, 1), std::span(&plan_, 1),
        {.effort = kEffortOfStart,
         .breadth = few_switches::SwitchLimits::Breadth::kNarrow,
         .stop = limits_.stop,
         .finish = limits_.finish});
    if (!limited) return std::nullopt;
    return std::move(limited->front().plan);
  }

  const plan::Planner& planner_;
  const plan::Plan& plan_;
  Noise noise_;
  double slowdown_;
  MarginLimits limits_;
  SegmentMoves of_segments_;
  std::vector<int> baseline_;
  NoisyExecution check_;
  NoisyDifference before_;
  std::optional<NoisyPlan> found_;
  int runs_ = 0;
  double least_slowdown_;  // The least mean slowdown of all tries that failed.
};

}  // namespace

Result<NoisyPlan> AddNoiseMargin(const plan::Planner& planner, const plan::Plan& plan,
                                 const Noise& noise, double slowdown, const MarginLimits& limits) {
  MarginSearch search(planner, plan, noise, slowdown, limits);
  if (limits.changes == MarginLimits::Changes::kAny) {
    search.ChangeAnything();
  } else {
    search.KeepChanges();
  }
  return search.Take();
}

Result<NoisyPlan> AddNoiseMargin(const plan::Planner& planner, const plan::Plan& plan,
                                 const plan::Target& target, const Noise& noise,
                                 const MarginLimits& limits) {
  if (!plan::LimitsTime(target.kind)) {
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
