#include "bench/plan_program.h"

#include <algorithm>

#include "perseus/base/index.h"
#include "perseus/planning/plan/search/choices.h"

namespace perseus {
namespace {

// The columns are the options of each instruction, its start, and finally the length.
class Program {
 public:
  Program(const plan::Planner& planner, Nanoseconds deadline)
      : graph_(planner.graph(), planner.model().blocking_power_w) {
    const int instructions = graph_.instructions();
    for (int i = 0; i < instructions; ++i) {
      first_option_.push_back(program_.columns());
      for (const plan::Candidate& candidate : graph_.candidates(i)) {
        program_.AddColumn(Column::kInteger, candidate.effective_energy_j, 1);
      }
    }
    first_start_ = program_.columns();
    for (int i = 0; i < instructions; ++i) {
      program_.AddColumn(Column::kReal, 0, ToUnits(deadline));
    }
    const double waiting_w = planner.model().blocking_power_w * planner.pp_ranks();
    const int length = program_.AddColumn(
        Column::kReal, waiting_w * kNanosecondsPerUnit / kNanosecondsPerSecond, ToUnits(deadline));

    for (int i = 0; i < instructions; ++i) {
      const int row = program_.AddRow(1, 1);
      for (int c = 0; c < Candidates(i); ++c) program_.AddEntry(row, first_option_[At(i)] + c, 1);
    }
    for (int i = 0; i < instructions; ++i) {
      for (const auto& after : graph_.successors(i)) {
        AddOrder(i, first_start_ + after.instruction, ToUnits(after.delay));
      }
      if (graph_.successors(i).empty()) AddOrder(i, length, 0);
    }
  }

  ProgramOptimum Solve(const ProgramLimits& limits) {
    const MixedProgram::Answer answer = program_.Solve(limits, StartFrom(limits.start));
    ProgramOptimum optimum{
        .proved = answer.proved, .options = {}, .energy_j = 0, .lower_bound_j = answer.least_cost};
    if (answer.values.empty()) return optimum;
    optimum.energy_j = answer.cost;
    for (int i = 0; i < graph_.instructions(); ++i) {
      const auto first = answer.values.begin() + first_option_[At(i)];
      const auto chosen = std::max_element(first, first + Candidates(i)) - first;
      optimum.options.push_back(graph_.candidates(i)[At(chosen)].option);
    }
    return optimum;
  }

 private:
  using Column = MixedProgram::Column;

  int Candidates(int instruction) const {
    return static_cast<int>(graph_.candidates(instruction).size());
  }

  // The event is at least `delay` after the end of the instruction.
  void AddOrder(int instruction, int event, double delay) {
    const int row = program_.AddRow(delay, MixedProgram::kInfinite);
    program_.AddEntry(row, event, 1);
    program_.AddEntry(row, first_start_ + instruction, -1);
    for (int c = 0; c < Candidates(instruction); ++c) {
      program_.AddEntry(row, first_option_[At(instruction)] + c,
                        -ToUnits(graph_.candidates(instruction)[At(c)].time));
    }
  }

  std::optional<MixedProgram::Start> StartFrom(const std::vector<int>& options) const {
    if (options.empty()) return std::nullopt;
    plan::Choices choices;
    MixedProgram::Start start;
    for (int i = 0; i < graph_.instructions(); ++i) {
      for (int c = 0; c < Candidates(i); ++c) {
        const bool chosen = graph_.candidates(i)[At(c)].option == options[At(i)];
        start.columns.push_back(first_option_[At(i)] + c);
        start.values.push_back(chosen ? 1 : 0);
        if (chosen) choices.push_back(c);
      }
    }
    if (choices.size() != options.size()) return std::nullopt;  // A dominated option: no column.
    const std::vector<Nanoseconds> starts = plan::EarliestStarts(graph_, choices);
    double length = 0;
    for (int i = 0; i < graph_.instructions(); ++i) {
      start.columns.push_back(first_start_ + i);
      start.values.push_back(ToUnits(starts[At(i)]));
      const Nanoseconds time = graph_.candidates(i)[At(choices[At(i)])].time;
      length = std::max(length, ToUnits(starts[At(i)] + time));
    }
    start.columns.push_back(program_.columns() - 1);
    start.values.push_back(length);
    return start;
  }

  plan::ChoiceGraph graph_;
  MixedProgram program_;
  std::vector<int> first_option_;  // [instruction]
  int first_start_ = 0;
};

}  // namespace

ProgramOptimum SolvePlanProgram(const plan::Planner& planner, Nanoseconds deadline,
                                const ProgramLimits& limits) {
  return Program(planner, deadline).Solve(limits);
}

}  // namespace perseus
