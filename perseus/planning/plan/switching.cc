#include "perseus/planning/plan/switching.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/stopped.h"
#include "perseus/planning/plan/evaluation_update.h"
#include "perseus/planning/plan/search/choices.h"
#include "perseus/planning/plan/target.h"

namespace perseus::plan {
namespace {

// The limit of one local search: evaluations times instructions. About a second.
constexpr std::int64_t kMostWork = 40'000'000;
constexpr std::int64_t kMostQuickWork = 1'000'000;
// A limit for small graphs: evaluations for each instruction.
constexpr std::int64_t kEvaluationsPerInstruction = 2'000;
constexpr int kMostShortenings = 8;
// The first and the last temperature, as fractions of the mean energy of an instruction.
constexpr double kHot = 0.02;
constexpr double kCold = 0.002;
constexpr std::int64_t kAnnealingPercent = 90;  // The part of the evaluations for annealing.
constexpr std::size_t kLongestStep = 3;         // The longest random change.

// Improves a plan by changes that keep the deadline. Evaluates every change exactly. Do not copy or
// move the object: the update refers to the evaluator.
class ClockSearch {
 public:
  ClockSearch(const Planner& planner, Nanoseconds deadline, std::vector<int> options,
              const SearchLimits& limits)
      : graph_(planner.graph()),
        evaluator_(planner.graph(), planner.model()),
        update_(evaluator_, std::move(options), deadline),
        stop_(limits.stop),
        evaluations_left_(MostEvaluations(kMostQuickWork)) {
    for (const schedule::OptionSet& set : graph_.option_sets) {
      fronts_.push_back(profile::ParetoFront(set.options, planner.model().blocking_power_w));
    }
    for (const std::vector<int>& order : graph_.pp_rank_orders) {
      std::vector<int>& clocked = pp_ranks_.emplace_back();
      for (const int instruction : order) {
        if (graph_.options_of(instruction).HasClock()) clocked.push_back(instruction);
      }
    }
  }
  ClockSearch(const ClockSearch&) = delete;
  ClockSearch& operator=(const ClockSearch&) = delete;

  // Tries runs first (a run is all instructions in a row at one clock). If a pp_rank has only one
  // clock, a slower clock for the whole run adds no switch.
  void Descend() {
    while (SlowRuns()) {
    }
    for (bool improved = true; improved;) {
      improved = ChangeFew();
      while (SlowRuns()) improved = true;
    }
  }

  // Simulated annealing: an instruction gets the clock of a neighbor, or a clock a few steps from
  // its own. Ends with the best plan that it saw, improved by Descend. (Changes of several
  // instructions in a row gave worse plans: the more instructions, the worse.)
  void Anneal() {
    std::mt19937_64 random(1);
    std::vector<int> best_options = options();
    double best_j = energy_j();
    const double typical_j = best_j / static_cast<double>(graph_.instructions.size());
    const std::int64_t steps = evaluations_left_ * kAnnealingPercent / 100;
    for (std::int64_t step = 0; step < steps && !stop_.stop_requested(); ++step) {
      const double cooled = static_cast<double>(step) / static_cast<double>(steps);
      const double temperature_j = typical_j * kHot * std::pow(kCold / kHot, cooled);
      // Uniform in (0, 1], and the same on every machine.
      const double chance = static_cast<double>((random() >> 11) + 1) / 9007199254740992.0;
      if (!Try(RandomChange(random), -temperature_j * std::log(chance))) continue;
      if (energy_j() >= best_j - kLeastGainJ) continue;
      best_options = options();
      best_j = energy_j();
    }
    Return(best_options);
    Descend();
  }

  // Allows the evaluations of a long search.
  void Continue() { evaluations_left_ = MostEvaluations(kMostWork); }

  const std::vector<int>& options() const { return update_.options(); }
  double energy_j() const { return update_.totals().energy_j; }
  Evaluation Evaluate() const { return evaluator_.Evaluate(options()); }

 private:
  std::int64_t MostEvaluations(std::int64_t work) const {
    const auto instructions = static_cast<std::int64_t>(graph_.instructions.size());
    return std::min(work / instructions, kEvaluationsPerInstruction * instructions);
  }

