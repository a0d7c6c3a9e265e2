#include "perseus/planning/plan/evaluation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::plan {
namespace {

constexpr int kNoSetting = -1;

// The sum of times over all pp_ranks may exceed 64 bits.
__extension__ using TotalNanoseconds = __int128;

using Knobs = std::pair<double, std::vector<double>>;

Knobs KnobsOf(const profile::Option& option) { return {option.frequency_mhz, option.other_knobs}; }

}  // namespace

// The setting at which a pp_rank runs, and the pending setting of a requested switch.
struct Evaluator::Clock {
  int first = kNoSetting;  // The first setting that the iteration requests.
  int setting = kNoSetting;
  int pending = kNoSetting;
  Nanoseconds switch_time = 0;   // When the pending setting takes effect.
  Nanoseconds previous_end = 0;  // Of the last instruction that has a clock.

  int requested() const { return pending == kNoSetting ? setting : pending; }
  // When the previous instruction ends. A pending switch to the same setting stays as it is.
  void Request(int wanted, Nanoseconds latency) {
    if (pending == wanted) return;
    pending = wanted;
    switch_time = previous_end + latency;
  }
  void Settle(Nanoseconds now) {
    if (pending == kNoSetting || switch_time > now) return;
    setting = pending;
    pending = kNoSetting;
  }
};

struct Evaluator::Timing {
  Nanoseconds time;
  double energy_j;
};

// The same power for `factor` times the time of the option.
Evaluator::Timing Evaluator::Slowed(const profile::Option& option, double factor) {
  if (factor == 1) return {option.time, option.energy_j};
  const double time = static_cast<double>(option.time) * factor;
  // Rounded. (std::llround is a call, which takes as long as the rest of an instruction.)
  return {static_cast<Nanoseconds>(time + 0.5), option.energy_j * factor};
}

