#include "perseus/runtime/client/clock_requester.h"

#include <thread>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/runtime/client/clock_table.h"

namespace perseus::client {
bool ClockRequester::TryRequest(int frequency_mhz, Nanoseconds now) {
  // Rest explains why this order is necessary.
  if (!may_set_clocks() || frequency_mhz == wanted_.load(std::memory_order_seq_cst)) return true;
  if (is_busy_.test_and_set(std::memory_order_acquire)) return false;
  if (lease_ != nullptr) Publish(frequency_mhz, now);
  Unlock();
  return true;
}

int ClockRequester::ClockFor(int frequency_mhz) {
  if (is_busy_.test_and_set(std::memory_order_acquire)) return frequency_mhz;
  const int clock = lease_ == nullptr ? 0 : NearestFaster(lease_->sm_clocks_mhz, frequency_mhz);
  Unlock();
  return clock;
}

void ClockRequester::Publish(int frequency_mhz, Nanoseconds now) {
  const int clock = NearestFaster(lease_->sm_clocks_mhz, frequency_mhz);
  wanted_.store(frequency_mhz, std::memory_order_relaxed);
  if (clock != frequency_mhz && lacking_mhz() == 0) lacking_mhz_.store(frequency_mhz);
  // Two wanted clocks may map to the same available clock.
  if (clock == published_mhz()) return;
  published_mhz_.store(clock, std::memory_order_relaxed);
  // Counts first: who sees the clock of a request also sees its count.
  requests_.store(requests_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const std::uint32_t sequence = lease_->publisher.Publish(0, clock, now);
  sequence_.store(sequence, std::memory_order_release);
  // A full ring loses the record of the request, not the request.
  static_cast<void>(published_.Push({now, sequence, clock}));
}

void ClockRequester::Lock() {
  // The holder releases it within a microsecond, unless it is preempted.
  while (is_busy_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
}

std::unique_ptr<Lease> ClockRequester::UseLease(std::unique_ptr<Lease> lease) {
  Lock();
  std::swap(lease, lease_);
  wanted_.store(0, std::memory_order_relaxed);
  published_mhz_.store(0, std::memory_order_relaxed);
  sequence_.store(0, std::memory_order_release);
  may_set_.store(lease_ != nullptr, std::memory_order_relaxed);
  resets_.fetch_add(1, std::memory_order_relaxed);
  Unlock();
  return lease;
}

void ClockRequester::Rest(const std::atomic<bool>& is_in_step, Nanoseconds now) {
  if (wanted_mhz() == 0) return;
  Lock();
  // A step that begins first sets is_in_step, and then reads wanted_. This function first writes
  // wanted_, and then reads is_in_step. So either this function sees the step, or the step sees
  // that 0 is wanted, and requests its clock again.
  const int before = wanted_.exchange(0, std::memory_order_seq_cst);
  if (is_in_step.load(std::memory_order_seq_cst) || lease_ == nullptr) {
    wanted_.store(before, std::memory_order_seq_cst);
  } else {
    Publish(0, now);
    resets_.fetch_add(1, std::memory_order_relaxed);
  }
  Unlock();
}

void ClockRequester::Beat() {
  if (lease_ != nullptr) lease_->publisher.Beat();
}

protocol::ClockAnswer ClockRequester::Answer() const {
  return lease_ != nullptr ? lease_->publisher.answer(0) : protocol::ClockAnswer{};
}

}  // namespace perseus::client