  using Change = std::vector<EvaluationUpdate::Change>;

  const profile::Option& Chosen(int instruction) const {
    return graph_.options_of(instruction).options[At(options()[At(instruction)])];
  }

  // Adds the change to `clock`. Returns false if this clock was not measured for `instruction`.
  bool AddClock(int instruction, const profile::Option& clock, Change& change) const {
    const std::vector<profile::Option>& options = graph_.options_of(instruction).options;
    for (std::size_t i = 0; i < options.size(); ++i) {
      if (!options[i].SameKnobs(clock)) continue;
      change.emplace_back(instruction, static_cast<int>(i));
      return true;
    }
    return false;
  }
  bool AddSameClock(int instruction, int like, Change& change) const {
    return AddClock(instruction, Chosen(like), change);
  }

  // Adds the change to the next slower useful option. Returns false if none exists.
  bool AddSlower(int instruction, Change& change) const {
    const std::vector<int>& front = fronts_[At(graph_.instructions[At(instruction)].option_set)];
    const Nanoseconds time = Chosen(instruction).time;
    for (const int option : front) {
      if (graph_.options_of(instruction).options[At(option)].time <= time) continue;
      change.emplace_back(instruction, option);
      return true;
    }
    return false;
  }

  Change RandomChange(std::mt19937_64& random) const {
    const std::vector<int>& order = pp_ranks_[random() % pp_ranks_.size()];
    if (order.empty()) return {};
    const std::size_t place = random() % order.size();
    const int instruction = order[place];
    Change change;
    switch (random() % 4) {
      case 0:
        if (place > 0) AddSameClock(instruction, order[place - 1], change);
        return change;
      case 1:
        if (place + 1 < order.size()) AddSameClock(instruction, order[place + 1], change);
        return change;
      default: {
        const std::vector<int>& front =
            fronts_[At(graph_.instructions[At(instruction)].option_set)];
        const auto now = static_cast<std::size_t>(
            std::find(front.begin(), front.end(), options()[At(instruction)]) - front.begin());
        const std::size_t step = 1 + random() % kLongestStep;
        const std::size_t next = random() % 2 == 0 ? now + step : now - std::min(now, step);
        change.emplace_back(instruction, front[std::min(next, front.size() - 1)]);
        return change;
      }
    }
  }

  // Makes the change if it keeps the deadline and costs no more than `allowed_j`.
  bool Try(const Change& change, double allowed_j = 0) {
    if (change.empty() || evaluations_left_ <= 0 || stop_.stop_requested()) return false;
    const bool differs = std::ranges::any_of(change, [&](const EvaluationUpdate::Change& one) {
      return one.second != options()[At(one.first)];
    });
    if (!differs) return false;
    --evaluations_left_;
    const EvaluationUpdate::Totals now = update_.totals();
    const auto next = update_.Try(change);
    if (!next) return false;
    const double saved = now.energy_j - next->energy_j;
    const bool has_fewer_switches = saved >= -kLeastGainJ && next->switches < now.switches;
    if (saved > kLeastGainJ || has_fewer_switches || saved > -allowed_j) {
      update_.Keep();
      return true;
    }
    update_.Undo();
    return false;
  }

  // Restores options that met the deadline before.
  void Return(const std::vector<int>& former) {
    Change change;
    for (std::size_t i = 0; i < former.size(); ++i) {
      if (former[i] != options()[i]) change.emplace_back(static_cast<int>(i), former[i]);
    }
    if (update_.Try(change)) update_.Keep();
  }

  // Tries to run an instruction, or two in a row, at the clock of a neighbor. Also tries to run an
  // instruction one step slower.
  bool ChangeFew() {
    bool improved = false;
    for (const std::vector<int>& order : pp_ranks_) {
      for (std::size_t i = 0; i < order.size(); ++i) {
        const bool has_previous = i > 0;
        const bool has_next = i + 1 < order.size();
        Change change;
        if (has_previous && AddSameClock(order[i], order[i - 1], change)) {
          improved |= Try(change);
          if (has_next && AddSameClock(order[i + 1], order[i - 1], change)) improved |= Try(change);
        }
        change.clear();
        if (has_next && AddSameClock(order[i], order[i + 1], change)) improved |= Try(change);
        change.clear();
        if (AddSlower(order[i], change)) improved |= Try(change);
      }
    }
    return improved;
  }

