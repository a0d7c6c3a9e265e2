// Measures how long it takes to compute the whole frontier, one deadline, and bounds of the
// frontier. Shows how these times grow with the size of the iteration.
//
//   frontier_benchmark            measured jobs (or synthetic ones if they are absent), and
//                                 synthetic iterations of up to 32 stages x 128 microbatches: a
//                                 minute
//   frontier_benchmark --large    also 64 x 512
//
// The program also takes the flags of Google Benchmark (--benchmark_filter=...,
// --benchmark_out=...).
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <sys/resource.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measured_job.h"
#include "perseus/base/file.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/frontier/enclosure.h"
#include "perseus/planning/frontier/walk.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus {
namespace {

using MakeNetwork = std::function<frontier::Network()>;

// Returns the peak memory of the process so far. The benchmarks run from small to large, so the
// peak belongs to the current benchmark.
double PeakMebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void RunWalk(benchmark::State& state, const MakeNetwork& make_network) {
  const frontier::Network network = make_network();
  frontier::Walk::Statistics statistics;
  std::int64_t breakpoints = 0;
  for (auto _ : state) {
    frontier::Walk walk(network);
    for (breakpoints = 0; !walk.finished(); ++breakpoints) walk.Advance(0);
    statistics = walk.statistics();
  }
  const auto pivots = static_cast<double>(statistics.pivots);
  state.counters["instructions"] = network.instructions;
  state.counters["breakpoints"] = static_cast<double>(breakpoints);
  state.counters["pivots"] = pivots;
  state.counters["degenerate"] = static_cast<double>(statistics.degenerate_pivots) / pivots;
  state.counters["nodes/pivot"] = static_cast<double>(statistics.nodes_moved) / pivots;
  state.counters["longest_stall"] = static_cast<double>(statistics.longest_stall);
  state.counters["peak_MiB"] = PeakMebibytes();
}

void RunDeadline(benchmark::State& state, const MakeNetwork& make_network, int slowdown_percent) {
  const frontier::Network network = make_network();
  const Nanoseconds least = frontier::EarliestTimes(
      network, frontier::Pace::kFastest)[static_cast<std::size_t>(network.sink)];
  for (auto _ : state) {
    const Result<frontier::Solution> solution =
        frontier::SolveDeadline(network, least + least / 100 * slowdown_percent);
    if (!solution || !frontier::CheckOptimality(network, *solution))
      state.SkipWithError("not optimal");
  }
  state.counters["instructions"] = network.instructions;
  state.counters["peak_MiB"] = PeakMebibytes();
}

// Computes bounds with an error of 0.01 % of the energy that computing takes, from the fastest to
// the cheapest schedule.
void RunBounds(benchmark::State& state, const MakeNetwork& make_network) {
  const frontier::Network network = make_network();
  double energy_j = 0;
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    energy_j +=
        network.curve_of(network.arcs[static_cast<std::size_t>(i)]).least_effective_energy_j;
  }
  const auto most_error = static_cast<Femtojoules>(1e-4 * energy_j * kFemtojoulesPerJoule);
  for (auto _ : state) {
    std::vector<frontier::Solution> ends;
    for (const frontier::Pace pace : {frontier::Pace::kFastest, frontier::Pace::kSlowest}) {
      const Nanoseconds time =
          frontier::EarliestTimes(network, pace)[static_cast<std::size_t>(network.sink)];
      ends.push_back(*frontier::SolveDeadline(network, time));
    }
    const auto points = frontier::EncloseFrontier(network, ends, most_error, {}, {});
    if (!points) state.SkipWithError(points.error().Message().c_str());
  }
  state.counters["instructions"] = network.instructions;
  state.counters["peak_MiB"] = PeakMebibytes();
}

// Makes a network in which every stage has its own work and its own noise, so that no two curves
// are equal. The noise is small, so most options are on the hull. A curve has 14 segments; curves
// of measured profiles have 9 or 10.
frontier::Network SyntheticNetwork(int stages, int microbatches) {
  synthetic::SyntheticProfileSpec spec;
  spec.pp_ranks = stages;
  spec.imbalance = 0.05;
  spec.noise = 0.0005;
  const double blocking_power_w = synthetic::FindGpuModel(spec.gpu)->blocking_power_w;
  schedule::PipelineModel model;
  model.blocking_power_w = blocking_power_w;
  return NetworkOf(*schedule::BuildInstructionGraph(
                       *schedule::GenerateSchedule({"1f1b", stages, microbatches, 1}),
                       *synthetic::SynthesizeProfile(spec), model),
                   blocking_power_w);
}

// The names of benchmarks are NAME/MICROBATCHES/what or STAGESxMICROBATCHES/what.
void Register(const std::string& name, const MakeNetwork& make_network) {
  const auto add = [&](const std::string& what, auto&& run) {
    return benchmark::RegisterBenchmark((name + "/" + what).c_str(), run)
        ->Unit(benchmark::kMillisecond);
  };
  add("walk", [=](benchmark::State& state) { RunWalk(state, make_network); });
  add("bounds", [=](benchmark::State& state) {
    RunBounds(state, make_network);
  })->MeasureProcessCPUTime();  // Bounds use all cores.
  for (const int slowdown_percent : {0, 2, 10}) {
    add(fmt::format("deadline+{}%", slowdown_percent),
        [=](benchmark::State& state) { RunDeadline(state, make_network, slowdown_percent); });
  }
}

void RegisterAll(bool large) {
  bool measured = false;
  for (const MeasuredJob& job : kMeasuredJobs) {
    measured = true;
    for (const int microbatches : {12, 24, 48, 96}) {
      Register(fmt::format("{}/{}", job.name, microbatches),
               [=] { return NetworkOf(*ReadIteration(job, microbatches), job.blocking_power_w); });
    }
  }
  struct Size {
    int stages;
    int microbatches;
  };
  // The sizes grow each dimension alone, and then both dimensions together.
  std::vector<Size> sizes;
  if (!measured) sizes = {{8, 12}, {8, 24}, {8, 48}, {8, 96}};
  for (const Size& size :
       {Size{8, 32}, Size{8, 128}, Size{32, 32}, Size{16, 64}, Size{8, 512}, Size{32, 128}}) {
    sizes.push_back(size);
  }
  if (large) sizes.push_back({64, 512});
  for (const Size& size : sizes) {
    Register(fmt::format("{}x{}", size.stages, size.microbatches),
             [=] { return SyntheticNetwork(size.stages, size.microbatches); });
  }
}

}  // namespace
}  // namespace perseus

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const bool large = argc > 1 && std::string_view(argv[1]) == "--large";
  if (large) {
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  perseus::RegisterAll(large);
  benchmark::RunSpecifiedBenchmarks();
}
