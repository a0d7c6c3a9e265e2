// Compares plans with few clock changes, and their bounds, with a mixed-integer program.
//
// The problem is planning with at most N clock changes per pp_rank. Here it is a mixed-integer
// program, which COIN-OR CBC solves. The result shows how good such a plan could be. The program
// shares no idea and no code with perseus/planning/few_switches.
//
//   minimize   sum over i, c of ê_ic * z_ic  +  sum of J * y_i  +  pp_ranks * P * length
//   subject to one clock each:  sum over c of z_ic = 1
//              changes:         y_i >= z_ic - z_hc      for every c; h runs before i on the same
//                                                       pp_rank, around the ring of iterations
//              the limit:       sum over i of a pp_rank of y_i <= N
//              duration:        d_i = sum over c of t_ic * z_ic  +  stall * y_i
//              precedence:      start_j >= start_i + d_i + delay
//              deadline:        start_i + d_i <= length <= deadline
//              z binary, y and start >= 0
//
// c are the combinations of frequency and other knobs at which an instruction of the pp_rank was
// measured, ê is effective energy, and J and stall are the switch cost. A switch latency depends
// on the order of events and is not part of the program.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/planning/few_switches/few_switches.h"
#include "perseus/planning/profile/curve.h"
#include "tests/oracle/mixed_program.h"
#include "tests/support/planning_jobs.h"

namespace perseus {
namespace {

// CBC computes with doubles. Its results are exact up to its tolerances, about 1e-6 ms.
struct ProgramOptimum {
  bool proved = false;  // Whether CBC has proved that no better plan exists.
  // [instruction] an index into its option set. Empty if no plan was found.
  std::vector<int> options;
  double energy_j = 0;       // The energy of `options` according to CBC.
  double lower_bound_j = 0;  // A lower bound: no plan needs less energy.
};

class SwitchProgram {
 public:
  // Requires a planner without switch latency.
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

  // Adds the change from one instruction to the next instruction of its pp_rank.
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

  // Adds a rule: the event is at least `delay` after the end of the instruction.
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

constexpr int kBudgets[] = {0, 2, 3, 5};
// CBC's results are exact up to its tolerances: 1e-6 of a time, or of an option of a few joules.
constexpr double kCbcTolerance = 1e-6;
constexpr double kWithin = 0.001;

// Compares plans and bounds for all kBudgets and some deadlines. A quarter of the usual effort is
// enough to find these plans.
void CompareWithProgram(const schedule::InstructionGraph& graph,
                        const plan::ExecutionModel& model) {
  const Result<plan::Planner> planner = plan::Planner::Create(graph, model);
  ASSERT_TRUE(planner) << planner.error().Message();
  const Nanoseconds slowest = planner->SlowestTime();
  for (const int part : {0, 4}) {
    SCOPED_TRACE(part);
    const Nanoseconds deadline =
        planner->baseline().time + (slowest - planner->baseline().time) * part / 10;
    const auto plans =
        few_switches::PlanFewSwitches(*planner, deadline, kBudgets, {}, {.effort = 0.25});
    ASSERT_TRUE(plans) << plans.error().Message();
    for (const few_switches::BudgetPlan& found : *plans) {
      SCOPED_TRACE(found.most_changes);
      const ProgramOptimum optimum =
          SwitchProgram(*planner, deadline, found.most_changes).Solve(120);
      ASSERT_TRUE(optimum.proved);
      ASSERT_EQ(found.plan.has_value(), !optimum.options.empty());
      const plan::Evaluation best =
          plan::Evaluator(planner->graph(), planner->model()).Evaluate(optimum.options);
      EXPECT_NEAR(best.energy_j, optimum.energy_j, kCbcTolerance * optimum.energy_j);
      EXPECT_LE(found.lower_bound_j, optimum.energy_j * (1 + kCbcTolerance));
      EXPECT_LE(found.plan->evaluation.energy_j, optimum.energy_j * (1 + kWithin));
      EXPECT_GE(found.plan->evaluation.energy_j, optimum.lower_bound_j * (1 - kCbcTolerance));
    }
  }
}

// Two pp_ranks and up to six microbatches: 24 instructions. An exhaustive search cannot cover so
// many.
JobSpec Pipeline() {
  return {.shape = JobShape::kPipeline,
          .instructions = 24,
          .options = 4,
          .times = JobSpec::Times::kMilliseconds};
}

TEST(SwitchProgram, AgreesWithPlansOfPipelines) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    SCOPED_TRACE(seed);
    CompareWithProgram(RandomJob(Pipeline(), seed),
                       {.blocking_power_w = RandomBlockingPower(seed)});
  }
}

TEST(SwitchProgram, AgreesWithPlansUnderASwitchCost) {
  for (std::uint64_t seed = 100; seed < 104; ++seed) {
    SCOPED_TRACE(seed);
    const schedule::InstructionGraph graph = RandomJob(Pipeline(), seed);
    const profile::Option& first = graph.options_of(0).options.front();
    CompareWithProgram(graph, {.blocking_power_w = RandomBlockingPower(seed),
                               .switch_latency = 0,
                               .switch_cost = {first.time / 10, first.energy_j / 50}});
  }
}

TEST(SwitchProgram, AgreesWithPlansOfGraphs) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    CompareWithProgram(
        RandomJob({.instructions = 14, .times = JobSpec::Times::kMilliseconds}, seed),
        {.blocking_power_w = RandomBlockingPower(seed)});
  }
}

}  // namespace
}  // namespace perseus
