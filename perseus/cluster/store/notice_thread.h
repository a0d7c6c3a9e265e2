// Passes notices to one listener, in order, on its own thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <thread>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/store/records.h"

namespace perseus::store {

class NoticeThread {
 public:
  explicit NoticeThread(std::function<void(const Notice&)> receive);
  // Waits for the running call of `receive`. Drops the notices that wait behind it.
  ~NoticeThread();
  NoticeThread(const NoticeThread&) = delete;
  NoticeThread& operator=(const NoticeThread&) = delete;

  void Send(const Notice& notice);

 private:
  void Run();

  const std::function<void(const Notice&)> receive_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Notice> waiting_ PERSEUS_GUARDED_BY(mutex_);
  bool stopping_ PERSEUS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace perseus::store
