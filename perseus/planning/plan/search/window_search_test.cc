// Tests of WindowSearch: it never needs more energy, is never late, is deterministic, and is exact
// if a window contains the whole job.
#include "perseus/planning/plan/search/window_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "perseus/base/index.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/search/choices.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::plan {
namespace {

// A job, its relaxed optimum for some deadline, and a plan to improve.
class Case {
 public:
  Case(const JobSpec& spec, std::uint64_t seed)
      : planner_(MakePlanner(RandomJob(spec, seed), {RandomBlockingPower(seed), 0})),
        graph_(planner_.graph(), planner_.model().blocking_power_w),
        solution_(*frontier::SolveDeadline(planner_.network(), Deadline(seed))),
        start_(
            DiffuseRounding(graph_, WindowsOf(planner_.network(), solution_),
                            seed % 2 == 0 ? TimeDirection::kForward : TimeDirection::kBackward)) {}
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  WindowSearch Search() const { return {graph_, planner_.network(), solution_}; }
  const ChoiceGraph& graph() const { return graph_; }
  const Choices& start() const { return start_; }
  Nanoseconds length() const { return solution_.time(planner_.network()); }

  Nanoseconds Makespan(const Choices& choices) const {
    const std::vector<Nanoseconds> starts = EarliestStarts(graph_, choices);
    Nanoseconds end = 0;
    for (int i = 0; i < graph_.instructions(); ++i) {
      end = std::max(end, starts[At(i)] + graph_.candidates(i)[At(choices[At(i)])].time);
    }
    return end;
  }

  // The least effective energy of all combinations within the length.
  double LeastEnergy() const {
    Choices choices(At(graph_.instructions()), 0);
    double least = std::numeric_limits<double>::infinity();
    while (true) {
      const double energy_j = graph_.EffectiveEnergy(choices);
      if (energy_j < least && Makespan(choices) <= length()) least = energy_j;
      int i = 0;
      for (; i < graph_.instructions(); ++i) {
        if (++choices[At(i)] < static_cast<int>(graph_.candidates(i).size())) break;
        choices[At(i)] = 0;
      }
      if (i == graph_.instructions()) return least;
    }
  }

 private:
  Nanoseconds Deadline(std::uint64_t seed) const {
    const Nanoseconds least = planner_.least_time();
    return least + (planner_.SlowestTime() - least) * static_cast<Nanoseconds>(seed % 11) / 10;
  }

  Planner planner_;
  ChoiceGraph graph_;
  frontier::Solution solution_;
  Choices start_;
};

JobSpec SpecOf(std::uint64_t seed, int instructions) {
  JobSpec spec;
  spec.shape = seed % 2 == 0 ? JobShape::kPipeline : JobShape::kAnyOrder;
  spec.instructions = instructions;
  spec.times = seed % 3 == 0   ? JobSpec::Times::kAny
               : seed % 3 == 1 ? JobSpec::Times::kMilliseconds
                               : JobSpec::Times::kNanoseconds;
  return spec;
}

// The search relies on an identity: if a window reduces the parts (1) and (2) of the gap, the
// energy of the plan falls by the same amount. An instruction needs about 20 J, so sums of doubles
// agree to 1e-11 J. Gains below 1e-9 J are ignored.
TEST(WindowSearchProperty, SavesTheReportedEnergyAndIsNeverLate) {
  for (std::uint64_t seed = 0; seed < Seeds(1500); ++seed) {
    SCOPED_TRACE(seed);
    const Case job(SpecOf(seed, 40), seed);
    WindowSearch search = job.Search();
    Choices choices = job.start();
    ASSERT_LE(job.Makespan(choices), job.length());
    double energy_j = job.graph().EffectiveEnergy(choices);
    for (int round = 0; round < 8; ++round) {
      const int window = round % 2 == 0 ? 3 : 7;
      const double saved_j = search.Improve(choices, {window, 500});
      const double next_j = job.graph().EffectiveEnergy(choices);
      ASSERT_GE(saved_j, 0);
      ASSERT_NEAR(energy_j - next_j, saved_j, 1e-10);
      ASSERT_LE(job.Makespan(choices), job.length()) << "round " << round;
      energy_j = next_j;
    }
  }
}

// A schedule between the earliest and the latest one is rounded to nanoseconds, and still has to
// satisfy every dependency. A wrong rounding (by less than a microsecond) would make plans late.
// Small windows keep most of that schedule.
TEST(WindowSearchProperty, IsNeverLateByNanoseconds) {
  for (std::uint64_t seed = 600; seed < 600 + Seeds(600); ++seed) {
    SCOPED_TRACE(seed);
    JobSpec spec = SpecOf(seed, 40);
    spec.options = 8;
    spec.times = JobSpec::Times::kNanoseconds;
    const Case job(spec, seed);
    WindowSearch search = job.Search();
    Choices choices(job.start().size(), 0);
    for (int round = 0; round < 3; ++round) {
      search.Improve(choices, {3, 200});
      ASSERT_LE(job.Makespan(choices), job.length()) << "round " << round;
    }
  }
}

TEST(WindowSearchProperty, TheSameInputGivesTheSamePlan) {
  for (std::uint64_t seed = 0; seed < Seeds(100); ++seed) {
    const Case job(SpecOf(seed, 40), seed);
    Choices a = job.start();
    Choices b = job.start();
    WindowSearch first = job.Search();
    WindowSearch second = job.Search();
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(first.Improve(a, {}), second.Improve(b, {}));
      EXPECT_EQ(a, b);
    }
    EXPECT_EQ(first.tries(), second.tries());
  }
}

