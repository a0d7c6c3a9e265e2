// Server replicas, and a real `perseus node`. The node reads rank logs that the test writes.
#pragma once

#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/http/client.h"
#include "tests/control_plane/served.h"

namespace perseus {

// Connects to the event stream of a node and records the assignments that arrive.
class RecordedStream {
 public:
  RecordedStream(const std::string& servers, const std::string& node);
  ~RecordedStream();
  // The versions of the assignments in order of arrival, including duplicates.
  std::vector<std::int64_t> versions() const;
  // The URL of the replica to which the stream is connected. Empty while the stream is not
  // connected.
  std::string server() const;

 private:
  mutable Mutex mutex_;
  std::vector<std::int64_t> versions_ PERSEUS_GUARDED_BY(mutex_);
  std::string server_ PERSEUS_GUARDED_BY(mutex_);
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// Reports stragglers all the time, each time with another slowdown. Remembers which reports the
// server acknowledged.
class StragglerLoad {
 public:
  StragglerLoad(const std::string& servers, const std::string& job);
  ~StragglerLoad() { End(); }
  void End();
  // The reports about one pipeline.
  struct Reported {
    double acknowledged = 0;  // The last slowdown that the server acknowledged.
    // Slowdowns that were sent after `acknowledged`. It is unknown whether the server stored them.
    std::vector<double> unknown;
    // All requests without an answer. If a silent database answers again, the server may store
    // these requests late.
    std::vector<double> unanswered;
  };
  std::map<int, Reported> reported() const;  // By pipeline.
  int acknowledged() const { return acknowledged_; }

 private:
  mutable Mutex mutex_;
  std::map<int, Reported> reported_ PERSEUS_GUARDED_BY(mutex_);
  std::atomic<int> acknowledged_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

class Replicas : public Served {
 protected:
  static constexpr const char* kKey = "run";

  // Registers a job of two pipelines of four ranks. The job has a profile, so the server plans it.
  void RegisterJob();
  // Starts `perseus node` n0 for pipeline 0. A thread appends steps to the logs of the pipeline's
  // ranks, in the directory run.
  void StartNode();
  int ReplicaOfNode() const { return ReplicaOfLog("node.log"); }
  // The server's version of the assignment in the job's directory.
  std::int64_t VersionInForce() const;
  // The number of steps that the ranks have run.
  int steps() const { return steps_; }

  // If the request got no answer, the response has status 0.
  http::Response Send(const std::string& server, const std::string& method,
                      const std::string& target, const std::string& body = "") const;
  nlohmann::json Get(const std::string& target) const;
  // Attaches pipeline 1 to this node.
  void Attach(const std::string& node) const;
  // Waits until the server has nothing left to plan. Then checks three conditions: the server has
  // each acknowledged straggler; the versions have no gap; the nodes received the last version, and
  // no version twice.
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
