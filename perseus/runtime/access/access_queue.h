// Threads for access checks, so that the event loop never waits for one.
//
// Fair: one check per account (subordinate_users.h) runs at a time, so that a user whose checks
// hang (a frozen cgroup) holds one thread, for the times of access_check.h.
//
// Thread safe.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/runtime/access/access_check.h"

namespace perseus::agent {

class AccessQueue {
 public:
  using Check = std::function<void(AccessChecker&)>;

  AccessQueue();
  // Stops the running checks, and drops the waiting ones.
  ~AccessQueue();
  AccessQueue(const AccessQueue&) = delete;
  AccessQueue& operator=(const AccessQueue&) = delete;

  // Calls `check` on a thread of the queue. False, and no call, if kMostWaiting checks of this
  // account wait already.
  bool Add(uid_t account, Check check);

  static constexpr int kMostWaiting = 64;  // Of one account: as many ranks may start at once.
  static constexpr int kThreads = 8;

 private:
  struct Waiting {
    uid_t account = 0;
    Check check;
  };

  void Work();
  std::deque<Waiting>::iterator FindReady() PERSEUS_REQUIRES(mutex_);

  AccessChecker checker_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Waiting> waiting_ PERSEUS_GUARDED_BY(mutex_);
  std::set<uid_t> running_ PERSEUS_GUARDED_BY(mutex_);
  bool is_ending_ PERSEUS_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace perseus::agent
