#include "perseus/runtime/tuner/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "perseus/runtime/tuner/job_logs.h"
#include "perseus/runtime/tuner/step_costs.h"

namespace perseus::tuner {
namespace {

// A window of the energy counter at each end of a block belongs partly to other steps.
constexpr double kPeriodsOfBlock = 3;
// More pairs make the interval hardly narrower.
constexpr int kMostPairsOfRuns = 20;

struct Run {
  JobLogs logs;
  std::set<protocol::RankId> ranks;
  StepRange steps;  // The last ones with one assignment.
  double step_time_s = 0;
};

Result<Run> OpenRun(const std::filesystem::path& directory, int most_steps) {
  PERSEUS_ASSIGN_OR_RETURN(auto logs, JobLogs::Open(directory, JobLogs::Job::kIsOver));
  PERSEUS_RETURN_IF_ERROR(logs.ReadNew());
  Run run{.logs = std::move(logs), .ranks = {}, .steps = {}};
  for (const auto& [name, rank] : run.logs.ranks()) run.ranks.insert(name);
  // The time of a step ends when the next one begins.
  run.steps.end = run.logs.LastCommonStep(run.ranks);
  run.steps.begin = run.steps.end;
  const LoggedRank& any = run.logs.ranks().at(*run.ranks.begin());
  const protocol::RanStep* last = any.Find(run.steps.end - 1);
  if (last == nullptr) {
    return Fail("{}: has fewer than two steps (let the job run longer)", directory.string());
  }
  run.steps.version = last->assignment_version;
  while (run.steps.end - run.steps.begin < most_steps) {
    const protocol::RanStep* step = any.Find(run.steps.begin - 1);
    if (step == nullptr || step->assignment_version != run.steps.version) break;
    --run.steps.begin;
  }
  PERSEUS_ASSIGN_OR_RETURN(run.step_time_s, TimeOfSteps(run.logs, run.ranks, run.steps));
  return run;
}

// The last `steps` of the range, so that both runs have as many.
StepRange BlockOf(const Run& run, std::int64_t steps, int length, int index) {
  const std::int64_t begin = run.steps.end - steps + std::int64_t{length} * index;
  return {.begin = begin, .end = begin + length, .version = run.steps.version};
}

}  // namespace

Result<RunComparison> CompareRuns(const RunsToCompare& runs) {
  PERSEUS_ASSIGN_OR_RETURN(const Run planned, OpenRun(runs.directory, runs.steps));
  PERSEUS_ASSIGN_OR_RETURN(const Run baseline, OpenRun(runs.against, runs.steps));
  if (planned.ranks != baseline.ranks) {
    return Fail("{} has {} ranks, and {} has {} or other ones (compare runs of the same job)",
                runs.directory.string(), planned.ranks.size(), runs.against.string(),
                baseline.ranks.size());
  }
  const double step_time_s = std::min(planned.step_time_s, baseline.step_time_s);
  const int shortest = std::max(
      1, static_cast<int>(std::ceil(kPeriodsOfBlock * runs.counter_period_s / step_time_s)));
  const auto steps = static_cast<int>(
      std::min(planned.steps.end - planned.steps.begin, baseline.steps.end - baseline.steps.begin));
  const int least = profiler::LeastPairs(runs.comparison.level);
  if (steps < least * shortest) {
    return Fail(
        "{} and {} have {} steps with one assignment in common, but {} blocks of {} steps are "
        "needed (let the jobs run longer)",
        runs.directory.string(), runs.against.string(), steps, least, shortest);
  }
  const int length = std::max(shortest, steps / kMostPairsOfRuns);
  const int count = std::min(kMostPairsOfRuns, steps / length);
  const std::int64_t used = std::int64_t{length} * count;
  RunComparison compared{.comparison = {}, .pairs = {}, .block_length = length};
  compared.first_step = planned.steps.end - used;
  compared.first_step_against = baseline.steps.end - used;
  for (int i = 0; i < count; ++i) {
    PERSEUS_ASSIGN_OR_RETURN(const StepCost one, CostOfSteps(planned.logs, planned.ranks,
                                                             BlockOf(planned, used, length, i)));
    PERSEUS_ASSIGN_OR_RETURN(const StepCost other, CostOfSteps(baseline.logs, baseline.ranks,
                                                               BlockOf(baseline, used, length, i)));
    compared.pairs.push_back({.baseline_time_s = other.time_s,
                              .baseline_energy_j = other.energy_j,
                              .planned_time_s = one.time_s,
                              .planned_energy_j = one.energy_j});
  }
  PERSEUS_ASSIGN_OR_RETURN(compared.comparison, profiler::Compare(compared.pairs, runs.comparison));
  return compared;
}

}  // namespace perseus::tuner
