// Asking the agent for clocks, from whichever thread's turn it is: the training thread, a host
// function on a CUDA stream, or the background thread when nobody trains.
//
// Nobody ever waits: who finds another asking just then does not ask, sees at the next instruction
// that what was asked is not what it wants, and asks then.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/runtime/client/ring.h"
#include "perseus/runtime/protocol/clock_channel.h"

namespace perseus::client {

// What the agent lent.
struct Lease {
  std::string id;
  std::vector<int> sm_clocks_mhz;      // Ascending.
  protocol::ClockPublisher publisher;  // Of this one GPU.
};

struct PublishedClock {
  Nanoseconds requested = 0;  // CLOCK_MONOTONIC.
  std::uint32_t sequence = 0;
  int frequency_mhz = 0;
};

class ClockRequester {
 public:
  ClockRequester() : published_(kMostRequests) {}

  // ---- Any thread ----

  // Asks for this clock, or the nearest faster one that there is, unless it was asked for last.
  // 0: what the GPU had before. False if somebody else is at it.
  bool TryRequest(int frequency_mhz);
  // What would be published for it; as it is where somebody else is asking just now.
  int ClockFor(int frequency_mhz);
  // As wanted; what TryRequest would do nothing for. 0 without a lease.
  int wanted_mhz() const { return wanted_.load(std::memory_order_relaxed); }
  // What was published for it.
  int published_mhz() const { return published_mhz_.load(std::memory_order_relaxed); }
  bool may_set_clocks() const { return may_set_.load(std::memory_order_relaxed); }
  std::uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  // The first clock that was wanted and that the GPU lacks; 0 for none.
  int lacking_mhz() const { return lacking_mhz_.load(std::memory_order_relaxed); }
  // Moves when what was asked for was forgotten: by a new lease, or since nobody trained.
  std::uint32_t resets() const { return resets_.load(std::memory_order_relaxed); }

  // ---- The background thread ----

  // Null: none any more. The one before, which nobody uses any longer.
  std::unique_ptr<Lease> UseLease(std::unique_ptr<Lease> lease);
  // Back to what the GPU had before, if `is_idle` still holds once nobody else can ask.
  void Rest(const std::atomic<bool>& is_in_step);
  void Beat();
  // What became of the last request; sequence 0 for none.
  protocol::ClockAnswer Answer() const;
  // The lease; null without one.
  const Lease* lease() const { return lease_.get(); }
  Ring<PublishedClock>& published() { return published_; }

 private:
  static constexpr std::size_t kMostPublished = 4096;

  void Publish(int frequency_mhz);
  void Lock();
  void Unlock() { is_busy_.clear(std::memory_order_release); }

  std::atomic_flag is_busy_ = ATOMIC_FLAG_INIT;  // Guards the lease for those who publish.
  std::unique_ptr<Lease> lease_;    // Changed by the background thread alone, and then when busy.
  Ring<PublishedClock> published_;  // Pushed when busy, so by one at a time.
  std::atomic<int> wanted_ = 0;
  std::atomic<int> published_mhz_ = 0;
  std::atomic<int> lacking_mhz_ = 0;
  std::atomic<bool> may_set_ = false;
  std::atomic<std::uint64_t> requests_ = 0;
  std::atomic<std::uint32_t> resets_ = 0;
};

}  // namespace perseus::client
