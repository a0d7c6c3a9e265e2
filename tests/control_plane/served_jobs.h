// Training jobs on virtual GPUs. A `perseus serve` manages the jobs. Each node has a `perseus
// agent` and a `perseus node`. All of these are real processes; tests observe the jobs with
// `perseus job show`.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "tests/control_plane/served.h"

namespace perseus {

struct ServedJob {
  std::string key;
  int pipelines = 1;
  int stages = 4;
  int microbatches = 6;
  struct Node {
    std::string name;
    int gpus = 4;
    std::string directory;  // Several nodes may share one.
    int server = 0;         // The replica that the node tries first.
  };
  std::vector<Node> nodes;
};

class ServedJobs : public Served {
 protected:
  using Served::SetUp;
  // Writes the GPUs' profile KEY.csv and the job file KEY.toml, and starts the nodes' agents.
  void SetUp(const ServedJob& job, const std::string& synth_flags);
  // Runs `perseus job register`. If the flags contain a profile, the server plans the job.
  void Register(const ServedJob& job, const std::string& flags = "");
  // Starts a trainer. When it ends, it writes its steps to KEY.record.csv.
  void StartTrainer(const ServedJob& job);
  // Ends all trainers.
  void EndTrainer();
  // Starts a `perseus node` for each job directory. The log of a node is NAME.node.log.
  void StartNodes(const ServedJob& job);

  nlohmann::json Show(const std::string& key) const;
  void AwaitStep(const std::string& key, std::int64_t step) const;
  // Waits until all pipelines have run `count` more steps under one assignment for this number of
  // stragglers, and no planning is left. Returns these steps, and the job as `perseus job show`
  // printed it. After ten minutes, fails and returns no steps.
  struct Steady {
    Steps steps;
    nlohmann::json job;
  };
  Steady AwaitSteady(const std::string& key, std::size_t count, std::size_t stragglers = 0) const;
  // The steps that one rank recorded.
  std::vector<protocol::RanStep> StepsOf(const std::string& directory,
                                         const protocol::RankId& rank) const;

 private:
  // The flag with the URLs. The URL of the last replica comes first, because tests cut off the
  // other replicas.
  std::string server() const { return " --server " + urls(servers() - 1) + " "; }
  std::map<std::string, pid_t> trainers_;  // By the key of the job.
};

}  // namespace perseus
