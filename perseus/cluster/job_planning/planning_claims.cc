#include "perseus/cluster/job_planning/planning_claims.h"

#include <algorithm>
#include <iterator>

namespace perseus::job_planning {
namespace {

bool IsSame(const store::PlanningTask& a, const store::PlanningTask& b) {
  return a.job == b.job && a.worker == b.worker;
}

}  // namespace

std::stop_token PlanningClaims::Begin(const store::PlanningTask& task) {
  const MutexLock lock(mutex_);
  running_.push_back({.task = task, .stop = {}, .renewed = now_()});
  if (stops_all_) running_.back().stop.request_stop();
  return running_.back().stop.get_token();
}

void PlanningClaims::End(const store::PlanningTask& task) {
  const MutexLock lock(mutex_);
  std::erase_if(running_, [&](const Running& running) { return IsSame(running.task, task); });
}

// Returns copies, which share their stop sources with the originals.
std::vector<PlanningClaims::Running> PlanningClaims::FindDue() {
  const MutexLock lock(mutex_);
  std::vector<Running> due;
  std::ranges::copy_if(running_, std::back_inserter(due), [&](const Running& running) {
    return !running.stop.stop_requested() && now_() - running.renewed >= kRenewAfter;
  });
  return due;
}

void PlanningClaims::SetRenewed(const store::PlanningTask& task, Milliseconds at) {
  const MutexLock lock(mutex_);
  for (Running& running : running_) {
    if (IsSame(running.task, task)) running.renewed = at;
  }
}

Result<void> PlanningClaims::Renew() {
  for (Running& running : FindDue()) {
    const Milliseconds now = now_();
    PERSEUS_ASSIGN_OR_RETURN(const auto is_held, store_.RenewPlanning(running.task, now, kClaim));
    if (!is_held) running.stop.request_stop();
    SetRenewed(running.task, now);
  }
  return {};
}

void PlanningClaims::StopAll() {
  const MutexLock lock(mutex_);
  stops_all_ = true;
  for (Running& running : running_) running.stop.request_stop();
}

}  // namespace perseus::job_planning
