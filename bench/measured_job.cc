#include "bench/measured_job.h"

#include <fmt/core.h>

#include "perseus/base/file.h"

namespace perseus {

std::filesystem::path PublishedDirectory() {
  return std::filesystem::path(PERSEUS_SOURCE_DIR) / "tests/data/published";
}

std::filesystem::path ProfilePath(const MeasuredJob& job) {
  return PublishedDirectory() / fmt::format("{}_pp8_tp8.csv", job.name);
}

std::filesystem::path PublishedFrontierPath(const MeasuredJob& job, int microbatches) {
  return PublishedDirectory() / fmt::format("{}_mb{}_frontier.csv", job.name, microbatches);
}

Result<schedule::InstructionGraph> ReadIterationOf(const std::filesystem::path& profile,
                                                   double blocking_power_w, int microbatches) {
  PERSEUS_ASSIGN_OR_RETURN(const std::string text, ReadFile(profile));
  PERSEUS_ASSIGN_OR_RETURN(const auto measured, profile::ParseProfile(text, profile.string()));
  PERSEUS_ASSIGN_OR_RETURN(const auto schedule,
                           schedule::GenerateSchedule({.name = "1f1b",
                                                       .pp_ranks = kMeasuredStages,
                                                       .microbatches = microbatches,
                                                       .chunks = 1}));
  schedule::PipelineModel model;
  model.blocking_power_w = blocking_power_w;
  return schedule::BuildInstructionGraph(schedule, measured, model);
}

Result<schedule::InstructionGraph> ReadIteration(const MeasuredJob& job, int microbatches) {
  return ReadIterationOf(ProfilePath(job), job.blocking_power_w, microbatches);
}

frontier::Network NetworkOf(const schedule::InstructionGraph& graph, double blocking_power_w) {
  std::vector<profile::Curve> curves;
  for (const schedule::OptionSet& set : graph.option_sets) {
    curves.push_back(*profile::LowerHull(set.options, blocking_power_w));
  }
  return *frontier::BuildNetwork(graph, curves);
}

}  // namespace perseus
