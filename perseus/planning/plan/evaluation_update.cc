#include "perseus/planning/plan/evaluation_update.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "perseus/base/index.h"

namespace perseus::plan {
namespace {

constexpr std::size_t kBits = 64;
// Energies are counted in nanojoules, or in a larger unit if the sum of all energies would not fit.
constexpr double kFinestUnitsPerJ = 1e9;
constexpr double kMostUnits = 1e18;

__extension__ using WideNanoseconds = __int128;  // A sum over pp_ranks may exceed 64 bits.

}  // namespace

EvaluationUpdate::EvaluationUpdate(const Evaluator& evaluator, std::vector<int> options,
                                   Nanoseconds deadline)
    : evaluator_(evaluator), deadline_(deadline), options_(std::move(options)) {
  const schedule::InstructionGraph& graph = evaluator.graph_;
  const ExecutionModel& model = evaluator.model_;
  const double change_j =
      model.switch_cost.energy_j + model.blocking_power_w * ToSeconds(model.switch_cost.stall);
  double most_j = 0;
  for (const schedule::InstructionNode& instruction : graph.instructions) {
    double highest = 0;
    for (const profile::Option& option : graph.option_sets[At(instruction.option_set)].options) {
      highest = std::max(highest, std::abs(option.energy_j));
    }
    most_j += highest + change_j;
  }
  units_per_j_ = std::min(kFinestUnitsPerJ, kMostUnits / std::max(most_j, 1.0));
  change_units_ = ToUnits(change_j);
  const auto clocks = static_cast<int>(evaluator.frequency_mhz_of_clock_.size());
  for (std::size_t set = 0; set < graph.option_sets.size(); ++set) {
    std::vector<Run>& runs = runs_.emplace_back();
    for (const profile::Option& option : graph.option_sets[set].options) {
      runs.push_back({option.time, ToUnits(option.energy_j)});
    }
    std::vector<int>& option_at = option_at_.emplace_back();
    for (int clock = 0; model.switch_latency > 0 && clock < clocks; ++clock) {
      option_at.push_back(evaluator.OptionNearest(static_cast<int>(set), clock));
    }
  }
  FindNeighbors();
  FindTails();
  clocks_.resize(graph.instructions.size());
  for (int i = 0; At(i) < clocks_.size(); ++i) SetOption(i, options_[At(i)]);
  nodes_.resize(graph.instructions.size());
  marked_.assign(graph.instructions.size() / kBits + 1, 0);
  for (int i = 0; At(i) < nodes_.size(); ++i) {
    nodes_[At(i)] = Visit(i);
    energy_ += nodes_[At(i)].energy;
    busy_ += nodes_[At(i)].duration;
    if (previous_[At(i)] != kNone)
      switches_ += clocks_[At(i)] != clocks_[At(previous_[At(i)])] ? 1 : 0;
  }
  totals_ = Sum();
}

// Rounds to the nearest unit, without the math library, because this function is called very often.
std::int64_t EvaluationUpdate::ToUnits(double energy_j) const {
  const double units = energy_j * units_per_j_;
  return static_cast<std::int64_t>(units < 0 ? units - 0.5 : units + 0.5);
}

void EvaluationUpdate::FindNeighbors() {
  const schedule::InstructionGraph& graph = evaluator_.graph_;
  previous_.assign(graph.instructions.size(), kNone);
  next_.assign(graph.instructions.size(), kNone);
  is_first_.assign(graph.instructions.size(), false);
  for (const std::vector<int>& order : graph.pp_rank_orders) {
    std::vector<int> clocked;
    for (const int i : order) {
      if (graph.options_of(i).HasClock()) clocked.push_back(i);
    }
    for (std::size_t k = 0; k < clocked.size(); ++k) {
      previous_[At(clocked[k])] = clocked[(k + clocked.size() - 1) % clocked.size()];
      next_[At(clocked[k])] = clocked[(k + 1) % clocked.size()];
      is_first_[At(clocked[k])] = k == 0;
    }
  }
}

void EvaluationUpdate::FindTails() {
  const schedule::InstructionGraph& graph = evaluator_.graph_;
  const std::size_t instructions = graph.instructions.size();
  first_successor_.assign(instructions + 1, 0);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    ++first_successor_[At(dependency.from) + 1];
  }
  std::partial_sum(first_successor_.begin(), first_successor_.end(), first_successor_.begin());
  successors_.resize(graph.dependencies.size());
  std::vector<int> slot(first_successor_.begin(), first_successor_.end() - 1);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    successors_[At(slot[At(dependency.from)]++)] = dependency.to;
  }
  tails_.assign(instructions, 0);
  for (std::size_t i = instructions; i-- > 0;) {
    if (first_successor_[i] == first_successor_[i + 1]) last_.push_back(static_cast<int>(i));
    // A mix of two options takes at least as long as the faster one.
    const auto& options = graph.options_of(static_cast<int>(i)).options;
    const Nanoseconds least =
        std::ranges::min_element(options, {}, &profile::Option::time)->time + tails_[i];
    for (int d = evaluator_.first_dependency_[i]; d < evaluator_.first_dependency_[i + 1]; ++d) {
      const schedule::Dependency& dependency = evaluator_.dependencies_[At(d)];
      Nanoseconds& tail = tails_[At(dependency.from)];
      tail = std::max(tail, least + dependency.delay);
    }
  }
}

