#include "tests/oracle/switch_program.h"

#include <algorithm>

#include "perseus/base/index.h"
#include "perseus/planning/profile/curve.h"
#include "tests/oracle/mixed_program.h"

namespace perseus {
namespace {

class SwitchProgram {
 public:
  SwitchProgram(const plan::Planner& planner, Nanoseconds deadline, int most_changes)
      : graph_(planner.graph()), model_(planner.model()), deadline_(ToUnits(deadline)) {
    const std::size_t instructions = graph_.instructions.size();
    first_option_.assign(instructions, 0);
    change_.assign(instructions, kNone);
    for (std::size_t i = 0; i < instructions; ++i) {
      first_option_[i] = program_.columns();
      const int row = program_.AddRow(1, 1);
      for (const profile::Option& option : OptionsOf(i)) {
        const int column =
            program_.AddColumn(MixedProgram::Column::kInteger,
                               profile::EffectiveEnergy(option, model_.blocking_power_w), 1);
        program_.AddEntry(row, column, 1);
      }
    }
    for (const std::vector<int>& order : graph_.pp_rank_orders) AddChanges(order, most_changes);
    AddTimes(planner.pp_ranks());
  }

  ProgramOptimum Solve(double most_seconds) const {
    const MixedProgram::Answer answer = program_.Solve(most_seconds);
    ProgramOptimum optimum{
        .proved = answer.proved, .options = {}, .energy_j = 0, .lower_bound_j = answer.least_cost};
    if (answer.values.empty()) return optimum;
    optimum.energy_j = answer.cost;
    for (std::size_t i = 0; i < first_option_.size(); ++i) {
      const auto first = answer.values.begin() + first_option_[i];
      const auto end = first + static_cast<std::ptrdiff_t>(OptionsOf(i).size());
      optimum.options.push_back(static_cast<int>(std::max_element(first, end) - first));
    }
    return optimum;
  }

 private:
  static constexpr int kNone = -1;

  const std::vector<profile::Option>& OptionsOf(std::size_t instruction) const {
    return graph_.options_of(static_cast<int>(instruction)).options;
  }

  // The change from one instruction to the next one of its pp_rank.
  void AddChange(int from, int to) {
    change_[At(to)] =
        program_.AddColumn(MixedProgram::Column::kReal, model_.switch_cost.energy_j, 1);
    for (std::size_t o = 0; o < OptionsOf(At(to)).size(); ++o) {
      const int row = program_.AddRow(0, MixedProgram::kInfinite);
      program_.AddEntry(row, change_[At(to)], 1);
      program_.AddEntry(row, first_option_[At(to)] + static_cast<int>(o), -1);
      for (std::size_t p = 0; p < OptionsOf(At(from)).size(); ++p) {
        if (!OptionsOf(At(from))[p].SameKnobs(OptionsOf(At(to))[o])) continue;
        program_.AddEntry(row, first_option_[At(from)] + static_cast<int>(p), 1);
      }
    }
  }

  void AddChanges(const std::vector<int>& order, int most_changes) {
    std::vector<int> clocked;
    for (const int i : order) {
      if (graph_.options_of(i).HasClock()) clocked.push_back(i);
    }
    if (clocked.size() < 2) return;
    const int limit = program_.AddRow(0, most_changes);
    for (std::size_t p = 0; p < clocked.size(); ++p) {
      AddChange(clocked[(p + clocked.size() - 1) % clocked.size()], clocked[p]);
      program_.AddEntry(limit, change_[At(clocked[p])], 1);
    }
  }

  void AddTimes(int pp_ranks) {
    const int first_start = program_.columns();
    std::vector<bool> is_awaited(graph_.instructions.size(), false);
    for (std::size_t i = 0; i < graph_.instructions.size(); ++i) {
      program_.AddColumn(MixedProgram::Column::kReal, 0, deadline_);
    }
    const double waiting_w = model_.blocking_power_w * pp_ranks;
    const int length =
        program_.AddColumn(MixedProgram::Column::kReal,
                           waiting_w * kNanosecondsPerUnit / kNanosecondsPerSecond, deadline_);
    for (const schedule::Dependency& dependency : graph_.dependencies) {
      is_awaited[At(dependency.from)] = true;
      AddOrder(first_start, dependency.from, first_start + dependency.to,
               ToUnits(dependency.delay));
    }
    for (std::size_t i = 0; i < is_awaited.size(); ++i) {
      if (!is_awaited[i]) AddOrder(first_start, static_cast<int>(i), length, 0);
    }
  }

  // The event is at least `delay` after the end of the instruction.
  void AddOrder(int first_start, int instruction, int event, double delay) {
    const int row = program_.AddRow(delay, MixedProgram::kInfinite);
    program_.AddEntry(row, event, 1);
    program_.AddEntry(row, first_start + instruction, -1);
    const std::vector<profile::Option>& options = OptionsOf(At(instruction));
    for (std::size_t o = 0; o < options.size(); ++o) {
      program_.AddEntry(row, first_option_[At(instruction)] + static_cast<int>(o),
                        -ToUnits(options[o].time));
    }
    const int change = change_[At(instruction)];
    if (change != kNone) program_.AddEntry(row, change, -ToUnits(model_.switch_cost.stall));
  }

  const schedule::InstructionGraph& graph_;
  plan::ExecutionModel model_;
  double deadline_;
  MixedProgram program_;
  std::vector<int> first_option_;  // [instruction]
  std::vector<int> change_;        // [instruction] kNone if its pp_rank never changes its clock.
};

}  // namespace

ProgramOptimum SolveSwitchProgram(const plan::Planner& planner, Nanoseconds deadline,
                                  int most_changes, double most_seconds) {
  return SwitchProgram(planner, deadline, most_changes).Solve(most_seconds);
}

}  // namespace perseus
