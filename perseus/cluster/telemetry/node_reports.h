// Passes the reports of nodes to the watches of the jobs, and stores the changes.
//
// One replica judges a job: the one that receives the reports of the job's first live node (by
// name). The other replicas pass on their reports to this replica (Store::NotifyReplicas). So it
// receives whole pipelines, however the nodes are distributed. The replicas need no agreement: each
// of them reads in the store which node is the first, and knows whether it receives the reports of
// this node. During a change, a few steps are judged twice (with the same result) or not at all.
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

// Each callback may be empty. They are called on the thread that takes a report.
struct ReportCallbacks {
  // For each straggler report that is suspended or reinstated.
  std::function<void(const std::string& key, const NoticeChange& change)> noticed = {};
  // For each trial of the default clocks, and for the result of the trial.
  std::function<void(const std::string& key, const store::GuardRecord& guard)> guarded = {};
  // The energy that steps of a job saved, in J. May be negative.
  std::function<void(double energy_j)> saved = {};
};

class NodeReports {
 public:
  NodeReports(store::Store& store, JobWatches& watches, ReportCallbacks callbacks = {});

  // Processes the reports of a node. Returns the jobs whose reports were ignored, by the names in
  // the report: the node is not attached to them, or they have ended or do not exist.
  Result<std::vector<std::string>> Take(const std::string& node,
                                        const std::vector<protocol::JobReport>& reports,
                                        Milliseconds now);
  // Returns when this replica last received a report of the node about the job (its id), or 0 if
  // this is unknown. The store has older times, because not every report is written.
  Milliseconds LastReport(const std::string& job, const std::string& node) const;
  // Processes a message that a replica (perhaps this one) sent to all (Notice::Kind::kSteps). The
  // caller passes the messages of one job in order and one at a time.
  Result<void> TakeFromReplica(const ReplicaMessage& message, Milliseconds now);
  // These handle a restart of the job, and a detected straggler that a user deleted. Both inform
  // all replicas.
  Result<void> Restart(const std::string& job);
  Result<void> Forget(const std::string& job, int pipeline);

 private:
  class Writing;  // Marks that this thread writes.
  struct Known {
    std::int64_t acknowledged = -1;
    std::int64_t following = -1;
    Milliseconds written = 0;
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
  // These record what WriteNoted() has to store.
  void NoteNode(const std::string& node, const std::string& job, const protocol::JobReport& report,
                Milliseconds now);
  void NoteStep(const std::string& job, JobWatch& watch, Milliseconds now);
  // One thread at a time writes the notes of all threads, and the others continue. So thousands of
  // nodes need few commits. If this process dies, the nodes report the same again.
  Result<void> WriteNoted();
  // Returns whether there was anything to write.
  Result<bool> WriteOnce();
  void NoteForReplicas(ReplicaMessage message);
  // Returns 0 for a version that is not among the newest ones.
  Result<double> ExpectedTime(const store::JobRecord& job, JobWatch& watch,
                              const protocol::StepReport& step);
  Result<void> Learn(const std::string& job, JobWatch& watch, std::int64_t version);

  static constexpr std::size_t kMaxReplicaTexts = 10'000;

  store::Store& store_;
  JobWatches& watches_;
  const ReportCallbacks callbacks_;
  const std::string replica_;  // Random: two replicas may have the same name.
  mutable Mutex mutex_;
  std::map<std::pair<std::string, std::string>, Known> known_ PERSEUS_GUARDED_BY(mutex_);
  // When nodes were last removed from known_.
  Milliseconds pruned_ PERSEUS_GUARDED_BY(mutex_) = 0;
  std::vector<store::NodeRecord> seen_ PERSEUS_GUARDED_BY(mutex_);             // To be written.
  std::map<std::string, store::StepRecord> steps_ PERSEUS_GUARDED_BY(mutex_);  // By job, as well.
  std::vector<std::string> for_replicas_ PERSEUS_GUARDED_BY(mutex_);           // To be sent.
  bool is_writing_ PERSEUS_GUARDED_BY(mutex_) = false;
};

}  // namespace perseus::telemetry
