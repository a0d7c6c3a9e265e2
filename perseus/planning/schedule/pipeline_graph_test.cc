// Tests of BuildInstructionGraph, which makes a graph of a schedule and a profile.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using enum InstructionKind;

const std::vector<InstructionKind> kComputations = {kForward, kBackward, kBackwardInput,
                                                    kBackwardWeight, kRecompute};

// A different time for every (stage, chunk, kind).
Nanoseconds TimeOf(int stage, int chunk, InstructionKind kind) {
  return 1000 + 100 * (stage * 7 % 5) + 30 * chunk + 13 * static_cast<int>(kind);
}

profile::Profile MakeProfile(int stages, int chunks,
                             const std::vector<InstructionKind>& kinds = kComputations) {
  std::vector<profile::ProfileEntry> entries;
  for (int stage = 0; stage < stages; ++stage) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (InstructionKind kind : kinds) {
        profile::Option option;
        option.frequency_mhz = 1410;
        option.time = TimeOf(stage, chunk, kind);
        option.energy_j = 2;
        entries.push_back({stage, chunk, kind, {option}});
      }
    }
  }
  return profile::Profile("profile.csv", {}, std::move(entries));
}

Schedule Generate(const ScheduleSpec& spec) {
  Result<Schedule> schedule = GenerateSchedule(spec);
  EXPECT_TRUE(schedule) << schedule.error().Message();
  return schedule ? *std::move(schedule) : Schedule();
}

Schedule Parse(std::string_view csv) {
  Result<Schedule> schedule = ParseSchedule(csv, "dump.csv");
  EXPECT_TRUE(schedule) << schedule.error().Message();
  return schedule ? *std::move(schedule) : Schedule();
}

std::string ErrorOf(const Result<InstructionGraph>& graph) {
  return graph ? "no error" : graph.error().Message();
}

std::vector<std::string> DescribeDependencies(const InstructionGraph& graph) {
  std::vector<std::string> described;
  for (const Dependency& dependency : graph.dependencies) {
    described.push_back(fmt::format("{} -> {}{}", Describe(graph, dependency.from),
                                    Describe(graph, dependency.to),
                                    dependency.delay == 0 ? "" : " delayed"));
  }
  return described;
}

std::vector<std::string> DescribeRank(const InstructionGraph& graph, std::size_t rank) {
  std::vector<std::string> described;
  for (int instruction : graph.pp_rank_orders[rank])
    described.push_back(Describe(graph, instruction));
  return described;
}

//   pp_rank 0:  F0 -> F1 ------> B0 -------------> B1
//               \     `------/--------.        ^
//                v          /          v      /
//   pp_rank 1:      F0 -----> B0 -------> F1 -> B1
TEST(PipelineGraph, HasDependenciesAlongAndBetweenPpRanks) {
  PipelineModel model;
  model.fixed.p2p = 400;
  const auto graph = BuildInstructionGraph(Generate({"1f1b", 2, 2}), MakeProfile(2, 1), model);
  ASSERT_TRUE(graph) << graph.error().Message();
  EXPECT_THAT(
      DescribeDependencies(*graph),
      UnorderedElementsAre(
          "forward of microbatch 0 on pp_rank 0 -> forward of microbatch 1 on pp_rank 0",
          "forward of microbatch 1 on pp_rank 0 -> backward of microbatch 0 on pp_rank 0",
          "backward of microbatch 0 on pp_rank 0 -> backward of microbatch 1 on pp_rank 0",
          "forward of microbatch 0 on pp_rank 1 -> backward of microbatch 0 on pp_rank 1",
          "backward of microbatch 0 on pp_rank 1 -> forward of microbatch 1 on pp_rank 1",
          "forward of microbatch 1 on pp_rank 1 -> backward of microbatch 1 on pp_rank 1",
          "forward of microbatch 0 on pp_rank 0 -> forward of microbatch 0 on pp_rank 1 delayed",
          "forward of microbatch 1 on pp_rank 0 -> forward of microbatch 1 on pp_rank 1 delayed",
          "backward of microbatch 0 on pp_rank 1 -> backward of microbatch 0 on pp_rank 0 delayed",
          "backward of microbatch 1 on pp_rank 1 -> backward of microbatch 1 on pp_rank 0 "
          "delayed"));
  EXPECT_THAT(graph->pp_rank_names, ElementsAre("pp_rank 0", "pp_rank 1"));
  EXPECT_EQ(graph->name, "1f1b");
}

