// Keeps the claims of the plannings that this replica's workers are at, and stops those that are
// for nothing, or in the way.
//
// A claim is short, so that what a dead replica was at is soon taken over, and renewed, so that a
// planning may last as long as it has to. One that is lost all the same (this process was
// suspended, say) is stopped: somebody else plans the job. So is a second look
//   - when planning of its job is wanted again: what it looks at is out of date;
//   - when nodes of another job wait for a planning and all workers are busy: the one that was
//     begun last, which loses least. It comes again later.
// First looks are never stopped for anything else: under notices without end none would be done.
//
// Rival: a worker that takes first looks alone. It would idle most of the time, would not help a
// server with one planner, and second looks of a job whose state moved on would have to be stopped
// all the same.
//
// Thread safe. Has no thread of its own: somebody calls Look.
#pragma once

#include <functional>
#include <stop_token>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

class PlanningWatch {
 public:
  // Far more than clocks of replicas differ, and than a database takes to come back.
  static constexpr store::Milliseconds kClaim = 20'000;
  static constexpr store::Milliseconds kRenewAfter = 5'000;

  PlanningWatch(store::Store& store, int workers, std::function<store::Milliseconds()> now)
      : store_(store), workers_(workers), now_(std::move(now)) {}

  // A worker begins what he claimed just now, for kClaim. What his planning has to heed; until End.
  std::stop_token Begin(const store::PlanningTask& task);
  void End(const store::PlanningTask& task);

  // To be called about once a second, and whenever there may be something new to plan. Fails with
  // what the store fails with; the next call goes on.
  Result<void> Look();

  // Those that run, and all that begin later.
  void StopAll();

 private:
  struct Running {
    store::PlanningTask task;
    std::stop_source stop;
    store::Milliseconds renewed = 0;
  };

  std::vector<Running> Unstopped();
  Result<void> Renew(Running& running);
  void SetRenewed(const store::PlanningTask& task, store::Milliseconds at);

  store::Store& store_;
  const int workers_;
  const std::function<store::Milliseconds()> now_;
  Mutex mutex_;
  std::vector<Running> running_ PERSEUS_GUARDED_BY(mutex_);  // In the order in which they began.
  bool stops_all_ PERSEUS_GUARDED_BY(mutex_) = false;
};

}  // namespace perseus::server
