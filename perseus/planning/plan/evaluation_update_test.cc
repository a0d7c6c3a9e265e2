// Compares updates with evaluations from scratch, on random jobs and random changes.
#include "perseus/planning/plan/evaluation_update.h"

#include <gtest/gtest.h>

#include "perseus/base/index.h"
#include "perseus/base/random.h"
#include "tests/support/planning_jobs.h"

namespace perseus::plan {
namespace {

constexpr double kUpdateRounding = 1e-6;  // In J: a nanojoule for each instruction.
constexpr Nanoseconds kNoDeadline = Nanoseconds{1} << 60;

std::vector<EvaluationUpdate::Change> RandomChanges(const schedule::InstructionGraph& graph,
                                                    SplitMix64& random) {
  std::vector<EvaluationUpdate::Change> changes;
  const auto first = static_cast<int>(random() % graph.instructions.size());
  const int count = 1 + static_cast<int>(random() % 3);
  for (int i = first; i < first + count && At(i) < graph.instructions.size(); ++i) {
    changes.emplace_back(i, static_cast<int>(random() % graph.options_of(i).options.size()));
  }
  return changes;
}

void ExpectSame(const EvaluationUpdate::Totals& totals, const Evaluation& evaluation) {
  EXPECT_EQ(totals.time, evaluation.time);
  EXPECT_EQ(totals.switches, evaluation.switches);
  EXPECT_NEAR(totals.energy_j, evaluation.energy_j, kUpdateRounding);
}

void ExpectUpdatesHold(const schedule::InstructionGraph& graph, const ExecutionModel& model,
                       SplitMix64& random) {
  const Evaluator evaluator(graph, model);
  std::vector<int> options = schedule::BaselineOptions(graph);
  // Half of the jobs have a deadline that some plans miss.
  const Nanoseconds deadline =
      random() % 2 == 0 ? kNoDeadline : evaluator.Evaluate(options).time * 5 / 4;
  EvaluationUpdate update(evaluator, options, deadline);
  ExpectSame(update.totals(), evaluator.Evaluate(options));
  for (int step = 0; step < 60; ++step) {
    const auto changes = RandomChanges(graph, random);
    std::vector<int> changed = options;
    for (const auto& [instruction, option] : changes) changed[At(instruction)] = option;
    const Evaluation expected = evaluator.Evaluate(changed);
    const auto totals = update.Try(changes);
    ASSERT_EQ(totals.has_value(), expected.time <= deadline);
    if (totals) ExpectSame(*totals, expected);
    if (totals && random() % 2 == 0) {
      update.Keep();
      options = changed;
    } else if (totals) {
      update.Undo();
    }
    ASSERT_EQ(update.options(), options);
    ExpectSame(update.totals(), evaluator.Evaluate(options));
  }
}

TEST(EvaluationUpdateProperty, IsTheEvaluation) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    SplitMix64 random{seed};
    const JobShape shape = seed % 2 == 0 ? JobShape::kPipeline : JobShape::kAnyOrder;
    const auto graph = RandomJob({.shape = shape, .instructions = 16}, seed);
    ExecutionModel model{.blocking_power_w = RandomBlockingPower(seed)};
    if (seed % 4 != 3)
      model.switch_latency = static_cast<Nanoseconds>(random() % 20) * kMillisecond;
    if (seed % 3 == 0) model.switch_cost = {.stall = kMillisecond / 2, .energy_j = 0.25};
    ExpectUpdatesHold(graph, model, random);
  }
}

// All-reduce and transfers are fixed: they do not change the clock.
TEST(EvaluationUpdateProperty, IsTheEvaluationOfAPipeline) {
  const auto graph = MakeSyntheticJob({.stages = 3, .microbatches = 4});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    SplitMix64 random{seed};
    ExpectUpdatesHold(graph,
                      {.blocking_power_w = kSyntheticBlockingPowerW,
                       .switch_latency = static_cast<Nanoseconds>(seed % 5) * 10 * kMillisecond,
                       .switch_cost = {.stall = kMillisecond, .energy_j = 0.1}},
                      random);
  }
}

}  // namespace
}  // namespace perseus::plan
