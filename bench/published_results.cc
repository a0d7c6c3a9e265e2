// Compares the published results on the measured jobs with ours: savings without a straggler,
// EnvPipe, and savings with stragglers. Prints the tables of docs/reproduction.md.
//
//   published_results
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "bench/published_policies.h"
#include "perseus/simulation/baselines/policy.h"

namespace perseus {
namespace {

constexpr double kStragglers[] = {1.01, 1.02, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5};

plan::Planner PlannerOf(const MeasuredJob& job, int microbatches) {
  return plan::Planner::Create(*ReadIteration(job, microbatches), {job.blocking_power_w, 0})
      .value();
}

baselines::OperatingPoint EnvPipeOf(const plan::Planner& planner) {
  return baselines::MakeEnvPipe()->Points(planner, {})->points.front();
}

double Percent(double part) { return part * 100; }

void PrintSavings(const std::vector<PublishedPolicies>& rows) {
  fmt::print(
      "| job | GPUs | microbatches | published | ours | bound | ours, slowdown |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const PublishedPolicies& row : rows) {
    const plan::Planner planner = PlannerOf(*row.job, row.microbatches);
    const plan::Evaluation& baseline = planner.baseline();
    const plan::Plan plan = planner.PlanFor(baseline.time).value();
    fmt::print("| {} | {} | {} | {:.2f} % | {:.2f} % | {:.2f} % | {:.4f} % |\n", row.job->name,
               row.pipelines * 64, row.microbatches, Percent(row.perseus_saving),
               Percent(1 - plan.evaluation.energy_j / baseline.energy_j),
               Percent(1 - plan.lower_bound_j / baseline.energy_j),
               Percent(ToSeconds(plan.evaluation.time) / ToSeconds(baseline.time) - 1));
    std::fflush(stdout);
  }
}

void PrintEnvPipe(const std::vector<PublishedPolicies>& rows) {
  fmt::print(
      "\n| job | microbatches | time, published | ours | difference | energy, published | ours | "
      "difference |\n|---|---|---|---|---|---|---|---|\n");
  for (const PublishedPolicies& row : rows) {
    const plan::Planner planner = PlannerOf(*row.job, row.microbatches);
    const plan::Evaluation& ours = EnvPipeOf(planner).evaluation;
    fmt::print("| {} | {} | {:.4f} s | {:.4f} s | {:+.3f} % | {:.1f} J | {:.1f} J | {:+.3f} % |\n",
               row.job->name, row.microbatches, row.envpipe_time_s, ToSeconds(ours.time),
               Percent(ToSeconds(ours.time) / row.envpipe_time_s - 1), row.envpipe_energy_j,
               ours.energy_j, Percent(ours.energy_j / row.envpipe_energy_j - 1));
  }
}

// The saving of a job with that many pipelines, one of which has slow hardware. That one runs the
// plan with no slowdown for a longer time at the same power. The others may take as long.
void PrintStragglers(const std::vector<PublishedPolicies>& rows) {
  fmt::print("\n| job | pipelines | T*/T | slow end/T |");
  for (const double factor : kStragglers) fmt::print(" {:g} |", factor);
  fmt::print("\n|---|---|---|---|");
  for (std::size_t i = 0; i < std::size(kStragglers); ++i) fmt::print("---|");
  fmt::print("\n");
  for (const PublishedPolicies& row : rows) {
    const plan::Planner planner = PlannerOf(*row.job, row.microbatches);
    const plan::Evaluation& baseline = planner.baseline();
    const plan::Frontier frontier = planner.ComputeFrontier().value();
    const double time_s = ToSeconds(baseline.time);
    const double saved_j = baseline.energy_j - planner.PlanFor(baseline.time)->evaluation.energy_j;
    fmt::print("| {} | {} | {:.3f} | {:.3f} |", row.job->name, row.pipelines,
               ToSeconds(frontier.points[frontier.least_energy].time) / time_s,
               ToSeconds(frontier.points.back().time) / time_s);
    for (const double factor : kStragglers) {
      const Nanoseconds until = ToNanoseconds(time_s * factor);
      const plan::Plan plan = planner.PlanForStraggler(until).value();
      const double others = row.pipelines - 1;
      const double before_j =
          others * planner.EnergyUntil(until, baseline) + baseline.energy_j * factor;
      const double after_j = others * planner.EnergyUntil(until, plan.evaluation) +
                             (baseline.energy_j - saved_j) * factor;
      fmt::print(" {:.1f} % |", Percent(1 - after_j / before_j));
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
}

int Run() {
  if (!std::filesystem::exists(PublishedPoliciesPath())) {
    fmt::print(stderr, "{} is absent (set PERSEUS_SHARED_DIR to the folder of measurements)\n",
               PublishedPoliciesPath().string());
    return 1;
  }
  const std::vector<PublishedPolicies> rows = ReadPublishedPolicies();
  PrintSavings(rows);
  PrintEnvPipe(rows);
  PrintStragglers(rows);
  return 0;
}

}  // namespace
}  // namespace perseus

int main() { return perseus::Run(); }
