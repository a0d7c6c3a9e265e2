// Properties of every emulation, on random jobs with random events. The test sums up the times of
// iterations again, from the instructions that each pipeline ran.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "perseus/base/random.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/simulation/emulator/emulation.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::emulator {
namespace {

class RandomEvents {
 public:
  RandomEvents(const plan::Planner& planner, std::uint64_t seed)
      : planner_(planner), random_(seed) {}

  EmulationSpec Draw() {
    EmulationSpec spec{.pipelines = 1 + Below(4),
                       .iterations = 1 + Below(5),
                       .options = DrawPlan(),
                       .changes = {},
                       .disturbances = {}};
    for (int i = Below(5); i > 0; --i) spec.disturbances.push_back(DrawDisturbance(spec));
    for (int i = Below(2); i > 0; --i) {
      spec.changes.push_back({.from = DrawMoment(spec), .options = DrawPlan()});
    }
    return spec;
  }

 private:
  int Below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }

  std::vector<int> DrawPlan() {
    const Nanoseconds time = planner_.baseline().time;
    if (Below(2) == 0) return schedule::BaselineOptions(planner_.graph());
    return planner_.PlanFor(time + time * Below(30) / 100)->options;
  }

  Moment DrawMoment(const EmulationSpec& spec) {
    if (Below(2) == 0) return {Below(spec.iterations + 1)};
    const auto job = static_cast<double>(spec.iterations * planner_.baseline().time);
    return {0, static_cast<Nanoseconds>(Uniform(random_) * 1.2 * job)};
  }

  Disturbance DrawDisturbance(const EmulationSpec& spec) {
    Disturbance disturbance;
    disturbance.kind = static_cast<Disturbance::Kind>(Below(3));
    disturbance.dp_rank = Below(spec.pipelines);
    disturbance.pp_rank = Below(planner_.pp_ranks() + 1) - 1;
    disturbance.from = DrawMoment(spec);
    if (Below(2) == 0) disturbance.until = DrawMoment(spec);
    switch (disturbance.kind) {
      case Disturbance::Kind::kThrottle:
        disturbance.value = 900 + 100 * Below(6);
        break;
      case Disturbance::Kind::kSlow:
        disturbance.value = 1 + Uniform(random_);
        break;
      case Disturbance::Kind::kInput:
        disturbance.value = Uniform(random_) * ToSeconds(planner_.baseline().time);
        break;
    }
    return disturbance;
  }

  const plan::Planner& planner_;
  std::mt19937_64 random_;
};

struct Recomputed {
  Nanoseconds time = 0;
  double energy_j = 0;
};

// Sums up an iteration from the instructions that ran in it.
Recomputed Recompute(const plan::Planner& planner, const std::vector<RunOfPipelines>& runs) {
  Recomputed sum;
  for (const RunOfPipelines& run : runs) {
    const plan::Evaluation& evaluation = run.run.evaluation;
    for (std::size_t i = 0; i < evaluation.starts.size(); ++i) {
      sum.time = std::max(sum.time, evaluation.starts[i] + evaluation.durations[i]);
    }
  }
  for (const RunOfPipelines& run : runs) {
    double idle_s = planner.pp_ranks() * ToSeconds(sum.time);
    double instructions_j = 0;
    for (std::size_t i = 0; i < run.run.evaluation.starts.size(); ++i) {
      idle_s -= ToSeconds(run.run.evaluation.durations[i]);
      instructions_j += run.run.evaluation.energies_j[i];
    }
    sum.energy_j += static_cast<double>(run.pipelines.size()) *
                    (instructions_j + planner.model().blocking_power_w * idle_s);
  }
  return sum;
}

void ExpectIterationsAddUp(const plan::Planner& planner, const EmulationSpec& spec,
                           const Emulation& emulation) {
  double energy_j = 0;
  for (int i = 0; i < spec.iterations; ++i) {
    const EmulatedIteration& iteration = emulation.iterations[static_cast<std::size_t>(i)];
    const auto runs = RunsInIteration(planner, spec, emulation, i);
    ASSERT_TRUE(runs) << runs.error().Message();
    const Recomputed sum = Recompute(planner, *runs);
    ASSERT_EQ(iteration.time, sum.time) << i;
    ASSERT_NEAR(iteration.energy_j, sum.energy_j, 1e-9 * sum.energy_j) << i;
    ASSERT_GE(iteration.peak_power_w, (1 - 1e-9) * iteration.average_power_w()) << i;
    energy_j += sum.energy_j;
  }
  double ranks_j = 0;
  for (const auto& pipeline : emulation.pp_ranks) {
    for (const RankTotals& rank : pipeline) {
      ranks_j += rank.instruction_energy_j + rank.blocking_energy_j;
    }
  }
  EXPECT_NEAR(emulation.energy_j, energy_j, 1e-9 * energy_j);
  EXPECT_NEAR(ranks_j, energy_j, 1e-9 * energy_j);
}

