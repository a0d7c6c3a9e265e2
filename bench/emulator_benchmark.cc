// How long does it take to emulate a job of thousands of GPUs, and how does the time grow with
// pipelines, stages, microbatches and events? For comparison, the program also computes every
// pipeline of every iteration separately (with noise that is too small to matter), as a simulator
// would that does not detect equal pipelines.
#include <benchmark/benchmark.h>

#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/simulation/emulator/emulation.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus {
namespace {

struct Size {
  int pipelines = 128;
  int stages = 8;
  int microbatches = 12;
  int events = 20;
  int iterations = 1000;
};

plan::Planner MakePlanner(const Size& size) {
  schedule::PipelineModel model;
  model.blocking_power_w = 84;
  const auto profile = synthetic::SynthesizeProfile({.stages = size.stages});
  const auto schedule = schedule::GenerateSchedule(
      {.name = "1f1b", .pp_ranks = size.stages, .microbatches = size.microbatches});
  return *plan::Planner::Create(*schedule::BuildInstructionGraph(*schedule, *profile, model),
                                {84, 0});
}

// Stragglers of four kinds, each for a tenth of the time.
emulator::EmulationSpec MakeSpec(const plan::Planner& planner, const Size& size) {
  emulator::EmulationSpec spec{.pipelines = size.pipelines,
                               .iterations = size.iterations,
                               .options = planner.PlanFor(planner.baseline().time)->options,
                               .changes = {},
                               .disturbances = {}};
  for (int i = 0; i < size.events; ++i) {
    const int from = i * size.iterations / (size.events + 1);
    spec.disturbances.push_back({.kind = emulator::Disturbance::Kind::kSlow,
                                 .dp_rank = i * 7 % size.pipelines,
                                 .pp_rank = i % size.stages,
                                 .from = from,
                                 .until = from + size.iterations / 10,
                                 .value = 1.05 + 0.05 * (i % 4)});
  }
  spec.reaction = emulator::Reaction::kFollow;
  spec.delay = 1;
  return spec;
}

void Run(benchmark::State& state, const Size& size, double noise) {
  const plan::Planner planner = MakePlanner(size);
  emulator::EmulationSpec spec = MakeSpec(planner, size);
  spec.noise.independent = noise;
  std::int64_t executions = 0;
  for (auto _ : state) {
    const auto emulation = emulator::Emulate(planner, spec);
    executions = emulation->executions;
    benchmark::DoNotOptimize(emulation->energy_j);
  }
  state.counters["executions"] = static_cast<double>(executions);
  state.counters["GPUs"] = size.pipelines * size.stages * 8;
}

Size SizeOf(const benchmark::State& state) {
  return {.pipelines = static_cast<int>(state.range(0)),
          .stages = static_cast<int>(state.range(1)),
          .microbatches = static_cast<int>(state.range(2)),
          .events = static_cast<int>(state.range(3)),
          .iterations = static_cast<int>(state.range(4))};
}

void Alike(benchmark::State& state) { Run(state, SizeOf(state), 0); }
void Each(benchmark::State& state) { Run(state, SizeOf(state), 1e-12); }

BENCHMARK(Alike)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1)
    ->ArgNames({"pipelines", "stages", "microbatches", "events", "iterations"})
    ->Args({128, 8, 12, 20, 1000})
    ->Args({32, 8, 12, 20, 1000})
    ->Args({512, 8, 12, 20, 1000})
    ->Args({128, 16, 12, 20, 1000})
    ->Args({128, 8, 48, 20, 1000})
    ->Args({128, 8, 12, 0, 1000})
    ->Args({128, 8, 12, 80, 1000})
    ->Args({128, 8, 12, 20, 4000});
BENCHMARK(Each)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1)
    ->ArgNames({"pipelines", "stages", "microbatches", "events", "iterations"})
    ->Args({128, 8, 12, 20, 100})
    ->Args({128, 8, 12, 20, 1000});

}  // namespace
}  // namespace perseus

BENCHMARK_MAIN();
