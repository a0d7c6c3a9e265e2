#include "perseus/planning/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/planning/schedule/instruction_graph.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::report {
namespace {

using ::testing::ElementsAre;

// Time runs to the right. d starts 2 ns (a transfer) after the end of b.
//
//   gpu0  [a 10][b 20    ]
//   gpu1        [c 15 ]    . .[d 5]
//   gpu2  [e 36                   ]
constexpr const char* kGraph = R"({"instructions": [
  {"name": "a", "resource": "gpu0", "options": [{"time": 10e-9, "energy": 1}]},
  {"name": "b", "resource": "gpu0", "options": [{"time": 20e-9, "energy": 1}]},
  {"name": "c", "resource": "gpu1", "options": [{"time": 15e-9, "energy": 1}]},
  {"name": "d", "resource": "gpu1", "options": [{"time": 5e-9, "energy": 1}]},
  {"name": "e", "resource": "gpu2", "options": [{"time": 36e-9, "energy": 1}]}],
 "dependencies": [{"from": "a", "to": "c"}, {"from": "b", "to": "d", "delay": 2e-9}]})";

TEST(CriticalInstructions, AreTheInstructionsThatTheIterationWaitsFor) {
  const auto file = schedule::ParseInstructionGraph(kGraph, "graph.json");
  ASSERT_TRUE(file) << file.error().message;
  const schedule::InstructionGraph& graph = file->graph;
  const plan::Evaluation evaluation =
      plan::Evaluator(graph, {}).Evaluate(schedule::BaselineOptions(graph));
  ASSERT_EQ(evaluation.time, 37);
  std::vector<std::string> critical;
  const std::vector<bool> is_critical = CriticalInstructions(graph, evaluation);
  for (std::size_t i = 0; i < is_critical.size(); ++i) {
    if (is_critical[i]) critical.push_back(graph.options_of(static_cast<int>(i)).name);
  }
  EXPECT_THAT(critical, ElementsAre("a", "b", "d"));  // e ends a nanosecond before d.
}

TEST(CriticalInstructions, OnlyTheyMakeTheIterationLonger) {
  for (std::uint64_t seed = 0; seed < Seeds(200); ++seed) {
    schedule::InstructionGraph graph = RandomJob({.instructions = 12}, seed);
    // Each instruction has its own option set, so that the test can make one longer.
    std::vector<schedule::OptionSet> sets;
    for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
      sets.push_back(graph.options_of(static_cast<int>(i)));
      graph.instructions[i].option_set = static_cast<int>(i);
    }
    graph.option_sets = std::move(sets);
    const std::vector<int> options = schedule::BaselineOptions(graph);
    const plan::Evaluation evaluation = plan::Evaluator(graph, {}).Evaluate(options);
    const std::vector<bool> critical = CriticalInstructions(graph, evaluation);
    for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
      profile::Option& option = graph.option_sets[i].options[static_cast<std::size_t>(options[i])];
      ++option.time;
      const Nanoseconds longer = plan::Evaluator(graph, {}).Evaluate(options).time;
      --option.time;
      EXPECT_EQ(longer, evaluation.time + (critical[i] ? 1 : 0)) << "seed " << seed << ", " << i;
    }
  }
}

}  // namespace
}  // namespace perseus::report