// With and without followers, the sums of the iterations are correct. Followers that know a
// straggler in advance cost neither time nor energy.
void ExpectSound(const plan::Planner& planner, EmulationSpec spec) {
  const auto alone = Emulate(planner, spec);
  ASSERT_TRUE(alone) << alone.error().Message();
  ExpectIterationsAddUp(planner, spec, *alone);
  spec.reaction = Reaction::kFollow;
  for (const int delay : {0, 1, 2}) {
    spec.delay = delay;
    const auto followed = Emulate(planner, spec);
    ASSERT_TRUE(followed) << followed.error().Message();
    ExpectIterationsAddUp(planner, spec, *followed);
    if (delay > 0) continue;
    EXPECT_EQ(followed->time, alone->time);
    EXPECT_LE(followed->energy_j, alone->energy_j * (1 + 1e-12));
  }
}

TEST(EmulationProperties, HoldOfRandomJobsAndEvents) {
  for (std::uint64_t seed = 0; seed < Seeds(300); ++seed) {
    SCOPED_TRACE(seed);
    const JobSpec job{.shape = seed % 2 == 0 ? JobShape::kPipeline : JobShape::kAnyOrder,
                      .instructions = 12};
    const plan::Planner planner = MakePlanner(RandomJob(job, seed), {RandomBlockingPower(seed), 0});
    if (planner.baseline().time == 0) continue;
    ExpectSound(planner, RandomEvents(planner, seed).Draw());
    if (testing::Test::HasFailure()) return;
  }
}

// All-reduce, optimizer, load and transfers take the same time in every case.
schedule::InstructionGraph MakeJobWithFixedInstructions() {
  return MakeSyntheticJob({.stages = 3,
                           .microbatches = 4,
                           .fixed = {.p2p = 2'000'000,
                                     .load = {.time = 5'000'000, .energy_j = 1},
                                     .all_reduce = {.time = 200'000'000, .energy_j = 30},
                                     .optimizer = {.time = 50'000'000, .energy_j = 20}}});
}

TEST(EmulationProperties, HoldUnderLatencyWithFixedInstructions) {
  for (const Nanoseconds latency : {0, 5'000'000}) {
    const plan::Planner planner =
        MakePlanner(MakeJobWithFixedInstructions(), {kSyntheticBlockingPowerW, latency});
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(seed);
      ExpectSound(planner, RandomEvents(planner, seed).Draw());
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(EmulationProperties, OnlyComputationsSlowDown) {
  const plan::Planner planner = MakePlanner(MakeJobWithFixedInstructions());
  const schedule::InstructionGraph& graph = planner.graph();
  EmulationSpec spec{.pipelines = 1,
                     .iterations = 1,
                     .options = schedule::BaselineOptions(graph),
                     .changes = {},
                     .disturbances = {{.kind = Disturbance::Kind::kSlow, .value = 3}}};
  const auto emulation = Emulate(planner, spec);
  const auto runs = RunsInIteration(planner, spec, *emulation, 0);
  ASSERT_TRUE(runs);
  double expected_j = 0;
  double fixed_j = 0;
  for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
    const schedule::OptionSet& set = graph.options_of(static_cast<int>(i));
    const profile::Option& option = set.options[static_cast<std::size_t>(spec.options[i])];
    const bool is_fixed = !IsComputation(set.kind);
    const double factor = is_fixed ? 1 : 3;
    EXPECT_EQ(runs->front().run.evaluation.durations[i], (is_fixed ? 1 : 3) * option.time);
    expected_j += factor * option.energy_j;
    if (is_fixed) fixed_j += option.energy_j;
  }
  EXPECT_GT(fixed_j, 0);
  EXPECT_NEAR(runs->front().run.evaluation.instruction_energy_j, expected_j, 1e-9 * expected_j);
}

// The known straggler ran another base plan: a later plan or power cap has replaced it.
TEST(EmulationProperties, FollowersKeepToALaterPowerCap) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({.microbatches = 6}));
  const auto base = planner.PlanFor(planner.baseline().time);
  const auto capped = planner.PlanFor(planner.baseline().time * 112 / 100);
  ASSERT_TRUE(base && capped);
  const double watts = 4 * capped->evaluation.average_power_w();
  EmulationSpec spec{.pipelines = 4,
                     .iterations = 15,
                     .options = base->options,
                     .changes = {},
                     .power_caps = {{.from = 5, .watts = watts, .options = capped->options}},
                     .disturbances = {{.kind = Disturbance::Kind::kSlow, .value = 1.05}},
                     .reaction = Reaction::kFollow,
                     .delay = 3};
  const auto emulation = Emulate(planner, spec);
  ASSERT_TRUE(emulation) << emulation.error().Message();
  for (std::size_t i = 5; i < 15; ++i) {
    EXPECT_LE(emulation->iterations[i].average_power_w(), watts * (1 + 1e-9)) << i;
  }
  EXPECT_GT(emulation->iterations[4].average_power_w(), watts);
  // They follow again once they know of the straggler under the cap.
  EXPECT_LT(emulation->iterations[8].energy_j, emulation->iterations[7].energy_j);
  EXPECT_EQ(emulation->iterations[8].time, emulation->iterations[7].time);
}

}  // namespace
}  // namespace perseus::emulator
