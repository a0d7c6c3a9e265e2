// The timeline that the search updates.
#include "perseus/planning/few_switches/timeline.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::few_switches {
namespace {

TEST(Timeline, AgreesWithTheEvaluator) {
  for (std::uint64_t seed = 0; seed < Seeds(200); ++seed) {
    SCOPED_TRACE(seed);
    const schedule::InstructionGraph graph =
        RandomJob({.instructions = 9 + static_cast<int>(seed % 40)}, seed);
    const plan::Evaluator evaluator(graph, {});
    std::mt19937_64 random(seed);
    std::vector<int> options(graph.instructions.size(), 0);
    std::vector<Nanoseconds> durations;
    for (std::size_t i = 0; i < options.size(); ++i) {
      durations.push_back(graph.options_of(static_cast<int>(i)).options.front().time);
    }
    Timeline timeline(graph);
    timeline.Reset(durations);
    for (int step = 0; step < 30; ++step) {
      std::vector<int> tried = options;
      std::vector<Timeline::Change> changes;
      const std::uint64_t rarity = step % 2 == 0 ? 3 : 12;
      for (std::size_t i = 0; i < options.size(); ++i) {
        if (random() % rarity != 0) continue;
        const auto& set = graph.options_of(static_cast<int>(i)).options;
        tried[i] = static_cast<int>(random() % set.size());
        changes.push_back({static_cast<int>(i), set[At(tried[i])].time});
      }
      EXPECT_EQ(timeline.Try(changes), evaluator.Evaluate(tried).time);
      if (random() % 2 == 0) {
        timeline.Keep();
        options = tried;
      } else {
        timeline.Undo();
      }
      EXPECT_EQ(timeline.time(), evaluator.Evaluate(options).time);
    }
  }
}

TEST(Timeline, AgreesWithTheEvaluatorUnderALatency) {
  for (std::uint64_t seed = 0; seed < Seeds(200); ++seed) {
    SCOPED_TRACE(seed);
    const schedule::InstructionGraph graph =
        RandomJob({.instructions = 9 + static_cast<int>(seed % 40)}, seed);
    const double power_w = RandomBlockingPower(seed);
    std::mt19937_64 random(seed);
    const plan::ExecutionModel model{
        .blocking_power_w = power_w,
        .switch_latency = static_cast<Nanoseconds>(1 + random() % (20 * kMillisecond)),
        .switch_cost = {}};
    const plan::Evaluator evaluator(graph, model);
    const std::vector<RankClocks> ranks = CollectClocks(graph, power_w);
    std::vector<int> options(graph.instructions.size(), 0);
    std::vector<int> clocks(graph.instructions.size(), 0);
    std::vector<std::pair<int, int>> places(graph.instructions.size(), {-1, 0});
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      for (int p = 0; p < ranks[r].positions(); ++p) {
        places[At(ranks[r].instructions[At(p)])] = {static_cast<int>(r), p};
      }
    }
    Timeline timeline(graph, ranks, model);
    double static_j = 0;
    for (int step = 0; step < 20; ++step) {
      std::vector<Timeline::Change> changes;
      for (std::size_t i = 0; i < options.size(); ++i) {
        if (places[i].first < 0 || (step > 0 && random() % 3 != 0)) continue;
        const RankClocks& rank = ranks[At(places[i].first)];
        int clock = 0;
        do {
          clock = static_cast<int>(random() % At(rank.clocks));
        } while (rank.options[rank.Cell(places[i].second, clock)] == RankClocks::kUnmeasured);
        clocks[i] = clock;
        options[i] = rank.options[rank.Cell(places[i].second, clock)];
        changes.push_back(
            {static_cast<int>(i), rank.times[rank.Cell(places[i].second, clock)], clock});
      }
      static_j = 0;
      std::vector<Nanoseconds> durations;
      for (std::size_t i = 0; i < options.size(); ++i) {
        const profile::Option& option =
            graph.options_of(static_cast<int>(i)).options[At(options[i])];
        static_j += option.energy_j - power_w * ToSeconds(option.time);
        durations.push_back(option.time);
      }
      if (step == 0) {
        timeline.Reset(durations, clocks);
      } else {
        const Nanoseconds before = timeline.time();
        const double before_j = timeline.late_energy_j();
        timeline.Try(changes);
        timeline.Undo();
        EXPECT_EQ(timeline.time(), before);
        EXPECT_EQ(timeline.late_energy_j(), before_j);
        timeline.Try(changes);
        if (random() % 2 == 0) timeline.Complete();
        if (random() % 2 == 0) timeline.Complete();
        timeline.Keep();
      }
      const plan::Evaluation expected = evaluator.Evaluate(options);
      EXPECT_EQ(timeline.time(), expected.time);
      EXPECT_EQ(timeline.starts(), expected.starts);
      const double waiting_j =
          power_w * static_cast<double>(ranks.size()) * ToSeconds(expected.time);
      EXPECT_NEAR(static_j + timeline.late_energy_j() + waiting_j, expected.energy_j,
                  1e-9 * expected.energy_j);
    }
  }
}

}  // namespace
}  // namespace perseus::few_switches
