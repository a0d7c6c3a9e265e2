#include "measured_job.h"

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

Result<OperationGraph> ReadIteration(const MeasuredJob& job, int microbatches) {
  const Result<std::string> text = ReadFile(ProfilePath(job));
  if (!text) return Fail(text);
  const Result<Profile> profile = ParseProfile(*text, job.name);
  if (!profile) return Fail(profile);
  const Result<Schedule> schedule = GenerateSchedule(
      {.name = "1f1b", .ranks = kMeasuredStages, .microbatches = microbatches, .chunks = 1});
  if (!schedule) return Fail(schedule);
  PipelineModel model;
  model.blocking_power_w = job.blocking_power_w;
  return BuildOperationGraph(*schedule, *profile, model);
}

Network NetworkOf(const OperationGraph& graph, double blocking_power_w) {
  std::vector<Curve> curves;
  for (const OptionSet& set : graph.option_sets) {
    curves.push_back(*LowerHull(set.options, blocking_power_w));
  }
  return *BuildNetwork(graph, curves);
}

}  // namespace perseus