  // Tries to slow down a whole run of instructions at one clock by one step.
  bool SlowRuns() {
    bool improved = false;
    for (const std::vector<int>& order : pp_ranks_) {
      for (std::size_t first = 0; first < order.size();) {
        std::size_t end = first + 1;
        while (end < order.size() && Chosen(order[end]).SameKnobs(Chosen(order[first]))) ++end;
        Change change;
        bool complete = AddSlower(order[first], change);
        if (complete) {
          const profile::Option& slower =
              graph_.options_of(order[first]).options[At(change.front().second)];
          for (std::size_t i = first + 1; complete && i < end; ++i) {
            complete = AddClock(order[i], slower, change);
          }
        }
        if (complete) improved |= Try(change);
        first = end;
      }
    }
    return improved;
  }

  const schedule::InstructionGraph& graph_;
  Evaluator evaluator_;
  EvaluationUpdate update_;
  std::stop_token stop_;  // After a request, Try accepts no change.
  std::int64_t evaluations_left_;
  std::vector<std::vector<int>> fronts_;    // [option set]
  std::vector<std::vector<int>> pp_ranks_;  // [pp_rank] Its instructions with a clock.
};

// The instructions of one critical path, the last one first.
std::vector<int> CriticalPath(const schedule::InstructionGraph& graph,
                              const Evaluation& evaluation) {
  const auto end = [&](int i) { return evaluation.starts[At(i)] + evaluation.durations[At(i)]; };
  std::vector<int> waits_for(graph.instructions.size(), -1);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    if (end(dependency.from) + dependency.delay == evaluation.starts[At(dependency.to)]) {
      waits_for[At(dependency.to)] = dependency.from;
    }
  }
  int last = 0;
  while (end(last) != evaluation.time) ++last;
  std::vector<int> path;
  for (int i = last; i >= 0; i = waits_for[At(i)]) path.push_back(i);
  return path;
}

// For each instruction, the nearest earlier instruction on its pp_rank that has a clock, or -1.
std::vector<int> PreviousOnPpRank(const schedule::InstructionGraph& graph) {
  std::vector<int> previous(graph.instructions.size(), -1);
  for (const std::vector<int>& order : graph.pp_rank_orders) {
    int latest = -1;
    for (const int instruction : order) {
      previous[At(instruction)] = latest;
      if (graph.options_of(instruction).HasClock()) latest = instruction;
    }
  }
  return previous;
}

// Speeds up a late plan until it meets the deadline. If the latency slows down an instruction on
// the critical path, this instruction gets its clock one instruction earlier. If the latency slows
// down no instruction of the path, the whole path runs one step faster. Clocks only rise, so this
// ends. Returns nullopt if the plan is still late, or after a stop request.
std::optional<std::vector<int>> SpeedUp(const Planner& planner, Nanoseconds deadline,
                                        std::vector<int> options, const std::stop_token& stop) {
  const schedule::InstructionGraph& graph = planner.graph();
  const Evaluator evaluator(graph, planner.model());
  const std::vector<int> previous = PreviousOnPpRank(graph);
  const auto option = [&](int i) -> const profile::Option& {
    return graph.options_of(i).options[At(options[At(i)])];
  };
  // Raises the clock of `instruction` to the lowest measured frequency that is at least
  // `frequency_mhz` and faster than its present clock. Returns false if no such frequency exists.
  const auto raise = [&](int instruction, int frequency_mhz) {
    const std::vector<profile::Option>& measured = graph.options_of(instruction).options;
    int nearest = -1;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const profile::Option& candidate = measured[i];
      if (candidate.frequency_mhz < frequency_mhz || candidate.time >= option(instruction).time) {
        continue;
      }
      if (nearest < 0 || candidate.frequency_mhz < measured[At(nearest)].frequency_mhz) {
        nearest = static_cast<int>(i);
      }
    }
    if (nearest >= 0) options[At(instruction)] = nearest;
    return nearest >= 0;
  };
  while (!stop.stop_requested()) {
    const Evaluation evaluation = evaluator.Evaluate(options);
    if (evaluation.time <= deadline) return options;
    const std::vector<int> path = CriticalPath(graph, evaluation);
    bool raised = false;
    for (const int i : path) {
      const int before = previous[At(i)];
      if (before < 0 || evaluation.durations[At(i)] <= option(i).time) continue;
      if (option(before).frequency_mhz >= option(i).frequency_mhz) continue;
      raised |= raise(before, option(i).frequency_mhz);
    }
    if (raised) continue;
    for (const int i : path) raised |= raise(i, option(i).frequency_mhz);
    if (!raised) break;
  }
  return std::nullopt;
}