// One window contains the whole job, and the number of tries is enough for all combinations.
// (Unconnected parts of a job are searched one after the other, which is also exact.)
TEST(WindowSearchProperty, IsExactIfAWindowContainsTheWholeJob) {
  for (std::uint64_t seed = 0; seed < Seeds(600); ++seed) {
    SCOPED_TRACE(seed);
    const Case job(SpecOf(seed, 6), seed);
    WindowSearch search = job.Search();
    Choices choices = job.start();
    search.Improve(choices, {WindowSearch::kLargestWindow, 1'000'000});
    ASSERT_LE(job.Makespan(choices), job.length());
    EXPECT_NEAR(job.graph().EffectiveEnergy(choices), job.LeastEnergy(), 1e-8);
  }
}

//       .--> worker ---.
//   hub ---> worker ---> join      Each window with the hub would examine all workers.
//       `--> worker ---'
schedule::InstructionGraph Hub(int workers) {
  schedule::InstructionGraph graph;
  schedule::OptionSet set;
  set.options = {{1400, {}, 10'000'000, 4.0, 1},
                 {1300, {}, 11'300'000, 3.3, 1},
                 {1200, {}, 13'000'000, 3.0, 1},
                 {1100, {}, 15'100'000, 2.9, 1}};
  graph.option_sets = {std::move(set)};
  const int join = workers + 1;
  for (int i = 0; i <= join; ++i) {
    graph.instructions.push_back({0, i, 0});
    graph.pp_rank_orders.push_back({i});
    graph.pp_rank_names.push_back("rank " + std::to_string(i));
  }
  for (int i = 1; i < join; ++i) graph.dependencies.push_back({0, i, 0});
  for (int i = 1; i < join; ++i) graph.dependencies.push_back({i, join, 0});
  return graph;
}

// Returns how many options one round tries, from a plan with all instructions at their fastest.
std::int64_t TriesOfARound(const schedule::InstructionGraph& job) {
  const Planner planner = MakePlanner(job, {});
  const ChoiceGraph graph(planner.graph(), 0);
  const frontier::Solution solution =
      *frontier::SolveDeadline(planner.network(), planner.least_time() * 6 / 5);
  WindowSearch search(graph, planner.network(), solution);
  Choices choices(At(graph.instructions()), 0);
  EXPECT_GT(search.Improve(choices, {}), 0);
  return search.tries();
}

TEST(WindowSearch, DoesNotGrowThroughInstructionsOfManyNeighbors) {
  const schedule::InstructionGraph narrow = Hub(20);
  EXPECT_GT(TriesOfARound(narrow), 4 * std::ssize(narrow.instructions));
  const schedule::InstructionGraph wide = Hub(80);
  EXPECT_LE(TriesOfARound(wide), 4 * std::ssize(wide.instructions)) << "each by itself";
}

TEST(WindowSearch, StopsAfterItsTries) {
  const Case job({.shape = JobShape::kPipeline, .instructions = 40}, 3);
  WindowSearch search = job.Search();
  Choices choices = job.start();
  search.Improve(choices, {12, 10});
  EXPECT_LE(search.tries(), 10 * job.graph().instructions());
}

}  // namespace
}  // namespace perseus::plan
