#include "tests/support/shared_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "perseus/base/file.h"
#include "perseus/planning/plan/evaluation.h"

namespace perseus {
namespace {

constexpr int kMicrobatches = 24;

std::filesystem::path SharedDirectory() {
  if (const char* directory = std::getenv("PERSEUS_SHARED_DIR")) return directory;
  return std::filesystem::path(PERSEUS_SOURCE_DIR) / ".." / "shared";
}

}  // namespace

std::filesystem::path PathOf(const SharedJob& shared) {
  return SharedDirectory() / "profiles" / fmt::format("{}.csv", shared.profile);
}

profile::Profile ReadSharedProfile(const SharedJob& shared) {
  const std::filesystem::path path = PathOf(shared);
  return profile::ParseProfile(ReadFile(path.string()).value(), path.string()).value();
}

profiler::SweepJob SweepJobOf(const SharedJob& shared, const profile::Profile& profile) {
  profiler::SweepJob job;
  job.schedule = schedule::GenerateSchedule({"1f1b", profile.pp_ranks(), kMicrobatches, 1}).value();
  job.model.blocking_power_w = shared.blocking_power_w;
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