void EvaluationUpdate::SetOption(int instruction, int option) {
  const int set = evaluator_.graph_.instructions[At(instruction)].option_set;
  options_[At(instruction)] = option;
  clocks_[At(instruction)] = evaluator_.clock_of_option_[At(set)][At(option)];
}

bool EvaluationUpdate::Pays(int instruction) const {
  return !evaluator_.model_.switch_cost.IsNone() &&
         clocks_[At(instruction)] != clocks_[At(previous_[At(instruction)])];
}

// Evaluates an instruction that begins before its switch takes effect, in the same way as
// evaluation.cc.
EvaluationUpdate::Run EvaluationUpdate::RunMixed(int instruction, const Clock& clock,
                                                 Nanoseconds begin) const {
  const std::size_t set = At(evaluator_.graph_.instructions[At(instruction)].option_set);
  const int wanted_option = options_[At(instruction)];
  const int previous_option = option_at_[set][At(clock.current)];
  const std::vector<profile::Option>& options = evaluator_.graph_.option_sets[set].options;
  const profile::Option& wanted = options[At(wanted_option)];
  const profile::Option& previous = options[At(previous_option)];
  const Nanoseconds wait = clock.switch_time - begin;
  if (previous.time == wanted.time && previous.energy_j == wanted.energy_j) {
    return runs_[set][At(wanted_option)];
  }
  if (wait >= previous.time) return runs_[set][At(previous_option)];
  const double done = static_cast<double>(wait) / static_cast<double>(previous.time);
  const double exact_rest = (1 - done) * static_cast<double>(wanted.time);
  auto rest = static_cast<Nanoseconds>(exact_rest);
  if (static_cast<double>(rest) < exact_rest) ++rest;
  return {wait + rest, ToUnits(done * previous.energy_j + (1 - done) * wanted.energy_j)};
}

EvaluationUpdate::Node EvaluationUpdate::Visit(int instruction) const {
  const std::size_t i = At(instruction);
  Nanoseconds start = 0;
  for (int d = evaluator_.first_dependency_[i]; d < evaluator_.first_dependency_[i + 1]; ++d) {
    const schedule::Dependency& dependency = evaluator_.dependencies_[At(d)];
    start = std::max(start, nodes_[At(dependency.from)].end + dependency.delay);
  }
  const std::size_t set = At(evaluator_.graph_.instructions[i].option_set);
  Run run = runs_[set][At(options_[i])];
  Node node;
  if (previous_[i] != kNone) {
    const ExecutionModel& model = evaluator_.model_;
    const bool pays = Pays(instruction);
    const Nanoseconds stall = pays ? model.switch_cost.stall : 0;
    const Nanoseconds begin = start + stall;
    const int wanted = clocks_[At(instruction)];
    Clock& clock = node.clock;
    if (is_first_[i]) {
      clock.current = wanted;
    } else {
      clock = nodes_[At(previous_[i])].clock;
    }
    if (clock.current == wanted) {
      clock.pending = kNone;
      clock.switch_time = 0;
    } else if (model.switch_latency == 0) {
      clock.current = wanted;
    } else {
      clock.Request(wanted, model.switch_latency);
      clock.Settle(begin);
      if (clock.current != wanted) run = RunMixed(instruction, clock, begin);
    }
    clock.previous_end = begin + run.duration;
    clock.Settle(clock.previous_end);
    run.duration += stall;
    if (pays) run.energy += change_units_;
  }
  node.end = start + run.duration;
  node.duration = run.duration;
  node.energy = run.energy;
  return node;
}

