#include "perseus/runtime/access/access_queue.h"

#include <algorithm>
#include <utility>

namespace perseus::agent {

AccessQueue::AccessQueue() {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Work(); });
}

AccessQueue::~AccessQueue() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
  }
  checker_.Stop();
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool AccessQueue::Add(uid_t account, Check check) {
  {
    const MutexLock lock(mutex_);
    const auto of_account = std::ranges::count(waiting_, account, &Waiting::account);
    if (of_account >= kMostWaiting) return false;
    waiting_.push_back({account, std::move(check)});
  }
  changed_.notify_one();
  return true;
}

std::deque<AccessQueue::Waiting>::iterator AccessQueue::FindReady() {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting) {
    if (!running_.contains(waiting->account)) return waiting;
  }
  return waiting_.end();
}

void AccessQueue::Work() {
  while (true) {
    Waiting next;
    {
      const MutexLock lock(mutex_);
      auto ready = FindReady();
      for (; !is_ending_ && ready == waiting_.end(); ready = FindReady()) changed_.wait(mutex_);
      if (is_ending_) return;
      next = std::move(*ready);
      waiting_.erase(ready);
      running_.insert(next.account);
    }
    next.check(checker_);
    {
      const MutexLock lock(mutex_);
      running_.erase(next.account);
    }
    changed_.notify_all();
  }
}

}  // namespace perseus::agent
