// Counts the calls of a fake library, and makes one of them fail.
//
// Thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "perseus/base/mutex.h"

class CallLog {
 public:
  // Counts the call, and returns the code with which it fails. 0: it succeeds.
  int Enter(std::string_view entry_point) {
    const perseus::MutexLock lock(mutex_);
    const int number = calls_[std::string(entry_point)]++;
    const auto failure = failures_.find(entry_point);
    return failure != failures_.end() && failure->second.after == number ? failure->second.code : 0;
  }
  // Makes one call of this entry point fail with this code: call number `after`, from 0.
  void FailOnce(std::string_view entry_point, int code, int after) {
    const perseus::MutexLock lock(mutex_);
    failures_[std::string(entry_point)] = {code, after};
  }
  int Calls(std::string_view entry_point) const {
    const perseus::MutexLock lock(mutex_);
    const auto found = calls_.find(entry_point);
    return found == calls_.end() ? 0 : found->second;
  }
  void Clear() {
    const perseus::MutexLock lock(mutex_);
    calls_.clear();
    failures_.clear();
  }

 private:
  struct Failure {
    int code = 0;
    int after = 0;
  };
  mutable perseus::Mutex mutex_;
  std::map<std::string, int, std::less<>> calls_ PERSEUS_GUARDED_BY(mutex_);
  std::map<std::string, Failure, std::less<>> failures_ PERSEUS_GUARDED_BY(mutex_);
};
