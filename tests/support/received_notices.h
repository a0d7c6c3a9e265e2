// Notices that a listener received. A test waits for them.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>

#include "perseus/cluster/store/records.h"

namespace perseus::store {

class ReceivedNotices {
 public:
  void Add(const Notice& notice) {
    const std::lock_guard lock(mutex_);
    notices_.push_back(notice);
    added_.notify_all();
  }
  // Waits for the next notice.
  Notice Next() {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return !notices_.empty(); });
    Notice next = notices_.front();
    notices_.pop_front();
    return next;
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Notice> notices_;
};

}  // namespace perseus::store
