// Reads jobs that the authors of the published method measured: profiles and published results. The
// files are in tests/data/published.
#pragma once

#include <filesystem>
#include <string_view>

#include "perseus/planning/frontier/network.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus {

// A job with the schedule 1F1B and eight stages.
struct MeasuredJob {
  std::string_view name;
  double blocking_power_w;   // The power of one waiting GPU, in the profile's units.
  Nanoseconds planner_unit;  // The published planner rounds times down to whole units.
};
inline constexpr MeasuredJob kMeasuredJobs[] = {{"gpt3-175b_a100-sxm", 83.64, 1'000'000},
                                                {"bloom-176b_a40", 70.38, 100'000}};
inline constexpr int kMeasuredStages = 8;

std::filesystem::path PublishedDirectory();
std::filesystem::path ProfilePath(const MeasuredJob& job);
std::filesystem::path PublishedFrontierPath(const MeasuredJob& job, int microbatches);

// Returns one iteration of the job.
Result<schedule::InstructionGraph> ReadIteration(const MeasuredJob& job, int microbatches);

// Returns one iteration of 1F1B over kMeasuredStages stages of any profile. Fails if the profile is
// absent.
Result<schedule::InstructionGraph> ReadIterationOf(const std::filesystem::path& profile,
                                                   double blocking_power_w, int microbatches);

// Returns the network of the continuous relaxation, in which each instruction may take any time on
// its lower hull. Aborts if numbers overflow.
frontier::Network NetworkOf(const schedule::InstructionGraph& graph, double blocking_power_w);

}  // namespace perseus
