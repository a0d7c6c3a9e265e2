// Renews the claims of the plannings that run on this replica, and stops plannings that are no
// longer needed.
//
// A claim reserves the planning of one job for one replica. A claim is short, so that other
// replicas soon take over the plannings of a dead replica. The claim is renewed, so that a planning
// may take as long as it needs. If a claim is lost (for example because this process was
// suspended), the planning stops: another replica plans the job.
//
// Thread safe. Has no thread of its own: the owner calls Renew.
#pragma once

#include <functional>
#include <stop_token>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"

namespace perseus::job_planning {

class PlanningClaims {
 public:
  // The length of a claim. It is far longer than the difference between the clocks of two replicas,
  // and far longer than a restart of the database.
  static constexpr Milliseconds kClaim = 20'000;
  static constexpr Milliseconds kRenewAfter = 5'000;

  PlanningClaims(store::Store& store, std::function<Milliseconds()> now)
      : store_(store), now_(std::move(now)) {}

  // Registers a task that a worker has just claimed for kClaim. Returns the token that stops the
  // planning. The worker calls End when the planning has ended.
  std::stop_token Begin(const store::PlanningTask& task);
  void End(const store::PlanningTask& task);

  // Renews the claims that are older than kRenewAfter. Call it about once per second. After an
  // error of the store, the next call tries again.
  Result<void> Renew();

  // Stops all plannings, including those that begin later.
  void StopAll();

 private:
  struct Running {
    store::PlanningTask task;
    std::stop_source stop;
    Milliseconds renewed = 0;
  };

  std::vector<Running> FindDue();
  void SetRenewed(const store::PlanningTask& task, Milliseconds at);

  store::Store& store_;
  const std::function<Milliseconds()> now_;
  Mutex mutex_;
  std::vector<Running> running_ PERSEUS_GUARDED_BY(mutex_);
  bool stops_all_ PERSEUS_GUARDED_BY(mutex_) = false;
};

}  // namespace perseus::job_planning