// Chunk 0 of the last pp_rank passes activations to chunk 1 of the same pp_rank, without a
// transfer.
TEST(PipelineGraph, TheTurnOfAVHasNoTransfer) {
  PipelineModel model;
  model.fixed.p2p = 400;
  const auto graph = BuildInstructionGraph(Generate({"zb-v", 1, 1}), MakeProfile(1, 2), model);
  ASSERT_TRUE(graph) << graph.error().Message();
  for (const Dependency& dependency : graph->dependencies) EXPECT_EQ(dependency.delay, 0);
  EXPECT_EQ(Describe(*graph, 0), "forward of microbatch 0 of chunk 0 on pp_rank 0");
}

TEST(PipelineGraph, PlacesFixedInstructionsInTheOrder) {
  PipelineModel model;
  model.blocking_power_w = 100;
  model.gpus_per_stage = 8;
  model.fixed.load = {.time = 1000, .energy_j = 0.5};
  model.fixed.all_reduce = {.time = 2'000'000'000};
  model.fixed.optimizer = {.time = 3000, .energy_j = 0};
  const auto graph = BuildInstructionGraph(Generate({"gpipe", 2, 2}), MakeProfile(2, 1), model);
  ASSERT_TRUE(graph) << graph.error().Message();
  EXPECT_THAT(
      DescribeRank(*graph, 0),
      ElementsAre("load of microbatch 0 on pp_rank 0", "forward of microbatch 0 on pp_rank 0",
                  "load of microbatch 1 on pp_rank 0", "forward of microbatch 1 on pp_rank 0",
                  "backward of microbatch 0 on pp_rank 0", "backward of microbatch 1 on pp_rank 0",
                  "all_reduce on pp_rank 0", "optimizer on pp_rank 0"));
  EXPECT_THAT(
      DescribeRank(*graph, 1),
      ElementsAre("forward of microbatch 0 on pp_rank 1", "forward of microbatch 1 on pp_rank 1",
                  "backward of microbatch 0 on pp_rank 1", "backward of microbatch 1 on pp_rank 1",
                  "all_reduce on pp_rank 1", "optimizer on pp_rank 1"));

  std::map<InstructionKind, double> energy_j;
  for (const OptionSet& set : graph->option_sets) energy_j[set.kind] = set.options[0].energy_j;
  EXPECT_DOUBLE_EQ(energy_j[kLoad], 0.5 * 8);
  EXPECT_DOUBLE_EQ(energy_j[kAllReduce], 100 * 2 * 8) << "not given: it draws the blocking power";
  EXPECT_DOUBLE_EQ(energy_j[kOptimizer], 0);
  EXPECT_DOUBLE_EQ(energy_j[kForward], 2 * 8);
}

TEST(PipelineGraph, InstructionsOfAStageAndKindShareTheirOptions) {
  const auto graph =
      BuildInstructionGraph(Generate({"zb-v", 2, 50}), MakeProfile(2, 2), PipelineModel());
  ASSERT_TRUE(graph) << graph.error().Message();
  std::vector<std::string> names;
  for (const OptionSet& set : graph->option_sets) names.push_back(set.name);
  EXPECT_THAT(names, UnorderedElementsAre(
                         "stage 0 chunk 0 forward", "stage 0 chunk 0 backward_input",
                         "stage 0 chunk 0 backward_weight", "stage 0 chunk 1 forward",
                         "stage 0 chunk 1 backward_input", "stage 0 chunk 1 backward_weight",
                         "stage 1 chunk 0 forward", "stage 1 chunk 0 backward_input",
                         "stage 1 chunk 0 backward_weight", "stage 1 chunk 1 forward",
                         "stage 1 chunk 1 backward_input", "stage 1 chunk 1 backward_weight"));
}

TEST(PipelineGraph, TheBaselineIsTheFastestOptionAtTheHighestFrequency) {
  auto option = [](int frequency_mhz, double sm_count, Nanoseconds time) {
    profile::Option made;
    made.frequency_mhz = frequency_mhz;
    made.other_knobs = {sm_count};
    made.time = time;
    made.energy_j = 1;
    return made;
  };
  const std::vector<profile::Option> options = {option(1410, 80, 120), option(1410, 108, 100),
                                                option(1300, 108, 90)};
  const profile::Profile profile("profile.csv", {"sm_count"},
                                 {{0, 0, kForward, options}, {0, 0, kBackward, options}});
  const auto graph = BuildInstructionGraph(Generate({"gpipe", 1, 1}), profile, PipelineModel());
  ASSERT_TRUE(graph) << graph.error().Message();
  for (const OptionSet& set : graph->option_sets) {
    const profile::Option& baseline = set.options[static_cast<std::size_t>(set.baseline)];
    EXPECT_EQ(baseline.time, 100);
    EXPECT_EQ(baseline.other_knobs, (std::vector<double>{108}));
  }
  EXPECT_THAT(graph->other_knob_names, ElementsAre("sm_count"));
}

TEST(PipelineGraph, RefusesAProfileThatDoesNotFitTheSchedule) {
  const PipelineModel model;
  EXPECT_THAT(ErrorOf(BuildInstructionGraph(Generate({"1f1b", 4, 8}), MakeProfile(2, 1), model)),
              HasSubstr("profile.csv has 2 stages, but schedule 1f1b has 4 pp_ranks"));
  EXPECT_THAT(ErrorOf(BuildInstructionGraph(Generate({"interleaved-1f1b", 2, 4, 2}),
                                            MakeProfile(2, 1), model)),
              HasSubstr("stage 0 chunk 1 forward is missing"));
  EXPECT_THAT(ErrorOf(BuildInstructionGraph(Generate({"zb-h1", 2, 4}),
                                            MakeProfile(2, 1, {kForward, kBackward}), model)),
              HasSubstr("stage 0 backward_input is missing, which schedule zb-h1 runs (the profile "
                        "has full backwards: choose a schedule with them, such as 1f1b"));
  EXPECT_THAT(ErrorOf(BuildInstructionGraph(
                  Generate({"1f1b", 2, 4}),
                  MakeProfile(2, 1, {kForward, kBackwardInput, kBackwardWeight}), model)),
              HasSubstr("stage 0 backward is missing, which schedule 1f1b runs (the profile has "
                        "split backwards: choose a schedule with them, such as zb-h1"));
  EXPECT_THAT(ErrorOf(BuildInstructionGraph(Generate({"1f1b", 2, 4}), MakeProfile(2, 1, {kForward}),
                                            model)),
              HasSubstr("runs (profile it, or choose a schedule without it)"));
  EXPECT_THAT(ErrorOf(BuildInstructionGraph(Generate({"1f1b", 2, 4}), MakeProfile(2, 2), model)),
              HasSubstr("has 2 chunks for each stage, but schedule 1f1b runs 1 on a pp_rank"));
  PipelineModel no_gpus;
  no_gpus.gpus_per_stage = 0;
  EXPECT_THAT(ErrorOf(BuildInstructionGraph(Generate({"1f1b", 2, 4}), MakeProfile(2, 1), no_gpus)),
              HasSubstr("gpus_per_stage is 0 (expected at least 1)"));
}

//   pp_rank 0:  F0 F1           B1 B0
//   pp_rank 1:     F0 B0 F1 B1
TEST(PipelineGraph, AcceptsAnUnusualOrderThatCanRun) {
  const auto graph = BuildInstructionGraph(Parse("0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1"),
                                           MakeProfile(2, 1), PipelineModel());
  EXPECT_TRUE(graph) << graph.error().Message();
}

TEST(PipelineGraph, TheErrorOfADeadlockNamesWhatEachPpRankWaitsFor) {
  EXPECT_EQ(
      ErrorOf(BuildInstructionGraph(Parse("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0"), MakeProfile(2, 1),
                                    PipelineModel())),
      "schedule dump.csv deadlocks: pp_rank 0 waits at backward of microbatch 0 (stage 0) for "
      "backward of microbatch 0 (stage 1), pp_rank 1 waits at forward of microbatch 1 (stage 1) "
      "for forward of microbatch 1 (stage 0) (order each pp_rank so that every computation comes "
      "after those that it needs)");
  EXPECT_THAT(ErrorOf(BuildInstructionGraph(Parse("0B0,0F0"), MakeProfile(1, 1), PipelineModel())),
              HasSubstr("pp_rank 0 waits at backward of microbatch 0 (stage 0) for forward of "
                        "microbatch 0 (stage 0)"));
  EXPECT_THAT(
      ErrorOf(BuildInstructionGraph(Parse("0F0,0W0,0I0"), MakeProfile(1, 1), PipelineModel())),
      HasSubstr("pp_rank 0 waits at backward_weight"));
}

TEST(PipelineGraph, RefusesAnInconsistentSchedule) {
  const profile::Profile profile = MakeProfile(1, 1);
  const Schedule good = Generate({"gpipe", 1, 2});
  auto error_after = [&](auto change) {
    Schedule schedule = good;
    change(schedule);
    return ErrorOf(BuildInstructionGraph(schedule, profile, PipelineModel()));
  };
  EXPECT_THAT(error_after([](Schedule& s) { s.pp_ranks[0].pop_back(); }),
              HasSubstr("backward of microbatch 1 (stage 0) is missing"));
  EXPECT_THAT(error_after([](Schedule& s) { s.pp_ranks[0].push_back(s.pp_ranks[0][0]); }),
              HasSubstr("forward of microbatch 0 (stage 0) appears twice"));
  EXPECT_THAT(error_after([](Schedule& s) { s.pp_ranks[0][0].stage = 3; }),
              HasSubstr("no such stage (expected 0 to 0)"));
  EXPECT_THAT(error_after([](Schedule& s) { s.pp_ranks[0][0].microbatch = -1; }),
              HasSubstr("no such microbatch (expected 0 to 1)"));
  EXPECT_THAT(error_after([](Schedule& s) { s.pp_ranks[0][0].kind = kOptimizer; }),
              HasSubstr("a schedule has no fixed instruction such as optimizer"));
  EXPECT_THAT(error_after([](Schedule& s) { s.pp_rank_of_stage[0] = 7; }),
              HasSubstr("stage 0 is on pp_rank 7 (expected 0 to 0)"));
  EXPECT_THAT(error_after([](Schedule& s) { s.chunk_of_stage.clear(); }),
              HasSubstr("1 stages have a pp_rank, but 0 have a chunk"));
  EXPECT_THAT(error_after([](Schedule& s) { s = Schedule(); }), HasSubstr("is empty"));
  EXPECT_THAT(error_after([](Schedule& s) { s.pp_ranks.push_back({s.pp_ranks[0][0]}); }),
              HasSubstr("pp_rank 1: forward of microbatch 0 (stage 0): the stage is on pp_rank 0"));
}

// The end of each computation, found without the graph: every pp_rank starts the next computation
// of its order as soon as the computations that it needs have ended.
std::map<std::tuple<InstructionKind, int, int>, Nanoseconds> Execute(const Schedule& schedule,
                                                                     Nanoseconds p2p) {
  std::map<std::tuple<InstructionKind, int, int>, Nanoseconds> end;
  std::vector<std::size_t> next(schedule.pp_ranks.size());
  std::vector<Nanoseconds> clock(schedule.pp_ranks.size());
  auto rank_of = [&](int stage) {
    return schedule.pp_rank_of_stage[static_cast<std::size_t>(stage)];
  };
  bool progress = true;
  while (progress) {
    progress = false;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      if (next[rank] == schedule.pp_ranks[rank].size()) continue;
      const Instruction instruction = schedule.pp_ranks[rank][next[rank]];
      const auto [kind, stage, microbatch] = instruction;
      Nanoseconds ready = clock[rank];
      // The instruction is ready when one of these alternatives has ended.
      auto need = [&](int of_stage, const std::vector<InstructionKind>& alternatives) {
        for (InstructionKind alternative : alternatives) {
          const auto found = end.find({alternative, of_stage, instruction.microbatch});
          if (found == end.end()) continue;
          const bool on_wire = rank_of(of_stage) != static_cast<int>(rank);
          ready = std::max(ready, found->second + (on_wire ? p2p : 0));
          return true;
        }
        return false;
      };
      bool can_run = true;
      if (kind == kForward) can_run = stage == 0 || need(stage - 1, {kForward});
      if (kind == kBackward || kind == kBackwardInput) {
        can_run = need(stage, {kForward}) &&
                  (stage + 1 == schedule.stages() || need(stage + 1, {kBackward, kBackwardInput}));
      }
      if (kind == kBackwardWeight) can_run = need(stage, {kBackwardInput});
      if (kind == kRecompute) can_run = need(stage, {kForward});
      if (!can_run) continue;
      const int chunk = schedule.chunk_of_stage[static_cast<std::size_t>(stage)];
      clock[rank] = ready + TimeOf(static_cast<int>(rank), chunk, kind);
      end[{kind, stage, microbatch}] = clock[rank];
      ++next[rank];
      progress = true;
    }
  }
  return end;
}

