// Summarizes the steps that nodes report for a job: which pipelines straggle, and how long steps
// take.
//
// The state is in memory only. If another replica takes over, it needs a few steps to get the same
// state. Thread safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"
#include "perseus/cluster/node_messages/node_messages.h"
#include "perseus/cluster/store/planned_assignment.h"
#include "perseus/cluster/store/store.h"
#include "perseus/cluster/telemetry/notice_check.h"
#include "perseus/cluster/telemetry/plan_guard.h"
#include "perseus/cluster/telemetry/plan_promise.h"
#include "perseus/cluster/telemetry/straggler_detector.h"

namespace perseus::telemetry {

// Whether `then` is less than `pause` ago. Returns false if `then` is more than `pause` in the
// future, because then the clock was set back.
bool IsWithin(Milliseconds pause, Milliseconds then, Milliseconds now);

// The energy of steps that followed a plan, and whose ranks all had a lease of their GPU.
struct JudgedEnergy {
  double baseline_j = 0;  // The planned energy at maximum frequency.
  double measured_j = 0;
};

class JobWatch {
 public:
  std::int64_t last_step() const;
  // Returns {"step_s": …, "pipelines": {"0": {"busy_s", "energy_j"}}, "promise": {…}}. The values
  // are means over the last kWindow steps. An energy is the mean over the steps for which all ranks
  // reported their energy. The promise (plan_promise.h) belongs to the newest assignment that all
  // pipelines followed.
  std::string Summary() const;
  // Returns the steps that followed the newest assignment that all pipelines follow, for the guard.
  StepTimes GuardedSteps() const;
  // Returns why steps with the active plan are longer than promised, as far as reports show the
  // cause. May be empty.
  std::string Problem() const;
  // Returns the energy of the steps that were judged since the last call.
  JudgedEnergy TakeJudgedEnergy();

  // Adds a reported step. Returns the changes of stragglers to store. Every kRenew, also returns
  // the stragglers that still hold, for pipelines that were just judged. A step of a pipeline is
  // judged when all nodes with ranks of the pipeline (SetNodes) have reported the step. An earlier
  // judgment would be wrong, because some of these nodes may be faster than the whole pipeline. A
  // step with ranks without a lease is no evidence for or against a straggler.
  // Ignores a step of a pipeline if the node has no rank of this pipeline. If an answer was lost, a
  // node may report a step again.
  static constexpr Milliseconds kRenew = 20'000;
  std::vector<StragglerChange> Add(const std::string& node, const protocol::StepReport& step,
                                   double expected_s, Milliseconds now);
  // Returns the straggler reports that the steps since the last call contradict, or no longer
  // contradict (notice_check.h).
  std::vector<NoticeChange> TakeNoticeChanges();
  // Whether the watch needs the stragglers of this generation of the job.
  bool NeedsNotices(std::int64_t generation) const;
  void SetNotices(const std::vector<store::StragglerRecord>& stragglers, std::int64_t generation);

  // Handles a restart of the job, which then counts its steps from 0 again.
  void Restart();
  // Whether a restart was found since the last call. A restart is found if the step of a node
  // decreases by more than the number of unsent steps that a node keeps.
  bool TakeRestart();

  // The function that handles a report locks this mutex while it reads the data that the watch
  // lacks (SetNodes, Learn). Thousands of nodes may begin to report at once. Because of the mutex,
  // one report reads the data, and the other reports wait.
  Mutex& reading() { return reading_; }

  // Whether to call SetNodes again. This is due every kReadNodesEvery, and for an unknown node.
  // After a call for an unknown node, the next such call waits 0.1 ms for each known node, because
  // thousands of nodes may arrive at once.
  static constexpr Milliseconds kReadNodesEvery = 10'000;
  static constexpr std::size_t kNodesAMillisecond = 10;
  // A node counts as unknown if it reports `steps` of a pipeline of which it has no rank.
  bool NeedsNodes(const std::string& node, Milliseconds now,
                  const std::vector<protocol::StepReport>& steps = {}) const;
  // Sets the nodes with ranks of each pipeline, by dp_rank. `first` is the first live node. The
  // replica to which this node reports judges the job.
  void SetNodes(std::map<int, std::set<std::string>> nodes, const std::string& first,
                Milliseconds now);
  bool HasNode(const std::string& node) const;

  // Records that the node reported to this replica.
  void NoteReport(const std::string& node, Milliseconds now);
  // Whether this replica judges the job. A single replica always does. One of several replicas
  // judges the job while the first node reports to this replica. kStartsToJudge: the caller has to
  // call StartJudging() first.
  enum class Role { kDoesNotJudge, kStartsToJudge, kJudges };
  Role RoleAt(Milliseconds now, bool has_replicas);
  // Values from the registration of the job.
  struct Settings {
    int pipelines = 1;
    bool detects_stragglers = true;
    double most_harm = 0.01;  // The largest harm of a plan, as a fraction of the step time.
  };
  // Forgets all steps and stragglers, because another replica judged the job in the meantime.
  // `raised` contains the stragglers that the other replica detected, by dp_rank. Does nothing if
  // another thread has already called this.
  void StartJudging(const Settings& settings, const std::map<int, double>& raised,
                    Milliseconds now);
  // Whether this replica has started to judge, and the first node still reports to it.
  bool Judges(Milliseconds now) const;
  Settings settings() const;  // Call it after StartJudging().