Evaluator::Evaluator(const schedule::InstructionGraph& graph, const ExecutionModel& model)
    : graph_(graph), model_(model), dependencies_(graph.dependencies.size()) {
  std::map<Knobs, int> settings;
  for (const schedule::OptionSet& set : graph.option_sets) {
    std::vector<int>& setting_of = setting_of_option_.emplace_back();
    for (const profile::Option& option : set.options) {
      const auto next = static_cast<int>(settings.size());
      const auto [known, is_new] = settings.try_emplace(KnobsOf(option), next);
      if (is_new) frequency_mhz_of_setting_.push_back(option.frequency_mhz);
      setting_of.push_back(known->second);
    }
  }
  if (model.switch_latency > 0) {
    for (const schedule::OptionSet& set : graph.option_sets) {
      auto& order = by_frequency_.emplace_back();
      for (std::size_t i = 0; i < set.options.size(); ++i) {
        order.emplace_back(set.options[i].frequency_mhz, static_cast<int>(i));
      }
      std::sort(order.begin(), order.end());
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

int Evaluator::OptionNearest(int option_set, int setting) const {
  const std::vector<int>& settings = setting_of_option_[At(option_set)];
  const auto& order = by_frequency_[At(option_set)];
  const double wanted_mhz = frequency_mhz_of_setting_[At(setting)];
  const auto first_from = [&](double mhz) {
    return std::lower_bound(order.begin(), order.end(), std::pair(mhz, 0));
  };
  const auto above = first_from(wanted_mhz);
  for (auto same = above; same != order.end() && same->first == wanted_mhz; ++same) {
    if (settings[At(same->second)] == setting) return same->second;
  }
  if (above == order.begin()) return above->second;
  const auto below = first_from((above - 1)->first);
  if (above == order.end()) return below->second;
  const double below_by = wanted_mhz - below->first;
  const double above_by = above->first - wanted_mhz;
  if (below_by == above_by) return std::min(below->second, above->second);
  return below_by < above_by ? below->second : above->second;
}

// Requests the clock of an instruction, and evaluates the instruction if it starts before the
// switch takes effect.
void Evaluator::RunAtPreviousClock(int instruction, const Timing& wanted, int wanted_setting,
                                   Clock& clock, Nanoseconds start, const Variation& variation,
                                   Evaluation& evaluation) const {
  clock.Request(wanted_setting, variation.switch_latencies.empty()
                                    ? model_.switch_latency
                                    : variation.switch_latencies[At(instruction)]);
  clock.Settle(start);
  if (clock.setting == wanted_setting) return;
  const int set = graph_.instructions[At(instruction)].option_set;
  // In most profiles, all option sets have the same clocks. Then a setting is also the index of its
  // option.
  const std::vector<int>& settings = setting_of_option_[At(set)];
  const auto same = At(clock.setting);
  const int previous_index = same < settings.size() && settings[same] == clock.setting
                                 ? clock.setting
                                 : OptionNearest(set, clock.setting);
  const double factor =
      variation.time_factors.empty() ? 1 : variation.time_factors[At(instruction)];
  const Timing previous = Slowed(graph_.option_sets[At(set)].options[At(previous_index)], factor);
  // The duration and the energy are those of `wanted` already, to the nanosecond.
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

std::vector<bool> Evaluator::FindPaidChanges(std::span<const int> options) const {
  if (model_.switch_cost.IsNone()) return {};
  std::vector<bool> changes(graph_.instructions.size(), false);
  for (const std::vector<int>& order : graph_.pp_rank_orders) {
    int first = -1;
    int last = kNoSetting;
    for (const int i : order) {
      const auto set = At(graph_.instructions[At(i)].option_set);
      if (!graph_.option_sets[set].HasClock()) continue;
      const int setting = setting_of_option_[set][At(options[At(i)])];
      if (first < 0) {
        first = i;
      } else {
        changes[At(i)] = setting != last;
      }
      last = setting;
    }
    if (first < 0) continue;
    const auto set = At(graph_.instructions[At(first)].option_set);
    changes[At(first)] = setting_of_option_[set][At(options[At(first)])] != last;
  }
  return changes;
}

Evaluation Evaluator::Evaluate(std::span<const int> options) const {
  static const Variation kNone;
  return Evaluate(options, kNone);
}

Evaluation Evaluator::Evaluate(std::span<const int> options, const Variation& variation) const {
  const std::size_t instructions = graph_.instructions.size();
  Evaluation evaluation;
  evaluation.starts.assign(instructions, 0);
  evaluation.durations.assign(instructions, 0);
  evaluation.energies_j.assign(instructions, 0);
  evaluation.pp_rank_switches.assign(graph_.pp_rank_orders.size(), 0);
  std::vector<Clock> clocks(graph_.pp_rank_orders.size());
  const std::vector<bool> pays = FindPaidChanges(options);
  const Nanoseconds stall = model_.switch_cost.stall;
  const double change_j = model_.switch_cost.energy_j + model_.blocking_power_w * ToSeconds(stall);
  Nanoseconds busy = 0;
  for (int i = 0; At(i) < instructions; ++i) {
    const schedule::InstructionNode& instruction = graph_.instructions[At(i)];
    const schedule::OptionSet& set = graph_.option_sets[At(instruction.option_set)];
    const double factor = variation.time_factors.empty() ? 1 : variation.time_factors[At(i)];
    const profile::Option& measured = set.options[At(options[At(i)])];
    const Timing option = Slowed(measured, factor);
    Nanoseconds start = variation.earliest_starts.empty() ? 0 : variation.earliest_starts[At(i)];
    for (int d = first_dependency_[At(i)]; d < first_dependency_[At(i) + 1]; ++d) {
      const schedule::Dependency& dependency = dependencies_[At(d)];
      start = std::max(start, evaluation.starts[At(dependency.from)] +
                                  evaluation.durations[At(dependency.from)] + dependency.delay);
    }
    evaluation.starts[At(i)] = start;
    const bool changes = !pays.empty() && pays[At(i)];
    const Nanoseconds begin = start + (changes ? stall : 0);
    evaluation.durations[At(i)] = option.time;
    evaluation.energies_j[At(i)] = option.energy_j;
    if (set.HasClock()) {
      Clock& clock = clocks[At(instruction.pp_rank)];
      const int wanted = setting_of_option_[At(instruction.option_set)][At(options[At(i)])];
      if (clock.setting == kNoSetting) clock.first = clock.setting = wanted;
      if (clock.requested() != wanted) {
        ++evaluation.pp_rank_switches[At(instruction.pp_rank)];
      }
      if (clock.setting != wanted) {
        if (model_.switch_latency > 0) {
          RunAtPreviousClock(i, option, wanted, clock, begin, variation, evaluation);
        } else {
          clock.setting = wanted;
        }
      } else {
        clock.pending = kNoSetting;
      }
      clock.previous_end = begin + evaluation.durations[At(i)];
      clock.Settle(clock.previous_end);
    }
    if (changes) {
      evaluation.durations[At(i)] += stall;
      evaluation.energies_j[At(i)] += change_j;
    }
    busy += evaluation.durations[At(i)];
    evaluation.instruction_energy_j += evaluation.energies_j[At(i)];
    evaluation.time = std::max(evaluation.time, start + evaluation.durations[At(i)]);
  }
  for (std::size_t rank = 0; rank < clocks.size(); ++rank) {
    if (clocks[rank].requested() != clocks[rank].first) ++evaluation.pp_rank_switches[rank];
    evaluation.switches += evaluation.pp_rank_switches[rank];
  }
  const auto pp_ranks = static_cast<TotalNanoseconds>(graph_.pp_rank_orders.size());
  const auto waiting = static_cast<double>(pp_ranks * evaluation.time - busy);
  evaluation.blocking_energy_j = model_.blocking_power_w * (waiting / kNanosecondsPerSecond);
  evaluation.energy_j = evaluation.instruction_energy_j + evaluation.blocking_energy_j;
  return evaluation;
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
