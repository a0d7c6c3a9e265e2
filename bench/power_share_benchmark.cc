// How long does it take to divide a power cap among 1,000 jobs, compared with a sort of as many
// numbers as their frontiers have points?
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <vector>

#include "perseus/planning/power_share/power_share.h"

namespace perseus {
namespace {

constexpr int kJobs = 1000;

// Frontiers with the least power 100 W, and random work. The fastest point comes first, as in the
// server's answers.
std::vector<power_share::Job> Jobs(int points) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> part(0.5, 1.5);
  std::vector<power_share::Job> jobs(kJobs);
  for (power_share::Job& job : jobs) {
    const double size = part(random);
    for (int i = points; i > 0; --i) {
      const double rate = 1 + static_cast<double>(i) / points;
      job.points.push_back({1 / rate, 100 * size * rate * rate});
    }
  }
  return jobs;
}

void Divide(benchmark::State& state) {
  const std::vector<power_share::Job> jobs = Jobs(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    auto division = power_share::Divide(jobs, 2.0 * 100 * kJobs);
    if (!division) state.SkipWithError(division.error().Message().c_str());
    benchmark::DoNotOptimize(division);
  }
}

void Sort(benchmark::State& state) {
  std::mt19937_64 random(1);
  std::vector<double> numbers(static_cast<std::size_t>(kJobs * state.range(0)));
  for (double& number : numbers) number = std::uniform_real_distribution<double>()(random);
  for (auto _ : state) {
    std::vector<double> sorted = numbers;
    std::ranges::sort(sorted);
    benchmark::DoNotOptimize(sorted);
  }
}

BENCHMARK(Divide)->Arg(20)->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK(Sort)->Arg(20)->Arg(1000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace perseus

BENCHMARK_MAIN();
