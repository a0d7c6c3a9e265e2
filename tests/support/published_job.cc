#include "tests/support/published_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "perseus/base/file.h"
#include "perseus/planning/plan/evaluation.h"

namespace perseus {
namespace {

constexpr int kMicrobatches = 24;

}  // namespace

profile::Profile ReadPublishedProfile(const PublishedJob& published) {
  const std::string path =
      fmt::format("{}/tests/data/published/{}.csv", PERSEUS_SOURCE_DIR, published.profile);
  return profile::ParseProfile(ReadFile(path).value(), path).value();
}

profiler::SweepJob SweepJobOf(const PublishedJob& published, const profile::Profile& profile) {
  profiler::SweepJob job;
  job.schedule = schedule::GenerateSchedule({"1f1b", profile.pp_ranks(), kMicrobatches, 1}).value();
  job.model.blocking_power_w = published.blocking_power_w;
  std::vector<int> clocks;
  for (const profile::Option& option : profile.entries()[0].options) {
    clocks.push_back(static_cast<int>(option.frequency_mhz));
  }
  std::sort(clocks.begin(), clocks.end());
  job.clocks_mhz.assign(static_cast<std::size_t>(profile.pp_ranks()), clocks);
  return job;
}

TrueJob::TrueJob(const profiler::SweepJob& job, const profile::Profile& profile)
    : planner_(profiler::PlannerOf(job, profile).value()),
      full_energy_j_(planner_.PlanFor(planner_.baseline().time)->evaluation.energy_j) {}

TrueJob::Outcome TrueJob::Judge(std::span<const int> options) const {
  const plan::Evaluation real =
      plan::Evaluator(planner_.graph(), planner_.model()).Evaluate(options);
  return {real.energy_j / full_energy_j_ - 1, ToSeconds(real.time) / baseline_s() - 1};
}

}  // namespace perseus
