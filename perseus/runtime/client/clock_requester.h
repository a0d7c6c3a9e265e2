// Requests clocks from the agent, from any thread: the training thread, the thread that watches
// CUDA streams, or the background thread while no step runs.
//
// No call waits. If another thread is in a request, the call does nothing. The next instruction
// finds that the requested clock is not the wanted one, and requests it then.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/runtime/client/ring.h"
#include "perseus/runtime/protocol/clock_channel/clock_channel.h"

namespace perseus::client {

// The lease of one GPU.
struct Lease {
  std::string id;
  std::vector<int> sm_clocks_mhz;      // Ascending.
  protocol::ClockPublisher publisher;  // Publishes for this GPU only.
};

struct PublishedClock {
  Nanoseconds requested = 0;
  std::uint32_t sequence = 0;
  int frequency_mhz = 0;
};

class ClockRequester {
 public:
  ClockRequester() : published_(kMostPublished) {}

  // ---- Any thread ----

  // Requests this clock, or the nearest faster one that the GPU has, unless it was the last
  // request. 0: the default clock. False if another thread is in a request.
  bool TryRequest(int frequency_mhz, Nanoseconds now);
  // The clock that would be published. `frequency_mhz` itself if another thread is in a request.
  int ClockFor(int frequency_mhz);
  // The last wanted clock, for which TryRequest would do nothing. 0 without a lease.
  int wanted_mhz() const { return wanted_.load(std::memory_order_relaxed); }
  // The clock that was published for it.
  int published_mhz() const { return published_mhz_.load(std::memory_order_relaxed); }
  bool may_set_clocks() const { return may_set_.load(std::memory_order_relaxed); }
  // The last request of this lease. 0: none.
  std::uint32_t sequence() const { return sequence_.load(std::memory_order_acquire); }
  std::uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  // The first wanted clock that the GPU does not have; 0: none.
  int lacking_mhz() const { return lacking_mhz_.load(std::memory_order_relaxed); }
  // Increases when the last request is forgotten: with a new lease, or because no step ran.
  std::uint32_t resets() const { return resets_.load(std::memory_order_relaxed); }

  // ---- The background thread ----

  // Replaces the lease; null: no lease. Returns the previous lease, which no thread uses any more.
  std::unique_ptr<Lease> UseLease(std::unique_ptr<Lease> lease);
  // Waits until no other thread is in a request. Then requests the default clock, unless a step has
  // begun.
  void Rest(const std::atomic<bool>& is_in_step, Nanoseconds now);
  void Beat();
  // The answer to the last request; sequence 0: none.
  protocol::ClockAnswer Answer() const;
  // The lease; null without one.
  const Lease* lease() const { return lease_.get(); }
  Ring<PublishedClock>& published() { return published_; }

 private:
  static constexpr std::size_t kMostPublished = 4096;

  void Publish(int frequency_mhz, Nanoseconds now);
  void Lock();
  void Unlock() { is_busy_.clear(std::memory_order_release); }

  std::atomic_flag is_busy_ = ATOMIC_FLAG_INIT;  // Guards the lease while a thread publishes.
  std::unique_ptr<Lease> lease_;    // Only the background thread changes it, while it is busy.
  Ring<PublishedClock> published_;  // Only the busy thread pushes.
  std::atomic<int> wanted_ = 0;
  std::atomic<int> published_mhz_ = 0;
  std::atomic<int> lacking_mhz_ = 0;
  std::atomic<bool> may_set_ = false;
  std::atomic<std::uint32_t> sequence_ = 0;
  std::atomic<std::uint64_t> requests_ = 0;
  std::atomic<std::uint32_t> resets_ = 0;
};

}  // namespace perseus::client