// Makes plans without latency for shorter and shorter deadlines, until a plan meets `deadline` with
// the latency.
Result<std::optional<std::vector<int>>> Shorten(const Planner& planner, Nanoseconds deadline,
                                                const SearchLimits& quick) {
  const Evaluator evaluator(planner.graph(), planner.model());
  Nanoseconds aim = deadline;
  for (int attempt = 0; attempt < kMostShortenings; ++attempt) {
    PERSEUS_ASSIGN_OR_RETURN(const Plan plan, planner.PlanWithoutLatency(aim, quick));
    const Nanoseconds time = evaluator.Evaluate(plan.options).time;
    if (time <= deadline) return std::optional<std::vector<int>>(plan.options);
    if (aim == planner.least_time()) break;
    aim = std::max(planner.least_time(), aim - (time - deadline));
  }
  return std::optional<std::vector<int>>();
}

std::string DescribeStall(const schedule::SwitchCost& cost) {
  if (cost.IsNone()) return "";
  return fmt::format(" and stalls of {:.3f} ms", ToMilliseconds(cost.stall));
}

// A plan for the time in the message exists.
tl::unexpected<Error> FailFor(const Planner& planner, Nanoseconds deadline) {
  return FailAs(ErrorKind::kUnreachable,
                "found no plan that meets {:.6f} s with a switch latency of {:.3f} ms{}: the "
                "iteration time at maximum frequency is {} s (allow at least that)",
                ToSeconds(deadline), ToMilliseconds(planner.model().switch_latency),
                DescribeStall(planner.model().switch_cost),
                RoundedUp(ToSeconds(planner.baseline().time)));
}

}  // namespace

Result<Plan> PlanUnderLatency(const Planner& planner, Nanoseconds deadline,
                              const SearchLimits& limits) {
  const SearchLimits quick{kFirstLook, limits.stop};
  Result<Plan> plan = planner.PlanWithoutLatency(deadline, quick);
  // The least time without a latency is not always possible with one.
  if (!plan && plan.error().kind == ErrorKind::kUnreachable) return FailFor(planner, deadline);
  if (!plan) return plan;

  std::vector<std::vector<int>> starts;
  PERSEUS_ASSIGN_OR_RETURN(std::optional<std::vector<int>> shortened,
                           Shorten(planner, deadline, quick));
  if (shortened.has_value()) starts.push_back(std::move(*shortened));
  if (auto faster = SpeedUp(planner, deadline, plan->options, limits.stop)) {
    starts.push_back(std::move(*faster));
  }
  if (limits.stop.stop_requested()) return FailAsStopped();
  if (planner.baseline().time <= deadline)
    starts.push_back(schedule::BaselineOptions(planner.graph()));
  if (starts.empty()) return FailFor(planner, deadline);
  std::unique_ptr<ClockSearch> best;
  for (std::vector<int>& start : starts) {
    auto search = std::make_unique<ClockSearch>(planner, deadline, std::move(start), limits);
    search->Descend();
    if (!best || search->energy_j() < best->energy_j()) best = std::move(search);
  }
  if (limits.effort > kFirstLook) {
    best->Continue();
    best->Descend();
    best->Anneal();
  }
  if (limits.stop.stop_requested()) return FailAsStopped();
  plan->options = best->options();
  plan->evaluation = best->Evaluate();
  return plan;
}

}  // namespace perseus::plan
