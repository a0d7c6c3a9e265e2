// Several `perseus serve` over one PostgreSQL, and a node of theirs: a real `perseus node` over the
// logs of ranks that the test writes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "perseus/http/client.h"
#include "postgres_server.h"
#include "training_fixture.h"

namespace perseus {

// What a node would hear, recorded.
class RecordedStream {
 public:
  RecordedStream(const std::string& servers, const std::string& node);
  ~RecordedStream();
  // Of orders, as they came; with duplicates, if there were any.
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

class Replicas : public TrainingFixture {
 protected:
  static constexpr int kReplicas = 3;
  static constexpr const char* kKey = "run";

  // They listen at `addresses`, each ("127.0.0.1:0") a free port's; `in_front` (of each) runs it
  // elsewhere ("ip netns exec NAME").
  void StartReplicas(const std::vector<std::string>& addresses,
                     const std::vector<std::string>& in_front = {});
  void StartReplica(int replica);
  std::string urls() const;  // With commas in between.
  const std::string& url(int replica) const { return urls_.at(static_cast<std::size_t>(replica)); }
  int ReplicaAt(const std::string& url) const;
  pid_t pid(int replica) const { return pids_.at(static_cast<std::size_t>(replica)); }

  // Two pipelines of four ranks, planned.
  void RegisterJob();
  // `perseus node` n0, of pipeline 0; its ranks' logs are in the directory run, and grow.
  void StartNode();
  // The replica that its stream is connected to; -1: to none just now.
  int ReplicaOfNode() const;
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
  void ExpectNothingLost(const StragglerLoad& load, const RecordedStream& stream);

  ~Replicas() override;

  PostgresServer postgres_;

 private:
  std::string database_ = postgres_.MakeDatabase();
  std::vector<std::string> addresses_;
  std::vector<std::string> in_front_;
  std::vector<std::string> urls_ = std::vector<std::string>(kReplicas);
  std::vector<pid_t> pids_ = std::vector<pid_t>(kReplicas);
  std::atomic<int> steps_{0};
  std::atomic<bool> ranks_end_{false};
  std::thread ranks_;
};

}  // namespace perseus
