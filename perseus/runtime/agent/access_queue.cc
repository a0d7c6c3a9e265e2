#include "perseus/runtime/agent/access_queue.h"

#include <algorithm>
#include <utility>

namespace perseus::agent {

AccessQueue::AccessQueue(Check check)
    : check_(check ? std::move(check)
                   : [this](const Identity& identity,
                            const std::vector<std::filesystem::path>& devices) {
                       return checker_.Check(identity, devices);
                     }) {
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

bool AccessQueue::Add(Identity identity, std::vector<std::filesystem::path> devices,
                      std::function<void(Answered)> done) {
  {
    const MutexLock lock(mutex_);
    const auto of_user = std::ranges::count(
        waiting_, identity.uid, [](const Waiting& waiting) { return waiting.identity.uid; });
    if (of_user >= kMostWaiting) return false;
    waiting_.push_back({std::move(identity), std::move(devices), std::move(done)});
  }
  changed_.notify_one();
  return true;
}

std::deque<AccessQueue::Waiting>::iterator AccessQueue::FindReady() {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting) {
    if (!running_.contains(waiting->identity.uid)) return waiting;
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
      running_.insert(next.identity.uid);
    }
    next.done(check_(next.identity, next.devices));
    {
      const MutexLock lock(mutex_);
      running_.erase(next.identity.uid);
    }
    changed_.notify_all();
  }
}

}  // namespace perseus::agent
