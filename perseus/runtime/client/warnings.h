// Warnings for the user: one line for each cause, even if the problem repeats.
//
// Thread safety: any thread may call. Not for the hot path of a training thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>

#include "perseus/base/mutex.h"

namespace perseus::client {

enum class WarningOutput { kStandardError, kQuiet };

class Warnings {
 public:
  // Each line begins with `who`: "perseus: rank 3".
  Warnings(WarningOutput output, std::string who) : output_(output), who_(std::move(who)) {}

  // Gives one warning for each `cause` ("agent", "plan"), and drops later ones. The warning is one
  // line of text, whatever `message` contains. If it is very long, its middle is left out.
  void Once(const std::string& cause, const std::string& message) PERSEUS_EXCLUDES(mutex_);
  // Returns the oldest warning that was not taken yet. Empty if all were taken.
  std::string TakeOldest() PERSEUS_EXCLUDES(mutex_);
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  const WarningOutput output_;
  const std::string who_;
  Mutex mutex_;
  std::set<std::string> told_ PERSEUS_GUARDED_BY(mutex_);
  std::deque<std::string> untaken_ PERSEUS_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> count_ = 0;
};

}  // namespace perseus::client