void EvaluationUpdate::MarkForVisit(int instruction) {
  marked_[At(instruction) / kBits] |= std::uint64_t{1} << (At(instruction) % kBits);
}

void EvaluationUpdate::Replace(int instruction, const Node& node) {
  Node& now = nodes_[At(instruction)];
  energy_ += node.energy - now.energy;
  busy_ += node.duration - now.duration;
  now = node;
}

bool EvaluationUpdate::VisitMarked() {
  for (std::size_t word = 0; word < marked_.size(); ++word) {
    while (marked_[word] != 0) {
      const std::size_t i =
          word * kBits + static_cast<std::size_t>(std::countr_zero(marked_[word]));
      marked_[word] &= marked_[word] - 1;
      const Node node = Visit(static_cast<int>(i));
      const Node before = nodes_[i];
      if (node.end + tails_[i] > deadline_) {
        std::fill(marked_.begin() + static_cast<std::ptrdiff_t>(word), marked_.end(), 0);
        return false;
      }
      nodes_before_.emplace_back(static_cast<int>(i), before);
      Replace(static_cast<int>(i), node);
      if (node.end != before.end) {
        for (int s = first_successor_[i]; s < first_successor_[i + 1]; ++s) {
          MarkForVisit(successors_[At(s)]);
        }
      }
      const bool has_next = next_[i] != kNone && !is_first_[At(next_[i])];
      if (has_next && node.clock != before.clock) MarkForVisit(next_[i]);
    }
  }
  return true;
}

EvaluationUpdate::Totals EvaluationUpdate::Sum() const {
  Totals totals;
  for (const int i : last_) totals.time = std::max(totals.time, nodes_[At(i)].end);
  const auto pp_ranks = static_cast<WideNanoseconds>(evaluator_.graph_.pp_rank_orders.size());
  const auto waiting = static_cast<double>(pp_ranks * totals.time - busy_);
  totals.energy_j = static_cast<double>(energy_) / units_per_j_ +
                    evaluator_.model_.blocking_power_w * (waiting / kNanosecondsPerSecond);
  totals.switches = switches_;
  return totals;
}

std::optional<EvaluationUpdate::Totals> EvaluationUpdate::Try(std::span<const Change> changes) {
  nodes_before_.clear();
  options_before_.clear();
  totals_before_ = totals_;
  switches_before_ = switches_;
  for (const auto& [instruction, option] : changes) {
    const auto count_switches = [&, i = instruction] {
      if (previous_[At(i)] == kNone || next_[At(i)] == i) return 0;
      return (clocks_[At(i)] != clocks_[At(previous_[At(i)])] ? 1 : 0) +
             (clocks_[At(i)] != clocks_[At(next_[At(i)])] ? 1 : 0);
    };
    switches_ -= count_switches();
    options_before_.emplace_back(instruction, options_[At(instruction)]);
    SetOption(instruction, option);
    switches_ += count_switches();
    MarkForVisit(instruction);
    // The next instruction may now begin with a clock change, or no longer begin with one.
    if (next_[At(instruction)] != kNone) MarkForVisit(next_[At(instruction)]);
  }
  if (!VisitMarked()) {
    Undo();
    return std::nullopt;
  }
  totals_ = Sum();
  return totals_;
}

void EvaluationUpdate::Keep() {
  nodes_before_.clear();
  options_before_.clear();
}

void EvaluationUpdate::Undo() {
  for (std::size_t k = nodes_before_.size(); k-- > 0;) {
    Replace(nodes_before_[k].first, nodes_before_[k].second);
  }
  for (std::size_t k = options_before_.size(); k-- > 0;) {
    SetOption(options_before_[k].first, options_before_[k].second);
  }
  totals_ = totals_before_;
  switches_ = switches_before_;
  Keep();
}

}  // namespace perseus::plan