  // Whether the watch knows the planned iteration time of each pipeline in this assignment version.
  bool Knows(std::int64_t version) const;
  void Learn(std::int64_t version, const store::PlannedAssignment& assignment);
  double ExpectedTime(std::int64_t version, int pipeline) const;  // 0: no plan.

  // Whether to store the summary of the job again: at most once per `pause`.
  bool IsDue(Milliseconds now, Milliseconds pause);

  std::map<int, double> Stragglers() const;

 private:
  using Nodes = std::map<std::string, protocol::StepReport>;
  void CountEnergy(const protocol::StepReport& step, const Nodes& nodes) PERSEUS_REQUIRES(mutex_);
  // The steps that followed the newest version, without the first of these steps.
  struct Followed {
    std::int64_t version = 0;
    const store::PlannedAssignment* assignment = nullptr;  // Null if the assignment is unknown.
    std::vector<MeasuredStep> steps = {};
  };
  Followed FollowedSteps() const PERSEUS_REQUIRES(mutex_);
  std::optional<std::pair<std::int64_t, Promise>> CurrentPromise() const PERSEUS_REQUIRES(mutex_);
  bool ReceivesFirstNode(Milliseconds now) const PERSEUS_REQUIRES(mutex_);
  bool HasRanks(const std::string& node, int pipeline) const PERSEUS_REQUIRES(mutex_);
  void ForgetSteps() PERSEUS_REQUIRES(mutex_);

  static constexpr std::size_t kWindow = 16;
  // How long a report counts as recent. Longer than the interval of reports.
  static constexpr Milliseconds kRecently = 12'000;
  // The number of unsent steps that a node keeps and sends again.
  static constexpr std::int64_t kMaxUnsent = 256;

  Mutex reading_;
  mutable Mutex mutex_;
  StragglerDetector detector_ PERSEUS_GUARDED_BY(mutex_);
  NoticeCheck notices_ PERSEUS_GUARDED_BY(mutex_);
  std::int64_t notices_generation_ PERSEUS_GUARDED_BY(mutex_) = -1;
  std::vector<NoticeChange> notice_changes_ PERSEUS_GUARDED_BY(mutex_);
  // When Add last returned each straggler, by dp_rank.
  std::map<int, Milliseconds> returned_ PERSEUS_GUARDED_BY(mutex_);
  // The last steps.
  std::map<std::int64_t, std::map<int, Nodes>> steps_ PERSEUS_GUARDED_BY(mutex_);
  std::int64_t last_step_ PERSEUS_GUARDED_BY(mutex_) = -1;
  // The newest step of each node.
  std::map<std::string, std::int64_t> newest_ PERSEUS_GUARDED_BY(mutex_);
  bool has_restarted_ PERSEUS_GUARDED_BY(mutex_) = false;
  // The nodes of each pipeline.
  std::map<int, std::set<std::string>> nodes_ PERSEUS_GUARDED_BY(mutex_);
  std::set<std::string> all_nodes_ PERSEUS_GUARDED_BY(mutex_);
  std::string first_node_ PERSEUS_GUARDED_BY(mutex_);
  Milliseconds read_nodes_at_ PERSEUS_GUARDED_BY(mutex_) = -1;
  // When each node last reported to this replica.
  std::map<std::string, Milliseconds> received_here_ PERSEUS_GUARDED_BY(mutex_);
  bool judges_ PERSEUS_GUARDED_BY(mutex_) = false;
  std::map<std::int64_t, std::vector<double>> expected_ PERSEUS_GUARDED_BY(mutex_);  // [version]
  std::map<std::int64_t, store::PlannedAssignment> assignments_
      PERSEUS_GUARDED_BY(mutex_);  // [version]
  JudgedEnergy judged_ PERSEUS_GUARDED_BY(mutex_);
  // By step: the pipelines whose energy is counted.
  std::map<std::int64_t, std::set<int>> judged_steps_ PERSEUS_GUARDED_BY(mutex_);
  Milliseconds stored_ PERSEUS_GUARDED_BY(mutex_) = 0;
  Settings settings_ PERSEUS_GUARDED_BY(mutex_);
};

// The watches of all jobs. The control plane removes a watch that had no report for an hour.
class JobWatches {
 public:
  std::shared_ptr<JobWatch> Of(const std::string& job, Milliseconds now);
  // Returns null if no node reported on the job.
  std::shared_ptr<JobWatch> Find(const std::string& job) const;
  void Forget(const std::string& job);
  void ForgetBefore(Milliseconds time);
  int jobs() const;

 private:
  struct Watched {
    std::shared_ptr<JobWatch> watch;
    Milliseconds used = 0;
  };
  mutable Mutex mutex_;
  std::map<std::string, Watched> watches_ PERSEUS_GUARDED_BY(mutex_);
};

}  // namespace perseus::telemetry
