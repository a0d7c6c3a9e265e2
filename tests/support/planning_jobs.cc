#include "tests/support/planning_jobs.h"

#include <algorithm>
#include <random>

#include "perseus/base/index.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus {
namespace {

class Draw {
 public:
  Draw(const JobSpec& spec, std::uint64_t seed) : spec_(spec), random_(seed) {}

  schedule::InstructionGraph Pipeline();
  schedule::InstructionGraph AnyOrder();

 private:
  // Returns a number from 0 to end - 1. std::uniform_int_distribution differs between libraries.
  int Below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }

  // Returns options whose effective energy falls at any blocking power below 100 W. For each second
  // that a slower option takes longer, it saves at least 100 J.
  schedule::OptionSet RandomOptions(int number) {
    schedule::OptionSet set;
    set.name = "set " + std::to_string(number);
    const int count = 2 + Below(spec_.options - 1);
    Nanoseconds time = RandomTime(4) + Unit();
    double energy_j = 20 + Below(1000) / 100.0;
    for (int i = 0; i < count; ++i) {
      set.options.push_back({1400 - 100 * i, {}, time, energy_j, 1});
      const Nanoseconds step =
          spec_.times == JobSpec::Times::kNanoseconds ? 20 + Below(400) : RandomTime(2) + kUnit;
      const double saved_w = 101 + Below(300);
      time += step;
      energy_j -= saved_w * ToSeconds(step);
    }
    return set;
  }

