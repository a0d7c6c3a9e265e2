#include "perseus/planning/plan/evaluation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::plan {
namespace {

// The sum of times over all pp_ranks may exceed 64 bits.
__extension__ using TotalNanoseconds = __int128;

}  // namespace

struct Evaluator::Timing {
  Nanoseconds time;
  double energy_j;
};

// Scales the time by `factor` at constant power.
Evaluator::Timing Evaluator::Slowed(const Timing& measured, double factor) {
  if (factor == 1) return measured;
  const double time = static_cast<double>(measured.time) * factor;
  // Rounds without std::llround: the call would take as long as all the other work.
  return {static_cast<Nanoseconds>(time + 0.5), measured.energy_j * factor};
}

Evaluator::Evaluator(const schedule::InstructionGraph& graph, const ExecutionModel& model)
    : graph_(graph), model_(model), dependencies_(graph.dependencies.size()) {
  std::map<int, int> clocks;  // By frequency.
  for (const schedule::OptionSet& set : graph.option_sets) {
    std::vector<int>& clock_of = clock_of_option_.emplace_back();
    for (const profile::Option& option : set.options) {
      const auto next = static_cast<int>(clocks.size());
      const auto [known, is_new] = clocks.try_emplace(option.frequency_mhz, next);
      if (is_new) frequency_mhz_of_clock_.push_back(option.frequency_mhz);
      clock_of.push_back(known->second);
    }
  }
  if (model.switch_latency > 0) {
    for (const schedule::OptionSet& set : graph.option_sets) {
      auto& order = by_frequency_.emplace_back();
      for (std::size_t i = 0; i < set.options.size(); ++i) {
        order.emplace_back(set.options[i].frequency_mhz, static_cast<int>(i));
      }
      std::ranges::sort(order, {}, [&](const std::pair<int, int>& one) {
        return std::tuple(one.first, set.options[At(one.second)].time, one.second);
      });
    }
  }
  first_dependency_.assign(graph.instructions.size() + 1, 0);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    ++first_dependency_[At(dependency.to) + 1];
  }
  std::partial_sum(first_dependency_.begin(), first_dependency_.end(), first_dependency_.begin());
  std::vector<int> slot(first_dependency_.begin(), first_dependency_.end() - 1);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    dependencies_[At(slot[At(dependency.to)]++)] = dependency;
  }
}

int Evaluator::OptionNearest(int option_set, int clock) const {
  const auto& order = by_frequency_[At(option_set)];
  const int wanted_mhz = frequency_mhz_of_clock_[At(clock)];
  const auto first_from = [&](int mhz) {
    return std::lower_bound(order.begin(), order.end(), std::pair(mhz, 0));
  };
  const auto above = first_from(wanted_mhz);
  if (above != order.end() && above->first == wanted_mhz) return above->second;
  if (above == order.begin()) return above->second;
  const auto below = first_from((above - 1)->first);
  if (above == order.end()) return below->second;
  const int below_by = wanted_mhz - below->first;
  const int above_by = above->first - wanted_mhz;
  if (below_by == above_by) return std::min(below->second, above->second);
  return below_by < above_by ? below->second : above->second;
}

// Requests the clock of an instruction. If the instruction starts before the switch takes effect,
// evaluates it at the previous clock.
void Evaluator::RunAtPreviousClock(int instruction, const Timing& wanted, int wanted_clock,
                                   Clock& clock, Nanoseconds start, const Variation& variation,
                                   Evaluation& evaluation) const {
  clock.Request(wanted_clock, variation.switch_latencies.empty()
                                  ? model_.switch_latency
                                  : variation.switch_latencies[At(instruction)]);
  clock.Settle(start);
  if (clock.current == wanted_clock) return;
  const int set = graph_.instructions[At(instruction)].option_set;
  // In most profiles, all option sets have the same clocks, and no other knobs. Then the number of
  // a clock is also the index of its option.
  const std::vector<int>& clocks = clock_of_option_[At(set)];
  const auto same = At(clock.current);
  const bool is_index = graph_.other_knob_names.empty() && same < clocks.size();
  const int previous_index =
      is_index && clocks[same] == clock.current ? clock.current : OptionNearest(set, clock.current);
  const double factor =
      variation.time_factors.empty() ? 1 : variation.time_factors[At(instruction)];
  const profile::Option& measured = graph_.option_sets[At(set)].options[At(previous_index)];
  const Timing previous = Slowed({measured.time, measured.energy_j}, factor);
  // Both options have the same time and energy, so the results are already correct.
  if (previous.time == wanted.time && previous.energy_j == wanted.energy_j) return;
  const Nanoseconds wait = clock.switch_time - start;
  Nanoseconds& duration = evaluation.durations[At(instruction)];
  double& energy_j = evaluation.energies_j[At(instruction)];
  if (wait >= previous.time) {
    duration = previous.time;
    energy_j = previous.energy_j;
    return;
  }
  const double done = static_cast<double>(wait) / static_cast<double>(previous.time);
  const double rest = std::ceil((1 - done) * static_cast<double>(wanted.time));
  duration = wait + static_cast<Nanoseconds>(rest);
  energy_j = done * previous.energy_j + (1 - done) * wanted.energy_j;
}

