// The sessions of this process, for a fork and for the end of the process. Both concern the whole
// process, so this is the only place with global state.
//
// A forked child has no background threads, and a thread that does not exist there may have held
// any lock. So this code takes no lock, allocates nothing, and uses static memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "perseus/base/file_descriptor.h"

namespace perseus::client {

struct LiveSession {
  std::atomic<bool> is_claimed = false;
  // Descriptors that a forked child closes; -1 for none.
  std::atomic<int> socket = -1;
  std::atomic<int> wakeup = -1;
  std::atomic<int> log = -1;
  // Why the session's threads have to end. 0: they run on.
  static constexpr std::uint32_t kClosed = 1;
  static constexpr std::uint32_t kProcessEnds = 2;
  std::atomic<std::uint32_t> is_over = 0;
  std::atomic<std::uint32_t> threads = 0;  // How many threads the session has.
};

// A connection or a locked file of a session. It is in the list of its LiveSession while it is
// open, so that a forked child closes its copy. A child that is forked before or after that time
// keeps its copy. So the end of this object also ends what all copies share: the connection, and
// the lock.
class ListedDescriptor {
 public:
  // `entry` is a member of the LiveSession. It has to outlive this object.
  ListedDescriptor(FileDescriptor descriptor, std::atomic<int>& entry)
      : descriptor_(std::move(descriptor)), entry_(&entry) {
    entry_->store(descriptor_.get());
  }
  ListedDescriptor(ListedDescriptor&&) noexcept = default;
  // Swaps, so that `other` closes the previous descriptor.
  ListedDescriptor& operator=(ListedDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~ListedDescriptor();

  int get() const { return descriptor_.get(); }

 private:
  FileDescriptor descriptor_;
  std::atomic<int>* entry_;
};

// The process handles up to 256 sessions at fork and exit. Any further session gets an entry that
// fork and exit ignore.
LiveSession* ClaimLiveSession();
void ReleaseLiveSession(LiveSession* session);

// A number that differs between a child and its parent.
std::uint32_t ForkGeneration();

// Ends the session's threads for this reason, and waits for them, at most until CLOCK_MONOTONIC is
// `until`. Returns whether all have ended.
bool EndThreads(LiveSession& session, std::uint32_t reason, std::int64_t until);

}  // namespace perseus::client
