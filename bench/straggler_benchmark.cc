// How does the cost of straggler detection for a step grow with the number of pipelines?
#include <benchmark/benchmark.h>

#include "perseus/cluster/telemetry/straggler_detector.h"

namespace perseus {
namespace {

void BM_JudgeStep(benchmark::State& state) {
  const auto pipelines = static_cast<int>(state.range(0));
  telemetry::StragglerDetector detector;
  std::int64_t step = 0;
  for (auto _ : state) {
    for (int pipeline = 0; pipeline < pipelines; ++pipeline) {
      const double noise = 1 + 0.0001 * static_cast<double>((step * 31 + pipeline * 17) % 40);
      benchmark::DoNotOptimize(detector.Add({step, pipeline, 2.5 * noise, 2.5, 1}));
    }
    ++step;
  }
}
BENCHMARK(BM_JudgeStep)->Arg(2)->Arg(50)->Arg(500)->Arg(5000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace perseus

BENCHMARK_MAIN();
