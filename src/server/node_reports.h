// What nodes report: read, handed to the jobs' watches, and what changed told to the store.
//
// Thread safe; blocks on the store.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/server/answer.h"
#include "perseus/server/job_watch.h"
#include "perseus/store/store.h"

namespace perseus {

struct NodeJobReport {
  std::string job;
  std::int64_t acknowledged = 0;
  std::int64_t following = 0;
  std::int64_t since_step = -1;
  std::vector<ReportedStep> steps;
};

// Of POST /v1/nodes/N/reports.
Answer<std::vector<NodeJobReport>> ReadReports(std::string_view body);

class NodeReports {
 public:
  NodeReports(Store& store, JobWatches& watches) : store_(store), watches_(watches) {}

  // Jobs that are not there, or have ended, are passed over: their nodes hear of it by the stream.
  Result<void> Take(const std::string& node, const std::vector<NodeJobReport>& reports,
                    Milliseconds now);

 private:
  struct Known {
    std::int64_t acknowledged = -1;
    std::int64_t following = -1;
    Milliseconds told = 0;
  };
  Result<void> TakeJob(const std::string& node, const NodeJobReport& report, Milliseconds now);
  Result<void> TakeSteps(const std::string& node, const JobRecord& job, const NodeJobReport& report,
                         Milliseconds now);
  Result<void> TakeOver(const std::string& job, JobWatch& watch, Milliseconds now);
  Result<void> LookAtNodes(const std::string& job, JobWatch& watch, Milliseconds now);
  Result<void> TellStragglers(const std::string& job, std::vector<StragglerChange> changes,
                              Milliseconds now);
  // Notes it for WriteSeen() if the store has to hear of it.
  void See(const std::string& node, const std::string& job, const NodeJobReport& report,
           Milliseconds now);
  // One thread at a time writes what all have noted, and the others go on, so thousands of nodes
  // take few commits. What is lost with this process, every node says again in its next reports.
  Result<void> WriteSeen();
  Result<double> ExpectedTime(const std::string& job, JobWatch& watch, const ReportedStep& step);

  Store& store_;
  JobWatches& watches_;
  Mutex mutex_;
  std::map<std::pair<std::string, std::string>, Known> known_ PERSEUS_GUARDED_BY(mutex_);
  std::vector<NodeRecord> seen_ PERSEUS_GUARDED_BY(mutex_);  // To be written.
  bool is_writing_ PERSEUS_GUARDED_BY(mutex_) = false;
};

}  // namespace perseus
