#include "perseus/base/parallel.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "perseus/base/mutex.h"

namespace perseus {
namespace {

// The calls that may begin. Each thread takes the next call from here.
class Calls {
 public:
  explicit Calls(std::size_t count) : end_(count) {}

  // Returns the index of the next call, or nullopt if no call is left. If no call is ready, waits
  // while running calls may still add some.
  std::optional<std::size_t> Begin() {
    const MutexLock lock(mutex_);
    while (next_ == end_ && running_ > 0 && !exception_) changed_.wait(mutex_);
    if (next_ == end_ || exception_) return std::nullopt;
    ++running_;
    return next_++;
  }
  void End(std::size_t added) {
    const MutexLock lock(mutex_);
    end_ += added;
    --running_;
    if (added > 0 || running_ == 0) changed_.notify_all();
  }
  void EndByException() {
    const MutexLock lock(mutex_);
    if (!exception_) exception_ = std::current_exception();
    changed_.notify_all();
  }
  void Rethrow() {
    const MutexLock lock(mutex_);
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::size_t next_ PERSEUS_GUARDED_BY(mutex_) = 0;
  std::size_t end_ PERSEUS_GUARDED_BY(mutex_);
  std::size_t running_ PERSEUS_GUARDED_BY(mutex_) = 0;
  std::exception_ptr exception_ PERSEUS_GUARDED_BY(mutex_);  // The first one.
};

// Calls work(index) for each call. `work` returns how many calls it adds. At most `most` calls run
// at the same time.
void CallOnAllCores(std::size_t count, std::size_t most,
                    const std::function<std::size_t(std::size_t)>& work) {
  Calls calls(count);
  const auto work_on = [&] {
    while (const std::optional<std::size_t> index = calls.Begin()) {
      try {
        calls.End(work(*index));
      } catch (...) {
        calls.EndByException();
      }
    }
  };
  {
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> helpers;
    try {
      for (std::size_t i = 1; i < std::min(cores, most); ++i) helpers.emplace_back(work_on);
    } catch (const std::system_error&) {
      // The existing threads do all the work.
    }
    work_on();
  }
  calls.Rethrow();
}

}  // namespace

void ForEachOnAllCores(std::size_t count, const std::function<void(std::size_t)>& work) {
  CallOnAllCores(count, count, [&](std::size_t i) {
    work(i);
    return std::size_t{0};
  });
}

void DrainOnAllCores(std::size_t count, const std::function<std::size_t()>& work) {
  if (count == 0) return;
  CallOnAllCores(count, std::numeric_limits<std::size_t>::max(),
                 [&](std::size_t) { return work(); });
}

}  // namespace perseus
