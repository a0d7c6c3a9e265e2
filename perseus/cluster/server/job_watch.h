// What nodes report of a job's steps, condensed: which pipelines straggle, and what steps take.
//
// In memory only; a replica that takes over learns it in a few steps. Thread safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"
#include "perseus/cluster/server/planning.h"
#include "perseus/cluster/server/straggler_detector.h"
#include "perseus/cluster/store/store.h"
#include "perseus/runtime/protocol/node_messages.h"

namespace perseus::server {

// Whether `then` is less than `pause` ago. Not if it is that far ahead: then the clock was set
// back, and nobody should wait until it is there again.
bool IsWithin(store::Milliseconds pause, store::Milliseconds then, store::Milliseconds now);

class JobWatch {
 public:
  // Newest step, what the last ones took on average and cost by pipeline.
  std::int64_t last_step() const;
  // {"step_s": …, "pipelines": {"0": {"busy_s", "energy_j"}}}: means over the last kWindow steps,
  // energies of steps of which all ranks told theirs.
  std::string Summary() const;

  // The changes to tell the store, and every kRenew what still holds, of a pipeline that was just
  // judged: of one that no longer is, nobody knows. A pipeline's step is judged once all nodes that
  // have ranks of it (SetNodes) have reported it: of some alone it would seem faster than it is. A
  // node may report a step again, after an answer that was lost.
  static constexpr store::Milliseconds kRenew = 20'000;
  std::vector<StragglerChange> Add(const std::string& node, const protocol::StepReport& step,
                                   double expected_s, store::Milliseconds now);
  // The job's steps count from lower numbers again.
  void BeginAnew();
  // Whether they do, and nobody said so, since last asked: a node's went back by more than it can
  // have kept unsent.
  bool HasBegunAnew();

  // Who has ranks of each pipeline; asked for again every kLookAtNodes, and for a node not known.
  // Those of thousands that come one after the other wait for each other, 0.1 ms a node.
  static constexpr store::Milliseconds kLookAtNodes = 10'000;
  static constexpr std::size_t kNodesAMillisecond = 10;
  bool WantsNodes(const std::string& node, store::Milliseconds now) const;
  // `first`: of all live ones, the one whose replica judges the job.
  void SetNodes(std::map<int, std::set<std::string>> nodes, const std::string& first,
                store::Milliseconds now);
  bool HasNode(const std::string& node) const;

  // The node reported to this replica itself.
  void HearHere(const std::string& node, store::Milliseconds now);
  // Whether this replica is the one that judges: without others always, else while it hears the
  // first node. If it has not begun to yet, BeginToJudge() comes first.
  enum class Part { kListens, kBeginsToJudge, kJudges };
  Part PartAt(store::Milliseconds now, bool has_replicas);
  // Of the job's registration.
  struct Settings {
    int pipelines = 1;
    bool detects_stragglers = true;
  };
  // `raised`: what the detector before this one had said, by pipeline. Whatever was known of steps
  // and stragglers is forgotten, for another replica judged meanwhile. Nothing if another thread
  // has done this.
  void BeginToJudge(const Settings& settings, const std::map<int, double>& raised,
                    store::Milliseconds now);
  // Whether it has begun to, and still hears that node.
  bool Judges(store::Milliseconds now) const;
  Settings settings() const;  // Once it has.

  // The pipeline's slowdown was taken back.
  void Forget(int pipeline);

  // What each version says a pipeline's iteration takes, once that was looked up.
  bool Knows(std::int64_t version) const;
  void Learn(std::int64_t version, const PlannedAssignment& assignment);
  double ExpectedTime(std::int64_t version, int pipeline) const;  // 0: no plan.

  // Whether the store should hear of the job again: at most once in `pause`.
  bool IsDue(store::Milliseconds now, store::Milliseconds pause);

  std::map<int, double> Stragglers() const;

 private:
  bool HearsFirst(store::Milliseconds now) const PERSEUS_REQUIRES(mutex_);

  static constexpr std::size_t kWindow = 16;
  using Nodes = std::map<std::string, protocol::StepReport>;
  // Nodes report more often.
  static constexpr store::Milliseconds kHeardLately = 12'000;
  // What a node keeps unsent, and sends again.
  static constexpr std::int64_t kMostUnsent = 256;

  mutable Mutex mutex_;
  StragglerDetector detector_ PERSEUS_GUARDED_BY(mutex_);
  std::map<int, store::Milliseconds> said_ PERSEUS_GUARDED_BY(mutex_);  // Of stragglers, when last.
  std::map<std::int64_t, std::map<int, Nodes>> steps_ PERSEUS_GUARDED_BY(mutex_);  // The last ones.
  std::int64_t last_step_ PERSEUS_GUARDED_BY(mutex_) = -1;
  std::map<std::string, std::int64_t> newest_ PERSEUS_GUARDED_BY(mutex_);  // Step of each node.
  bool has_begun_anew_ PERSEUS_GUARDED_BY(mutex_) = false;
  std::map<int, std::set<std::string>> nodes_ PERSEUS_GUARDED_BY(mutex_);  // [pipeline]
  std::set<std::string> all_nodes_ PERSEUS_GUARDED_BY(mutex_);
  std::string first_node_ PERSEUS_GUARDED_BY(mutex_);
  store::Milliseconds looked_at_nodes_ PERSEUS_GUARDED_BY(mutex_) = -1;
  std::map<std::string, store::Milliseconds> heard_here_ PERSEUS_GUARDED_BY(mutex_);  // By node.
  bool judges_ PERSEUS_GUARDED_BY(mutex_) = false;
  std::map<std::int64_t, std::vector<double>> expected_ PERSEUS_GUARDED_BY(mutex_);  // [version]
  store::Milliseconds told_ PERSEUS_GUARDED_BY(mutex_) = 0;
  Settings settings_ PERSEUS_GUARDED_BY(mutex_);
};

// All jobs'. Those that nobody reported of for an hour are forgotten.
class JobWatches {
 public:
  std::shared_ptr<JobWatch> Of(const std::string& job, store::Milliseconds now);
  std::shared_ptr<JobWatch> Find(const std::string& job) const;  // Null if nobody reported of it.
  void Forget(const std::string& job);
  void ForgetBefore(store::Milliseconds time);
  int jobs() const;

 private:
  struct Watched {
    std::shared_ptr<JobWatch> watch;
    store::Milliseconds used = 0;
  };
  mutable Mutex mutex_;
  std::map<std::string, Watched> watches_ PERSEUS_GUARDED_BY(mutex_);
};

}  // namespace perseus::server
