// Replicas, and a node of theirs: a real `perseus node` over the logs of ranks that the test
// writes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "perseus/cluster/http/client.h"
#include "tests/control_plane/served.h"

namespace perseus {

// What a node would hear, recorded.
class RecordedStream {
 public:
  RecordedStream(const std::string& servers, const std::string& node);
  ~RecordedStream();
  // Of assignment, as they came; with duplicates, if there were any.
  std::vector<std::int64_t> versions() const;
  // The replica that it is connected to.
  std::string server() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::int64_t> versions_;
  std::string server_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// Says all the time that a pipeline is slow, each time another slowdown, and remembers what was
// acknowledged.
class StragglerLoad {
 public:
  StragglerLoad(const std::string& servers, const std::string& job);
  ~StragglerLoad() { End(); }
  void End();
  // By pipeline: the last slowdown that was acknowledged, and those that were sent after it and
  // whose fate is unknown.
  struct Said {
    double acknowledged = 0;
    std::vector<double> unknown;
    // All that were never answered: where they wait for a silent database, they may come late.
    std::vector<double> unanswered;
  };
  std::map<int, Said> said() const;
  int acknowledged() const { return acknowledged_; }

 private:
  mutable std::mutex mutex_;
  std::map<int, Said> said_;
  std::atomic<int> acknowledged_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

class Replicas : public Served {
 protected:
  static constexpr const char* kKey = "run";

  // Two pipelines of four ranks, planned.
  void RegisterJob();
  // `perseus node` n0, of pipeline 0; its ranks' logs are in the directory run, and grow.
  void StartNode();
  int ReplicaOfNode() const { return ReplicaHeardBy("node.log"); }
  // Which of the server's versions lies in the job's directory.
  std::int64_t VersionInForce() const;
  // Steps that ranks have run.
  int steps() const { return steps_; }

  http::Response Ask(const std::string& server, const std::string& method,
                     const std::string& target, const std::string& body = "") const;
  nlohmann::json Get(const std::string& target) const;
  // Attaches pipeline 1 as another node's.
  void Attach(const std::string& node) const;
  // Once nothing is to be planned: each acknowledged straggler is there, versions have no gap, and
  // nodes have the last one, none twice.
  enum class Unanswered { kNeverComeLate, kMayComeLate };
  void ExpectNothingLost(const StragglerLoad& load, const RecordedStream& stream,
                         Unanswered unanswered = Unanswered::kNeverComeLate);

  ~Replicas() override;

 private:
  std::atomic<int> steps_{0};
  std::atomic<bool> ranks_end_{false};
  std::thread ranks_;
};

}  // namespace perseus