Evaluator::Chosen Evaluator::Choose(std::span<const int> options) const {
  const std::size_t instructions = graph_.instructions.size();
  Chosen chosen;
  chosen.times.reserve(instructions);
  chosen.energies_j.reserve(instructions);
  chosen.clocks.reserve(instructions);
  for (std::size_t i = 0; i < instructions; ++i) {
    const auto set_index = At(graph_.instructions[i].option_set);
    const schedule::OptionSet& set = graph_.option_sets[set_index];
    const auto option = At(options[i]);
    chosen.times.push_back(set.options[option].time);
    chosen.energies_j.push_back(set.options[option].energy_j);
    chosen.clocks.push_back(set.HasClock() ? clock_of_option_[set_index][option] : kNoClock);
  }
  chosen.changes.assign(instructions, false);
  for (const std::vector<int>& order : graph_.pp_rank_orders) {
    int& switches = chosen.pp_rank_switches.emplace_back(0);
    int first = -1;
    int last = kNoClock;
    const auto change_to = [&](int i) {
      chosen.changes[At(i)] = chosen.clocks[At(i)] != last;
      switches += chosen.changes[At(i)] ? 1 : 0;
    };
    for (const int i : order) {
      if (chosen.clocks[At(i)] == kNoClock) continue;
      if (first < 0) {
        first = i;
      } else {
        change_to(i);
      }
      last = chosen.clocks[At(i)];
    }
    if (first >= 0) change_to(first);
  }
  return chosen;
}

Evaluation Evaluator::Evaluate(std::span<const int> options) const {
  static const Variation kNone;
  return Evaluate(options, kNone);
}

Evaluation Evaluator::Evaluate(std::span<const int> options, const Variation& variation) const {
  Evaluation evaluation;
  Evaluate(Choose(options), variation, evaluation);
  return evaluation;
}

void Evaluator::Evaluate(const Chosen& chosen, const Variation& variation,
                         Evaluation& evaluation) const {
  const std::size_t instructions = graph_.instructions.size();
  evaluation.time = 0;
  evaluation.instruction_energy_j = 0;
  evaluation.pp_rank_switches = chosen.pp_rank_switches;
  evaluation.switches =
      std::accumulate(chosen.pp_rank_switches.begin(), chosen.pp_rank_switches.end(), 0);
  evaluation.starts.resize(instructions);
  evaluation.durations.resize(instructions);
  evaluation.energies_j.resize(instructions);
  const bool has_latency = model_.switch_latency > 0;
  std::vector<Clock> clocks(has_latency ? graph_.pp_rank_orders.size() : 0);
  const Nanoseconds stall = model_.switch_cost.stall;
  const double change_j = model_.switch_cost.energy_j + model_.blocking_power_w * ToSeconds(stall);
  const bool changes_cost = !model_.switch_cost.IsNone();
  Nanoseconds busy = 0;
  for (int i = 0; At(i) < instructions; ++i) {
    const double factor = variation.time_factors.empty() ? 1 : variation.time_factors[At(i)];
    const Timing option = Slowed({chosen.times[At(i)], chosen.energies_j[At(i)]}, factor);
    Nanoseconds start = variation.earliest_starts.empty() ? 0 : variation.earliest_starts[At(i)];
    for (int d = first_dependency_[At(i)]; d < first_dependency_[At(i) + 1]; ++d) {
      const schedule::Dependency& dependency = dependencies_[At(d)];
      start = std::max(start, evaluation.starts[At(dependency.from)] +
                                  evaluation.durations[At(dependency.from)] + dependency.delay);
    }
    evaluation.starts[At(i)] = start;
    const bool pays = changes_cost && chosen.changes[At(i)];
    const Nanoseconds begin = start + (pays ? stall : 0);
    evaluation.durations[At(i)] = option.time;
    evaluation.energies_j[At(i)] = option.energy_j;
    if (const int wanted = chosen.clocks[At(i)]; has_latency && wanted != kNoClock) {
      Clock& clock = clocks[At(graph_.instructions[At(i)].pp_rank)];
      if (clock.current == kNoClock) clock.current = wanted;
      if (clock.current != wanted) {
        RunAtPreviousClock(i, option, wanted, clock, begin, variation, evaluation);
      } else {
        clock.pending = kNoClock;
      }
      clock.previous_end = begin + evaluation.durations[At(i)];
      clock.Settle(clock.previous_end);
    }
    if (pays) {
      evaluation.durations[At(i)] += stall;
      evaluation.energies_j[At(i)] += change_j;
    }
    busy += evaluation.durations[At(i)];
    evaluation.instruction_energy_j += evaluation.energies_j[At(i)];
    evaluation.time = std::max(evaluation.time, start + evaluation.durations[At(i)]);
  }
  const auto pp_ranks = static_cast<TotalNanoseconds>(graph_.pp_rank_orders.size());
  const auto waiting = static_cast<double>(pp_ranks * evaluation.time - busy);
  evaluation.blocking_energy_j = model_.blocking_power_w * (waiting / kNanosecondsPerSecond);
  evaluation.energy_j = evaluation.instruction_energy_j + evaluation.blocking_energy_j;
}

std::vector<int> Evaluator::LongestPath(const Evaluation& evaluation) const {
  std::vector<int> path;
  const auto end_of = [&](int i) { return evaluation.starts[At(i)] + evaluation.durations[At(i)]; };
  int last = -1;
  for (int i = 0; At(i) < evaluation.starts.size() && last < 0; ++i) {
    if (end_of(i) == evaluation.time) last = i;
  }
  while (last >= 0) {
    path.push_back(last);
    int before = -1;
    for (int d = first_dependency_[At(last)]; d < first_dependency_[At(last) + 1]; ++d) {
      const schedule::Dependency& dependency = dependencies_[At(d)];
      if (end_of(dependency.from) + dependency.delay == evaluation.starts[At(last)]) {
        before = dependency.from;
        break;
      }
    }
    last = before;
  }
  return path;
}

}  // namespace perseus::plan
