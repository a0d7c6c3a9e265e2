// What nodes report: handed to the jobs' watches, and what changed told to the store.
//
// Of several replicas, one judges a job: the one that hears the first of its live nodes (by name).
// The others hand it what they hear (Store::NotifyReplicas), so a pipeline is heard whole however
// a job's nodes are spread. Nobody has to agree on who it is: every replica sees in the store which
// node is the first, and knows whether it hears it. While that changes, a few steps are judged
// twice, to the same end, or not at all.
//
// Thread safe; blocks on the store.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/server/job_watch.h"
#include "perseus/cluster/server/report_messages.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

class NodeReports {
 public:
  NodeReports(store::Store& store, JobWatches& watches);

  // The jobs of which nothing was taken, as they were named: the node is not attached to them, or
  // they have ended, or are not there.
  Result<std::vector<std::string>> Take(const std::string& node,
                                        const std::vector<protocol::JobReport>& reports,
                                        store::Milliseconds now);
  // What another replica, or this one, told all of them (Notice::Kind::kSteps). Of one job in the
  // order in which it was told, and not two at a time.
  Result<void> TakeHeard(const HeardOfJob& heard, store::Milliseconds now);
  // The job's ranks are new ones; a detected slowdown was taken back. Wherever it is judged.
  Result<void> BeginAnew(const std::string& job);
  Result<void> Forget(const std::string& job, int pipeline);

 private:
  class Writing;  // That this thread does, until it goes.
  struct Known {
    std::int64_t acknowledged = -1;
    std::int64_t following = -1;
    store::Milliseconds told = 0;
  };
  // Whether the node is attached to the job.
  Result<bool> TakeJob(const std::string& node, const protocol::JobReport& report,
                       store::Milliseconds now);
  // Whether this replica judges the job; makes its watch ready if it just began to.
  Result<bool> Judges(const store::JobRecord& job, JobWatch& watch, store::Milliseconds now);
  Result<void> Judge(const std::string& node, const store::JobRecord& job, JobWatch& watch,
                     const std::vector<protocol::StepReport>& steps, store::Milliseconds now);
  Result<void> BeginToJudge(const store::JobRecord& job, JobWatch& watch, store::Milliseconds now);
  Result<void> LookAtNodes(const std::string& job, JobWatch& watch, store::Milliseconds now);
  Result<void> TellStragglers(const std::string& job, std::vector<StragglerChange> changes,
                              store::Milliseconds now);
  // Notes it for WriteNoted() if the store has to hear of it.
  void See(const std::string& node, const std::string& job, const protocol::JobReport& report,
           store::Milliseconds now);
  // One thread at a time writes what all have noted, and the others go on, so thousands of nodes
  // take few commits. What is lost with this process, every node says again in its next reports.
  Result<void> WriteNoted();
  // Whether a round of it wrote anything.
  Result<bool> WriteOnce();
  void NoteForReplicas(HeardOfJob heard);
  // 0 of a version that is not among the newest ones.
  Result<double> ExpectedTime(const store::JobRecord& job, JobWatch& watch,
                              const protocol::StepReport& step);

  static constexpr std::size_t kMostForReplicas = 10'000;

  store::Store& store_;
  JobWatches& watches_;
  const std::string replica_;  // Not its name, which two may share.
  Mutex mutex_;
  std::map<std::pair<std::string, std::string>, Known> known_ PERSEUS_GUARDED_BY(mutex_);
  store::Milliseconds forgot_ PERSEUS_GUARDED_BY(mutex_) = 0;  // Nodes that are gone, when last.
  std::vector<store::NodeRecord> seen_ PERSEUS_GUARDED_BY(mutex_);    // To be written.
  std::vector<std::string> for_replicas_ PERSEUS_GUARDED_BY(mutex_);  // To be told.
  bool is_writing_ PERSEUS_GUARDED_BY(mutex_) = false;
};

}  // namespace perseus::server
