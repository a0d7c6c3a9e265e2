#include "perseus/runtime/client/live_sessions.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "perseus/base/clock.h"
#include "perseus/runtime/client/driver_gate.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"

namespace perseus::client {
namespace {

// For the threads of all sessions together, when the process ends.
constexpr Nanoseconds kLiveSessionsTimeout = kSecond;

std::array<LiveSession, 256> live_sessions;
std::atomic<std::uint32_t> generation = 0;
std::atomic<bool> is_registered = false;

bool IsListed(const LiveSession* session) {
  return session >= live_sessions.data() && session < live_sessions.data() + live_sessions.size();
}

void CloseCopy(std::atomic<int>& descriptor) {
  const int copy = descriptor.exchange(-1);
  if (copy >= 0) ::close(copy);
}

void InChild() {
  OpenDriverGateInChild();
  generation.fetch_add(1);
  for (LiveSession& session : live_sessions) {
    if (!session.is_claimed.load()) continue;
    CloseCopy(session.socket);
    CloseCopy(session.wakeup);
    CloseCopy(session.log);
    session.is_over.store(LiveSession::kProcessEnds);
    session.threads.store(0);
  }
}

// Writes the steps that were not written yet, and ends the background threads before the objects
// that they use are destroyed.
void AtExit() {
  for (LiveSession& session : live_sessions) {
    if (session.is_claimed.load()) session.is_over.store(LiveSession::kProcessEnds);
  }
  const Nanoseconds until = RealClock().Now() + kLiveSessionsTimeout;
  for (LiveSession& session : live_sessions) {
    if (session.is_claimed.load()) EndThreads(session, LiveSession::kProcessEnds, until);
  }
}

void Register() {
  if (is_registered.exchange(true)) return;
  // If this call fails, a child shares its parent's descriptors and may hang in a driver, and
  // background threads end without their last turn.
  static_cast<void>(::pthread_atfork(CloseDriverGate, OpenDriverGateInParent, InChild));
  static_cast<void>(std::atexit(AtExit));
}

}  // namespace

ListedDescriptor::~ListedDescriptor() {
  if (!descriptor_) return;
  // The entry is cleared before the descriptor is closed. Otherwise, a child would close another
  // descriptor with this number. The entry may already have the next descriptor.
  int listed = descriptor_.get();
  entry_->compare_exchange_strong(listed, -1);
  // One of the two calls fails, because it is for the other kind of descriptor.
  ::shutdown(descriptor_.get(), SHUT_RDWR);
  protocol::Unlock(descriptor_.get());
}

LiveSession* ClaimLiveSession() {
  Register();
  for (LiveSession& session : live_sessions) {
    bool expected = false;
    if (!session.is_claimed.compare_exchange_strong(expected, true)) continue;
    session.is_over.store(0);
    session.threads.store(0);
    return &session;
  }
  return new LiveSession;
}

void ReleaseLiveSession(LiveSession* session) {
  if (!IsListed(session)) {
    delete session;
    return;
  }
  session->is_claimed.store(false);
}

std::uint32_t ForkGeneration() { return generation.load(std::memory_order_relaxed); }

bool EndThreads(LiveSession& session, std::uint32_t reason, std::int64_t until) {
  RealClock clock;
  session.is_over.store(reason);
  WakeAll(session.is_over);
  std::uint32_t threads = session.threads.load();
  for (; threads != 0 && clock.Now() < until; threads = session.threads.load()) {
    clock.WaitWhile(session.threads, threads, until);
  }
  return threads == 0;
}

}  // namespace perseus::client
