// Counts the calls of a fake library, and makes calls fail.
//
// Thread-safe.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "perseus/base/mutex.h"

class CallLog {
 public:
  // Counts the call, and returns the code with which it fails. 0: it succeeds.
  int Enter(std::string_view entry_point) {
    const perseus::MutexLock lock(mutex_);
    EntryPoint& entered = EntryOf(entry_point);
    ++entered.calls;
    if (entered.after > 0) {
      --entered.after;
      return 0;
    }
    if (entered.failures == 0) return 0;
    --entered.failures;
    return entered.code;
  }
  // Lets `after` more calls of this entry point succeed. The next `failures` calls fail with the
  // code.
  void Fail(std::string_view entry_point, int code, int after,
            int failures = std::numeric_limits<int>::max()) {
    const perseus::MutexLock lock(mutex_);
    EntryPoint& failing = EntryOf(entry_point);
    failing = {failing.calls, code, after, failures};
  }
  int Calls(std::string_view entry_point) {
    const perseus::MutexLock lock(mutex_);
    return EntryOf(entry_point).calls;
  }
  void Clear() {
    const perseus::MutexLock lock(mutex_);
    entry_points_.clear();
  }

 private:
  struct EntryPoint {
    int calls = 0, code = 0, after = 0, failures = 0;
  };
  EntryPoint& EntryOf(std::string_view name) PERSEUS_REQUIRES(mutex_) {
    return entry_points_[std::string(name)];
  }
  perseus::Mutex mutex_;
  std::map<std::string, EntryPoint> entry_points_ PERSEUS_GUARDED_BY(mutex_);
};
