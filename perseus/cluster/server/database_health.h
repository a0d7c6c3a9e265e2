// Whether the database answers the checks of this replica (maintenance.h).
//
//              ping fails, or no answer for kSilence
//   available ───────────────────────────────────────▶ unavailable
//             ◀───────────────────────────────────────
//                          ping succeeds
//
// One check runs at a time: idle → started → waiting for the answer to a ping → started → idle.
// While the database is unavailable, notices may be lost. So when it becomes available, the state
// of all streams has to be read again.
//
// Thread safe.
#pragma once

#include <chrono>

#include "perseus/base/mutex.h"

namespace perseus::server {

class DatabaseHealth {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Change { kNone, kBecameAvailable, kBecameUnavailable };

  // A network that loses everything gives no error for a long time.
  static constexpr std::chrono::seconds kSilence{10};

  // Returns false if a check is running.
  bool StartCheck();
  void PingSent(Time now);
  Change PingAnswered(bool succeeded);
  void EndCheck();

  // Makes the database unavailable if a ping has waited for kSilence.
  Change CheckSilence(Time now);

  bool is_available() const;

  // Streams have to be read again, because reading failed when a notice arrived.
  void RequestReread();
  // Returns whether streams have to be read again, and clears the request. Call it only after a
  // successful ping.
  bool TakeReread();

 private:
  enum class Check { kIdle, kStarted, kWaiting };

  mutable Mutex mutex_;
  bool is_available_ PERSEUS_GUARDED_BY(mutex_) = true;
  bool needs_reread_ PERSEUS_GUARDED_BY(mutex_) = false;
  Check check_ PERSEUS_GUARDED_BY(mutex_) = Check::kIdle;
  Time sent_ PERSEUS_GUARDED_BY(mutex_){};
};

}  // namespace perseus::server
