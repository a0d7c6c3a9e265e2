// The sessions of this process, for a fork and for the end of the process. Both concern the whole
// process, so this is the only place with global state.
//
// A forked child has no background threads, and a thread that does not exist there may have held
// any lock. So this code takes no lock, allocates nothing, and uses static memory.
#pragma once

#include <atomic>
#include <cstdint>

namespace perseus::client {

struct LiveSession {
  std::atomic<bool> is_claimed = false;
  // Descriptors that a forked child closes; -1 for none.
  std::atomic<int> socket = -1;
  std::atomic<int> wakeup = -1;
  std::atomic<int> log = -1;
  // Not 0: the background thread is to end, and why.
  static constexpr std::uint32_t kClosed = 1;
  static constexpr std::uint32_t kProcessEnds = 2;
  std::atomic<std::uint32_t> is_over = 0;
  // What a driver may still use when the session is closed; kept here so that it is not lost.
  std::atomic<void*> kept = nullptr;
  std::atomic<std::uint32_t> has_ended = 1;  // 1: there is no background thread.
};

// At fork and exit, the process handles up to 256 sessions. A later session gets an entry that it
// does not handle.
LiveSession* ClaimLiveSession();
void ReleaseLiveSession(LiveSession* session);

// Another number in a child than in its parent.
std::uint32_t ForkGeneration();

// Ends the background thread for this reason and waits for it, until CLOCK_MONOTONIC is `until`.
// Whether it has ended.
bool EndBackgroundThread(LiveSession& session, std::uint32_t reason, std::int64_t until);

}  // namespace perseus::client
