#include "perseus/plan/switching.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace perseus {
namespace {

std::size_t At(int i) { return static_cast<std::size_t>(i); }

// Operations evaluated in one local search: about a second.
constexpr std::int64_t kMostWork = 40'000'000;
constexpr double kNoGain = 1e-9;
constexpr int kMostAttempts = 8;

// Improves a plan by moves that keep the deadline, on the exact evaluation.
class ClockSearch {
 public:
  ClockSearch(const Planner& planner, Nanoseconds deadline, std::vector<int> options)
      : graph_(planner.graph()),
        evaluator_(planner.graph(), planner.model()),
        deadline_(deadline),
        options_(std::move(options)),
        evaluation_(evaluator_.Evaluate(options_)),
        evaluations_left_(kMostWork / static_cast<std::int64_t>(graph_.operations.size())) {
    for (const OptionSet& set : graph_.option_sets) {
      fronts_.push_back(ParetoFront(set.options, planner.model().blocking_power_w));
    }
    for (const std::vector<int>& order : graph_.rank_orders) {
      std::vector<int>& clocked = ranks_.emplace_back();
      for (const int operation : order) {
        if (graph_.options_of(operation).options.size() > 1) clocked.push_back(operation);
      }
    }
  }

  void Run() {
    while (Round() && evaluations_left_ > 0) {
    }
  }

  const std::vector<int>& options() const { return options_; }
  const Evaluation& evaluation() const { return evaluation_; }

 private:
  using Change = std::vector<std::pair<int, int>>;  // Operation, option.

  const Option& Chosen(int operation) const {
    return graph_.options_of(operation).options[At(options_[At(operation)])];
  }

  // Adds "`operation` runs at the clock of `like`" if that was measured.
  bool AddSameClock(int operation, int like, Change& change) const {
    const std::vector<Option>& options = graph_.options_of(operation).options;
    for (std::size_t i = 0; i < options.size(); ++i) {
      if (!options[i].SameKnobs(Chosen(like))) continue;
      change.emplace_back(operation, static_cast<int>(i));
      return true;
    }
    return false;
  }

  // Adds "`operation` takes the next slower useful option" if there is one.
  bool AddSlower(int operation, Change& change) const {
    const std::vector<int>& front = fronts_[At(graph_.operations[At(operation)].option_set)];
    const Nanoseconds time = Chosen(operation).time;
    for (const int option : front) {
      if (graph_.options_of(operation).options[At(option)].time <= time) continue;
      change.emplace_back(operation, option);
      return true;
    }
    return false;
  }

  bool Try(const Change& change) {
    if (change.empty() || evaluations_left_ <= 0) return false;
    std::vector<int> former;
    bool differs = false;
    for (const auto& [operation, option] : change) {
      former.push_back(options_[At(operation)]);
      differs = differs || option != options_[At(operation)];
      options_[At(operation)] = option;
    }
    if (differs) {
      --evaluations_left_;
      Evaluation next = evaluator_.Evaluate(options_);
      const double saved = evaluation_.energy_j - next.energy_j;
      const bool calmer = saved >= -kNoGain && next.switches < evaluation_.switches;
      if (next.time <= deadline_ && (saved > kNoGain || calmer)) {
        evaluation_ = std::move(next);
        return true;
      }
    }
    for (std::size_t i = change.size(); i-- > 0;) {
      options_[At(change[i].first)] = former[i];
    }
    return false;
  }

  bool Round() {
    bool improved = false;
    for (const std::vector<int>& rank : ranks_) {
      for (std::size_t i = 0; i < rank.size(); ++i) {
        Change change;
        if (i > 0 && AddSameClock(rank[i], rank[i - 1], change)) improved |= Try(change);
        change.clear();
        if (i + 1 < rank.size() && AddSameClock(rank[i], rank[i + 1], change)) {
          improved |= Try(change);
        }
        change.clear();
        if (i > 0 && i + 1 < rank.size() && AddSameClock(rank[i], rank[i - 1], change) &&
            AddSameClock(rank[i + 1], rank[i - 1], change)) {
          improved |= Try(change);
        }
        change.clear();
        if (AddSlower(rank[i], change)) improved |= Try(change);
      }
      // A whole run of one clock, one step slower.
      for (std::size_t first = 0; first < rank.size();) {
        std::size_t end = first + 1;
        while (end < rank.size() && Chosen(rank[end]).SameKnobs(Chosen(rank[first]))) ++end;
        Change change;
        bool complete = AddSlower(rank[first], change);
        if (complete) {
          const std::vector<int> kept = options_;
          options_[At(change[0].first)] = change[0].second;
          for (std::size_t i = first + 1; complete && i < end; ++i) {
            complete = AddSameClock(rank[i], rank[first], change);
          }
          options_ = kept;
          if (complete) improved |= Try(change);
        }
        first = end;
      }
    }
    return improved;
  }

  const OperationGraph& graph_;
  Evaluator evaluator_;
  Nanoseconds deadline_;
  std::vector<int> options_;
  Evaluation evaluation_;
  std::int64_t evaluations_left_;
  std::vector<std::vector<int>> fronts_;  // [option set]
  std::vector<std::vector<int>> ranks_;   // Operations that have a clock, in order.
};

// Plans without latency for ever shorter deadlines until one meets `deadline` in spite of it.
Result<std::optional<Plan>> ShortenedPlan(const Planner& planner, Nanoseconds deadline) {
  const Evaluator evaluator(planner.graph(), planner.model());
  Nanoseconds aim = deadline;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    Result<Plan> plan = planner.PlanWithoutLatency(aim, SearchEffort::kFirstLook);
    if (!plan) return Fail(plan);
    plan->evaluation = evaluator.Evaluate(plan->options);
    if (plan->evaluation.time <= deadline) return std::optional<Plan>(std::move(*plan));
    if (aim == planner.least_time()) break;
    aim = std::max(planner.least_time(), aim - (plan->evaluation.time - deadline));
  }
  return std::optional<Plan>();
}

}  // namespace

Result<Plan> PlanUnderLatency(const Planner& planner, Nanoseconds deadline) {
  Result<Plan> plan = planner.PlanWithoutLatency(deadline, SearchEffort::kFirstLook);
  if (!plan) return plan;

  std::vector<std::vector<int>> starts;
  const Result<std::optional<Plan>> shortened = ShortenedPlan(planner, deadline);
  if (!shortened) return Fail(shortened);
  if (shortened->has_value()) starts.push_back((*shortened)->options);
  if (planner.baseline().time <= deadline) starts.push_back(BaselineOptions(planner.graph()));
  if (starts.empty()) {
    return FailAs(ErrorKind::kUnreachable,
                  "no plan found meets {:.6f} s under a switching latency of {:.3f} ms (everything "
                  "at maximum frequency takes {:.6f} s)",
                  ToSeconds(deadline), ToSeconds(planner.model().switch_latency) * 1e3,
                  ToSeconds(planner.baseline().time));
  }
  bool first = true;
  for (std::vector<int>& start : starts) {
    ClockSearch search(planner, deadline, std::move(start));
    search.Run();
    const Evaluation& found = search.evaluation();
    const double saved = plan->evaluation.energy_j - found.energy_j;
    const bool calmer = saved >= -kNoGain && found.switches < plan->evaluation.switches;
    if (first || saved > kNoGain || calmer) {
      plan->options = search.options();
      plan->evaluation = found;
      first = false;
    }
  }
  return plan;
}

}  // namespace perseus