  static constexpr Nanoseconds kUnit = 1'000'000;
  Nanoseconds Unit() const { return spec_.times == JobSpec::Times::kNanoseconds ? 1'000 : kUnit; }

  Nanoseconds RandomTime(int milliseconds) {
    if (spec_.times == JobSpec::Times::kMilliseconds) return Below(milliseconds) * kUnit;
    return Below(milliseconds * static_cast<int>(Unit()));
  }

  JobSpec spec_;
  std::mt19937_64 random_;
};

//   rank 0: F0 F1 B0 F2 B1 B2        An F of rank 1 waits for that of rank 0, a B of rank 0 for
//   rank 1: F0 B0 F1 B1 F2 B2        that of rank 1.
schedule::InstructionGraph Draw::Pipeline() {
  const int microbatches = 1 + Below(std::max(1, spec_.instructions / 4));
  schedule::InstructionGraph graph;
  for (int set = 0; set < 4; ++set) graph.option_sets.push_back(RandomOptions(set));
  graph.pp_rank_orders.resize(2);
  graph.pp_rank_names = {"rank 0", "rank 1"};
  const Nanoseconds delay = Below(3) == 0 ? Unit() / 10 : 0;
  std::vector<std::vector<int>> forward(2);
  const auto add = [&](int rank, bool backward, int microbatch) {
    const auto index = static_cast<int>(graph.instructions.size());
    graph.instructions.push_back({2 * rank + (backward ? 1 : 0), rank, microbatch});
    std::vector<int>& order = graph.pp_rank_orders[At(rank)];
    if (!order.empty()) graph.dependencies.push_back({order.back(), index, 0});
    order.push_back(index);
    return index;
  };
  // In topological order: the instructions of rank 1 for a microbatch, then the following
  // instructions of rank 0.
  std::vector<int> first_forward(At(microbatches));
  first_forward[0] = add(0, false, 0);
  for (int m = 0; m < microbatches; ++m) {
    if (m + 1 < microbatches) first_forward[At(m) + 1] = add(0, false, m + 1);
    const int f = add(1, false, m);
    graph.dependencies.push_back({first_forward[At(m)], f, delay});
    const int last_b = add(1, true, m);
    const int b = add(0, true, m);
    graph.dependencies.push_back({last_b, b, delay});
  }
  return graph;
}

schedule::InstructionGraph Draw::AnyOrder() {
  schedule::InstructionGraph graph;
  const int ranks = 1 + Below(3);
  const int instructions = 1 + Below(spec_.instructions);
  graph.pp_rank_orders.resize(At(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    graph.pp_rank_names.push_back("rank " + std::to_string(rank));
  }
  for (int i = 0; i < instructions; ++i) {
    graph.option_sets.push_back(RandomOptions(i));
    const int rank = Below(ranks);
    graph.instructions.push_back({i, rank, -1});
    std::vector<int>& order = graph.pp_rank_orders[At(rank)];
    if (!order.empty()) graph.dependencies.push_back({order.back(), i, 0});
    order.push_back(i);
    for (int before = 0; before < i; ++before) {
      if (Below(4) == 0) {
        graph.dependencies.push_back({before, i, Below(3) == 0 ? RandomTime(2) : 0});
      }
    }
  }
  return graph;
}

}  // namespace

schedule::InstructionGraph RandomJob(const JobSpec& spec, std::uint64_t seed) {
  Draw draw(spec, seed);
  return spec.shape == JobShape::kPipeline ? draw.Pipeline() : draw.AnyOrder();
}

double RandomBlockingPower(std::uint64_t seed) { return static_cast<double>(seed % 4) * 20; }

std::optional<Exhaustive> SearchAll(const schedule::InstructionGraph& graph,
                                    const plan::ExecutionModel& model, Nanoseconds deadline) {
  const plan::Evaluator evaluator(graph, model);
  std::vector<int> options(graph.instructions.size(), 0);
  std::optional<Exhaustive> best;
  while (true) {
    const plan::Evaluation evaluation = evaluator.Evaluate(options);
    if (evaluation.time <= deadline && (!best || evaluation.energy_j < best->energy_j)) {
      best = Exhaustive{options, evaluation.energy_j};
    }
    std::size_t i = 0;
    for (; i < options.size(); ++i) {  // Counts up like a number whose first digit changes fastest.
      const auto count = static_cast<int>(graph.options_of(static_cast<int>(i)).options.size());
      if (++options[i] < count) break;
      options[i] = 0;
    }
    if (i == options.size()) return best;
  }
}

schedule::InstructionGraph MakeSyntheticJob(const SyntheticJob& job) {
  using enum InstructionKind;
  synthetic::SyntheticProfileSpec spec;
  spec.pp_ranks = job.stages;
  spec.noise = job.noise;
  const bool is_folded = job.schedule.ends_with("-v");
  if (is_folded) spec.placement = synthetic::ChunkPlacement::kV;
  if (is_folded || job.schedule.starts_with("interleaved")) spec.chunks = 2;
  if (job.schedule.starts_with("zb")) spec.kinds = {kForward, kBackwardInput, kBackwardWeight};
  if (job.schedule == "dualpipe-v") {
    spec.kinds = {kForward, kBackward, kBackwardInput, kBackwardWeight};
  }
  if (job.schedule.starts_with("early-recompute")) {
    spec.kinds = {kForward, kBackward, kRecompute};
  }
  schedule::PipelineModel model;
  model.blocking_power_w = kSyntheticBlockingPowerW;
  model.fixed = job.fixed;
  return *schedule::BuildInstructionGraph(
      *schedule::GenerateSchedule({.name = job.schedule,
                                   .pp_ranks = job.stages,
                                   .microbatches = job.microbatches,
                                   .chunks = spec.chunks}),
      *synthetic::SynthesizeProfile(spec), model);
}

plan::Planner MakePlanner(schedule::InstructionGraph graph, const plan::ExecutionModel& model) {
  return plan::Planner::Create(std::move(graph), model).value();
}

schedule::InstructionGraph MakeChain(std::vector<schedule::OptionSet> sets) {
  schedule::InstructionGraph graph;
  graph.pp_rank_orders.resize(1);
  graph.pp_rank_names = {"pp_rank 0"};
  for (int i = 0; i < static_cast<int>(sets.size()); ++i) {
    graph.instructions.push_back({i, 0, 0});
    graph.pp_rank_orders[0].push_back(i);
    if (i > 0) graph.dependencies.push_back({i - 1, i, 0});
  }
  graph.option_sets = std::move(sets);
  return graph;
}

schedule::InstructionGraph MakeJobWithoutSharedClock() {
  std::vector<schedule::OptionSet> sets(2);
  sets[0].options = {{1400, {}, 10, 9, 1}, {1300, {}, 20, 5, 1}};
  sets[1].options = {{1200, {}, 10, 9, 1}, {1100, {}, 20, 5, 1}};
  return MakeChain(std::move(sets));
}

}  // namespace perseus
