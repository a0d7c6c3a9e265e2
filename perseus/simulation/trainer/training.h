// The parent process of the trainer. It starts a process for each rank. It is also the barrier at
// the end of each step, which stands for the all-reduce between pipelines: all wait for the slowest
// pipeline. The parent measures the exact energy of the virtual GPUs, and also the energy that
// their drivers publish.
//
// If a rank dies, hangs or does not start, the job ends with an error that names the rank.
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
  std::string agent;          // The ranks' PERSEUS_AGENT: a socket, or "off".
  std::string job_directory;  // The ranks' PERSEUS_JOB_DIR. Empty: the variable is not set.
};

// The GPU of a rank.
struct AssignedGpu {
  int node = 0;
  int gpu = 0;
};
// Assigns GPUs in the order of the nodes, pipeline by pipeline: [pipeline * ranks + rank]. Fails
// (kInput) if there are too few, if a node's rate is not 1, or if nodes have different clocks.
Result<std::vector<AssignedGpu>> AssignGpus(const std::vector<TrainingNode>& nodes, int pipelines,
                                            int ranks);

struct TrainingOptions {
  std::vector<TrainingNode> nodes;
  std::vector<AssignedGpu> gpus;  // As AssignGpus returns them.
  int pipelines = 1;
  int ranks = 1;                            // The ranks of a pipeline.
  std::vector<std::vector<int>> neighbors;  // By rank.
  int steps = 0;                            // 0: until SIGTERM or SIGINT.
  // The program and the arguments that start a rank. One more argument is appended: the pipeline,
  // the rank and its sockets, such as "0:1,7,0:8,2:9".
  std::vector<std::string> command;
  // Variables for the environment of all ranks, such as PERSEUS_PLAN.
  std::vector<std::pair<std::string, std::string>> environment;
  // How long a rank may take to start, or to end a step, in real time.
  Nanoseconds rank_timeout = 30'000'000'000;
  // Receives each warning of the client libraries of the ranks once.
  std::function<void(std::string_view)> warn;
};

struct TrainingStep {
  Nanoseconds begin = 0;          // By the nodes' clock.
  Nanoseconds time = 0;           // Until the next step began.
  double energy_j = 0;            // The exact energy of all GPUs.
  double published_energy_j = 0;  // All GPUs, by the counters that drivers publish.
};

struct TrainingSummary {
  std::vector<TrainingStep> steps;
  RankStatistics statistics;  // Sums and maxima over all ranks.
};

// SIGTERM and SIGINT end the job after the current step. Both signals stay blocked.
Result<TrainingSummary> RunTraining(const TrainingOptions& options);

// The sockets that a rank's process inherits.
struct RankSockets {
  int control = -1;
  std::vector<std::pair<int, int>> peers;  // Rank, socket.
};
// Formats the sockets as a text such as "7,0:8,2:9". ParseRankSockets fails (kInput) for any other
// text.
std::string Format(const RankSockets& sockets);
Result<RankSockets> ParseRankSockets(std::string_view text);

}  // namespace perseus::trainer
