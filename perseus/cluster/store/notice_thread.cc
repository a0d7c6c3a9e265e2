#include "perseus/cluster/store/notice_thread.h"

#include <utility>

namespace perseus::store {

NoticeThread::NoticeThread(std::function<void(const Notice&)> receive)
    : receive_(std::move(receive)), thread_([this] { Run(); }) {}

NoticeThread::~NoticeThread() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NoticeThread::Send(const Notice& notice) {
  {
    const MutexLock lock(mutex_);
    waiting_.push_back(notice);
  }
  changed_.notify_all();
}

void NoticeThread::Run() {
  while (true) {
    std::vector<Notice> taken;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && waiting_.empty()) changed_.wait(mutex_);
      if (stopping_) return;
      taken.swap(waiting_);
    }
    for (const Notice& notice : taken) receive_(notice);
  }
}

}  // namespace perseus::store
