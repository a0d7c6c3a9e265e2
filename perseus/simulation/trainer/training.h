// The trainer's parent: starts a process for each rank, is the barrier at the end of each step (the
// all-reduce between pipelines, for which all wait for the slowest), and measures what is true of
// the virtual GPUs, beside what their drivers publish.
//
// A rank that dies, hangs or never comes ends the job: the message names it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/trainer/message.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"

namespace perseus::trainer {

struct TrainingNode {
  virtual_gpu::VirtualNode node;
  std::filesystem::path description;
  std::string agent;          // What its ranks find in PERSEUS_AGENT: a socket, or "off".
  std::string job_directory;  // The same of PERSEUS_JOB_DIR; empty: not set.
};

// Where a rank computes.
struct Seat {
  int node = 0;
  int gpu = 0;
};
// The GPUs in the order of the nodes, pipeline by pipeline: [pipeline * ranks + rank]. Fails
// (kInput) if there are too few, a node's rate is not 1, or nodes have different clocks.
Result<std::vector<Seat>> AssignGpus(const std::vector<TrainingNode>& nodes, int pipelines,
                                     int ranks);

struct TrainingOptions {
  std::vector<TrainingNode> nodes;
  std::vector<Seat> seats;
  int pipelines = 1;
  int ranks = 1;                             // Of a pipeline.
  std::vector<std::vector<int>> neighbours;  // [rank]
  int steps = 0;                             // 0: until SIGTERM or SIGINT.
  // The program and arguments that become a rank, less what AsRankArguments adds.
  std::vector<std::string> command;
  // What all ranks find in their environment besides, such as PERSEUS_PLAN.
  std::vector<std::pair<std::string, std::string>> environment;
  // Real time, for a rank that does not come, or does not go on.
  Nanoseconds patience = 30'000'000'000;
  std::function<void(std::string_view)>
      warn;  // What ranks' client libraries have to say, once each.
};

struct TrainingStep {
  Nanoseconds begin = 0;          // By the nodes' clock.
  Nanoseconds time = 0;           // Until the next one began.
  double energy_j = 0;            // Of all GPUs, exact.
  double published_energy_j = 0;  // The same by the counters that drivers show.
};

struct TrainingSummary {
  std::vector<TrainingStep> steps;
  RankStatistics statistics;  // Of all ranks together.
};

// SIGTERM and SIGINT end it after the step that runs; they stay blocked.
Result<TrainingSummary> RunTraining(const TrainingOptions& options);

// How a rank's process is told what it is.
struct RankSockets {
  int control = -1;
  std::vector<std::pair<int, int>> peers;  // Rank, socket.
};
// "7,0:8,2:9"
std::string Format(const RankSockets& sockets);
Result<RankSockets> ParseRankSockets(std::string_view text);

}  // namespace perseus::trainer