TEST(PipelineGraph, GivesTheSameTimesAsEverySchedule) {
  PipelineModel model;
  model.fixed.p2p = 170;
  int graphs = 0;
  for (std::string_view name : ScheduleNames()) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (int microbatches = 1; microbatches <= 11; ++microbatches) {
        for (int chunks = 1; chunks <= 3; ++chunks) {
          const auto schedule = GenerateSchedule({std::string(name), ranks, microbatches, chunks});
          if (!schedule) continue;
          SCOPED_TRACE(fmt::format("{} with {} ranks, {} microbatches, {} chunks", name, ranks,
                                   microbatches, chunks));
          const auto graph = BuildInstructionGraph(
              *schedule, MakeProfile(ranks, schedule->stages() / ranks), model);
          ASSERT_TRUE(graph) << graph.error().Message();
          ++graphs;

          std::vector<Nanoseconds> start(graph->instructions.size());
          std::vector<Nanoseconds> ends(graph->instructions.size());
          std::set<std::pair<int, int>> seen;
          std::size_t next = 0;
          // Dependencies are sorted by their first instruction, so each start is final before use.
          for (int instruction = 0; instruction < static_cast<int>(start.size()); ++instruction) {
            const auto at = static_cast<std::size_t>(instruction);
            ends[at] = start[at] + graph->options_of(instruction).options[0].time;
            for (;
                 next < graph->dependencies.size() && graph->dependencies[next].from == instruction;
                 ++next) {
              const Dependency& dependency = graph->dependencies[next];
              ASSERT_LT(dependency.from, dependency.to);
              ASSERT_TRUE(seen.insert({dependency.from, dependency.to}).second);
              Nanoseconds& of_to = start[static_cast<std::size_t>(dependency.to)];
              of_to = std::max(of_to, ends[at] + dependency.delay);
            }
          }
          ASSERT_EQ(next, graph->dependencies.size());

          const auto executed = Execute(*schedule, model.fixed.p2p);
          ASSERT_EQ(executed.size(), graph->instructions.size());
          for (std::size_t rank = 0; rank < graph->pp_rank_orders.size(); ++rank) {
            ASSERT_EQ(graph->pp_rank_orders[rank].size(), schedule->pp_ranks[rank].size());
            for (std::size_t i = 0; i < graph->pp_rank_orders[rank].size(); ++i) {
              const Instruction& instruction = schedule->pp_ranks[rank][i];
              const auto node = static_cast<std::size_t>(graph->pp_rank_orders[rank][i]);
              ASSERT_EQ(graph->instructions[node].pp_rank, static_cast<int>(rank));
              ASSERT_EQ(graph->instructions[node].microbatch, instruction.microbatch);
              ASSERT_EQ(ends[node],
                        executed.at({instruction.kind, instruction.stage, instruction.microbatch}));
            }
          }
        }
      }
    }
  }
  EXPECT_GT(graphs, 500);
}

TEST(PipelineGraph, BuildsSixtyFiveThousandInstructions) {
  const auto graph =
      BuildInstructionGraph(Generate({"1f1b", 64, 512}), MakeProfile(64, 1), PipelineModel());
  ASSERT_TRUE(graph) << graph.error().Message();
  EXPECT_EQ(graph->instructions.size(), 65'536U);
  // Dependencies between neighbors on a pp_rank, and both ways between neighboring pp_ranks.
  EXPECT_EQ(graph->dependencies.size(), 64U * 1023 + 2 * 63 * 512);
}

}  // namespace
}  // namespace perseus::schedule
