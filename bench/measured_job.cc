#include "bench/measured_job.h"

#include <fmt/format.h>

#include <cstdlib>

#include "perseus/base/file.h"

namespace perseus {

std::filesystem::path SharedDirectory() {
  if (const char* directory = std::getenv("PERSEUS_SHARED_DIR")) return directory;
  return std::filesystem::path(PERSEUS_SOURCE_DIR) / ".." / "shared";
}

std::filesystem::path ProfilePath(const MeasuredJob& job) {
  return SharedDirectory() / "profiles" / fmt::format("{}_pp8_tp8.csv", job.name);
}

std::filesystem::path PublishedFrontierPath(const MeasuredJob& job, int microbatches) {
  return SharedDirectory() / "reference" /
         fmt::format("{}_mb{}_frontier.csv", job.name, microbatches);
}

Result<schedule::InstructionGraph> ReadIteration(const MeasuredJob& job, int microbatches) {
  const Result<std::string> text = ReadFile(ProfilePath(job));
  if (!text) return Fail(text);
  const Result<profile::Profile> profile = profile::ParseProfile(*text, job.name);
  if (!profile) return Fail(profile);
  const Result<schedule::Schedule> schedule = schedule::GenerateSchedule(
      {.name = "1f1b", .ranks = kMeasuredStages, .microbatches = microbatches, .chunks = 1});
  if (!schedule) return Fail(schedule);
  schedule::PipelineModel model;
  model.blocking_power_w = job.blocking_power_w;
  return schedule::BuildInstructionGraph(*schedule, *profile, model);
}

frontier::Network NetworkOf(const schedule::InstructionGraph& graph, double blocking_power_w) {
  std::vector<profile::Curve> curves;
  for (const schedule::OptionSet& set : graph.option_sets) {
    curves.push_back(*profile::LowerHull(set.options, blocking_power_w));
  }
  return *frontier::BuildNetwork(graph, curves);
}

}  // namespace perseus
