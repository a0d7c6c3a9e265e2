#include "perseus/cluster/server/database_health.h"

#include <utility>

namespace perseus::server {

bool DatabaseHealth::StartCheck() {
  const MutexLock lock(mutex_);
  if (check_ != Check::kIdle) return false;
  check_ = Check::kStarted;
  return true;
}

void DatabaseHealth::PingSent(Time now) {
  const MutexLock lock(mutex_);
  check_ = Check::kWaiting;
  sent_ = now;
}

DatabaseHealth::Change DatabaseHealth::PingAnswered(bool succeeded) {
  const MutexLock lock(mutex_);
  check_ = Check::kStarted;
  const bool was_available = std::exchange(is_available_, succeeded);
  if (was_available == succeeded) return Change::kNone;
  if (succeeded) needs_reread_ = true;
  return succeeded ? Change::kBecameAvailable : Change::kBecameUnavailable;
}

void DatabaseHealth::EndCheck() {
  const MutexLock lock(mutex_);
  check_ = Check::kIdle;
}

DatabaseHealth::Change DatabaseHealth::CheckSilence(Time now) {
  const MutexLock lock(mutex_);
  if (check_ != Check::kWaiting || now - sent_ < kSilence) return Change::kNone;
  return std::exchange(is_available_, false) ? Change::kBecameUnavailable : Change::kNone;
}

bool DatabaseHealth::is_available() const {
  const MutexLock lock(mutex_);
  return is_available_;
}

void DatabaseHealth::RequestReread() {
  const MutexLock lock(mutex_);
  needs_reread_ = true;
}

bool DatabaseHealth::TakeReread() {
  const MutexLock lock(mutex_);
  return std::exchange(needs_reread_, false);
}

}  // namespace perseus::server
