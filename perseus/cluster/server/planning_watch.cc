#include "perseus/cluster/server/planning_watch.h"

#include <algorithm>

namespace perseus::server {
namespace {

bool IsSame(const store::PlanningTask& a, const store::PlanningTask& b) {
  return a.job == b.job && a.worker == b.worker;
}

}  // namespace

std::stop_token PlanningWatch::Begin(const store::PlanningTask& task) {
  const MutexLock lock(mutex_);
  running_.push_back({.task = task, .stop = {}, .renewed = now_()});
  if (stops_all_) running_.back().stop.request_stop();
  return running_.back().stop.get_token();
}

void PlanningWatch::End(const store::PlanningTask& task) {
  const MutexLock lock(mutex_);
  std::erase_if(running_, [&](const Running& running) { return IsSame(running.task, task); });
}

// Their stop sources are the same ones, shared.
std::vector<PlanningWatch::Running> PlanningWatch::Unstopped() {
  const MutexLock lock(mutex_);
  std::vector<Running> unstopped;
  std::ranges::copy_if(running_, std::back_inserter(unstopped),
                       [](const Running& running) { return !running.stop.stop_requested(); });
  return unstopped;
}

void PlanningWatch::SetRenewed(const store::PlanningTask& task, store::Milliseconds at) {
  const MutexLock lock(mutex_);
  for (Running& running : running_) {
    if (IsSame(running.task, task)) running.renewed = at;
  }
}

Result<void> PlanningWatch::Renew(Running& running) {
  const store::Milliseconds now = now_();
  if (now - running.renewed < kRenewAfter) return {};
  PERSEUS_ASSIGN_OR_RETURN(const auto is_held, store_.RenewPlanning(running.task, now, kClaim));
  if (!is_held) running.stop.request_stop();
  SetRenewed(running.task, now);
  return {};
}

Result<void> PlanningWatch::Look() {
  for (Running& running : Unstopped()) {
    if (auto renewed = Renew(running); !renewed) return renewed;
    if (running.task.is_awaited) continue;
    PERSEUS_ASSIGN_OR_RETURN(const auto is_wanted, store_.IsWantedAgain(running.task, now_()));
    if (is_wanted) running.stop.request_stop();
  }
  std::vector<Running> all = Unstopped();
  if (std::ssize(all) < workers_) return {};  // Somebody is free, or soon will be.
  std::erase_if(all, [](const Running& running) { return running.task.is_awaited; });
  if (all.empty()) return {};
  PERSEUS_ASSIGN_OR_RETURN(const auto is_awaited, store_.IsPlanningAwaited(now_()));
  if (is_awaited) all.back().stop.request_stop();
  return {};
}

void PlanningWatch::StopAll() {
  const MutexLock lock(mutex_);
  stops_all_ = true;
  for (Running& running : running_) running.stop.request_stop();
}

}  // namespace perseus::server
