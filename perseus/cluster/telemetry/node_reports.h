// Passes the reports of nodes to the watches of the jobs, and stores the changes.
//
// One replica judges a job: it decides which pipelines are stragglers, and whether a plan costs
// throughput. It is the replica that receives the reports of the job's first live node (by name).
// The other replicas pass on their reports to this replica (Store::NotifyReplicas). So this replica
// receives the reports of whole pipelines, even if their nodes report to different replicas. The
// replicas need no agreement. Each replica reads in the store which node is the first, and knows
// whether it receives the reports of this node. During a change, a few steps are judged twice (with
// the same result) or not at all.
//
// Thread safe. Calls block on the store.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/store/store.h"
#include "perseus/cluster/telemetry/job_watch.h"
#include "perseus/cluster/telemetry/replica_messages.h"

namespace perseus::telemetry {

// Each callback may be empty. The callbacks run on the thread that processes a report.
struct ReportCallbacks {
  // Called for each straggler report that is suspended or reinstated.
  std::function<void(const std::string& key, const NoticeChange& change)> noticed = {};
  // Called for each trial of the default clocks, and for the result of the trial.
  std::function<void(const std::string& key, const store::GuardRecord& guard)> guarded = {};
  // Called with the energy of newly judged steps of a job.
  std::function<void(const JudgedEnergy& energy)> judged = {};
};

class NodeReports {
 public:
  NodeReports(store::Store& store, JobWatches& watches, ReportCallbacks callbacks = {});

  // Processes the reports of a node. Returns the jobs whose reports were ignored, by the names in
  // the report. The node is not attached to such a job, or the job has ended or does not exist.
  Result<std::vector<std::string>> Take(const std::string& node,
                                        const std::vector<protocol::JobReport>& reports,
                                        Milliseconds now);
  // Replaces the times in a record from the store by later ones of reports that this replica
  // received. The store has older times, because not every report is written.
  void AddLastReport(store::NodeRecord& node) const;
  // Processes a message that a replica (perhaps this replica) sent to all replicas
  // (Notice::Kind::kSteps). The caller passes the messages of one job in order and one at a time.
  Result<void> TakeFromReplica(const ReplicaMessage& message, Milliseconds now);
  // Handles a restart of the job, and informs all replicas.
  Result<void> Restart(const std::string& job);

 private:
  class Writing;  // While such an object exists, its thread writes.
  // What this replica knows of a node and a job.
  struct Known {
    void NoteLeases(const std::vector<protocol::StepReport>& steps);
    int WithoutLease() const;

    // As last written to the store, at `written`.
    std::int64_t acknowledged = -1;
    std::int64_t following = -1;
    int running = -1;
    int written_without_lease = 0;
    Milliseconds written = 0;

    // By dp_rank: the newest step, and how many of its ranks had no lease.
    std::map<int, std::pair<std::int64_t, int>> without_lease = {};
    Milliseconds ran = 0;  // When the node last reported a step.
    Milliseconds seen = 0;
  };
  // Processes one report. Returns whether the node is attached to the job.
  Result<bool> TakeJob(const std::string& node, const protocol::JobReport& report,
                       Milliseconds now);
  // Whether this replica judges the job. Prepares the watch if this replica has just become the
  // judge.
  Result<bool> Judges(const store::JobRecord& job, JobWatch& watch, Milliseconds now);
  Result<void> Judge(const std::string& node, const store::JobRecord& job, JobWatch& watch,
                     const std::vector<protocol::StepReport>& steps, Milliseconds now);
  Result<void> StartJudging(const store::JobRecord& job, JobWatch& watch, Milliseconds now);
  Result<void> ReadNodes(const std::string& job, JobWatch& watch, Milliseconds now);
  Result<void> StoreStragglers(const std::string& job, std::vector<StragglerChange> changes,
                               Milliseconds now);
  Result<void> GuardPlan(const store::JobRecord& job, const JobWatch& watch, Milliseconds now);
  Result<void> StoreNotices(const store::JobRecord& job, const std::vector<NoticeChange>& changes,
                            Milliseconds now);
  // The Note functions record what WriteNoted() has to store.
  void NoteNode(const std::string& node, const std::string& job, const protocol::JobReport& report,
                Milliseconds now);
  void NoteStep(const std::string& job, JobWatch& watch, Milliseconds now);
  // One thread at a time writes the notes of all threads, and the others continue. So thousands of
  // nodes need few commits. If this process dies, the nodes send the same reports again.
  Result<void> WriteNoted();
  // Returns whether there was anything to write.
  Result<bool> WriteOnce();
  void NoteForReplicas(ReplicaMessage message);
  // Returns 0 for a version that is not among the newest versions.
  Result<double> ExpectedTime(const store::JobRecord& job, JobWatch& watch,
                              const protocol::StepReport& step);
  Result<void> Learn(const std::string& job, JobWatch& watch, std::int64_t version);

  static constexpr std::size_t kMaxReplicaTexts = 10'000;

  store::Store& store_;
  JobWatches& watches_;
  const ReportCallbacks callbacks_;
  const std::string replica_;  // A random id, because two replicas may have the same name.
  mutable Mutex mutex_;
  std::map<std::pair<std::string, std::string>, Known> known_ PERSEUS_GUARDED_BY(mutex_);
  // When nodes were last removed from known_.
  Milliseconds pruned_ PERSEUS_GUARDED_BY(mutex_) = 0;
  // Nodes to write to the store.
  std::vector<store::NodeRecord> seen_ PERSEUS_GUARDED_BY(mutex_);
  // Steps to write to the store, by job.
  std::map<std::string, store::StepRecord> steps_ PERSEUS_GUARDED_BY(mutex_);
  // Messages to send to replicas.
  std::vector<std::string> for_replicas_ PERSEUS_GUARDED_BY(mutex_);
  bool is_writing_ PERSEUS_GUARDED_BY(mutex_) = false;
};

}  // namespace perseus::telemetry
