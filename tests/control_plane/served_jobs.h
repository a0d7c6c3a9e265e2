// Training jobs of virtual GPUs under a `perseus serve`, with `perseus agent` and `perseus node` on
// each node: all of them real processes, that tests look at with `perseus job show`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perseus/runtime/protocol/rank_log.h"
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
    int server = 0;         // The replica that it tries first.
  };
  std::vector<Node> nodes;
};

class ServedJobs : public Served {
 protected:
  // KEY.csv, which is what the GPUs are like, KEY.toml, and the nodes' agents.
  using Served::SetUp;
  void SetUp(const ServedJob& job, const std::string& synth_flags);
  // `perseus job register`; with a profile it is planned.
  void Register(const ServedJob& job, const std::string& flags = "");
  // Steps go to KEY.record.csv when it ends.
  void StartTrainer(const ServedJob& job);
  void EndTrainer();
  // One for each job directory; NAME.node.log is its log.
  void StartNodes(const ServedJob& job);

  nlohmann::json Show(const std::string& key) const;
  void AwaitStep(const std::string& key, std::int64_t step) const;
  // Steps from now on that all pipelines ran under the same assignment, made with care and for
  // these many stragglers, and what `perseus job show` said then. No steps if there are none within
  // a minute or two.
  struct Steady {
    Steps steps;
    nlohmann::json job;
  };
  Steady AwaitSteady(const std::string& key, std::size_t count, std::size_t stragglers = 0) const;
  // What one rank of a pipeline recorded.
  std::vector<protocol::RanStep> StepsOf(const std::string& directory,
                                         const protocol::RankId& rank) const;

 private:
  // The last one first: those before it may be cut off.
  std::string server() const { return " --server " + urls(servers() - 1) + " "; }
  pid_t trainer_ = 0;
  std::string trained_;  // Its job's key.
};

}  // namespace perseus
