// The hot path from a training process to the agent. Shared memory has a slot for every GPU of a
// lease, with the next clock that the process requests. Only the latest request counts. Nothing is
// queued.
//
// The agent creates the channel and passes two kinds of descriptors over its socket: the memory (a
// memfd, sealed so that the client cannot shrink it), and an eventfd for each GPU, which wakes a
// sleeping agent. A request is three atomic stores, and a write to the eventfd only if the agent
// sleeps.
//
// Trust. The agent does not trust what the client writes. It reads values only, never lengths or
// offsets, and checks each value against the GPU's own list of clocks. So a client can only request
// wrong clocks of its own GPUs:
//  1. The size is sealed, so no access of the agent is beyond the end (SIGBUS). If the client
//     punches a hole, the next access finds a page of zeros.
//  2. The agent keeps its own counts (its answers, the number of GPUs) outside the memory.
//  3. The agent never reads the eventfd. O_NONBLOCK belongs to the open file, which both sides
//     share. So a client could clear the flag and read the count itself, and a read of the agent
//     would block forever. The agent watches the eventfd with its own edge-triggered epoll
//     instance. Every write wakes it, and no other process can consume the wake-up.
//
// No wake-up is lost (Dekker's pattern). The publisher stores its request, then loads
// `agent_sleeps`. The agent stores `agent_sleeps`, then loads the request. All four operations are
// sequentially consistent. In their single total order, the later store comes before the other
// side's load. So either the agent sees the request before it sleeps, or the publisher sees that
// the agent sleeps and writes the eventfd. Release and acquire alone are not enough: both loads
// could return old values, because a processor may execute a load before its own earlier store (x86
// does). The agent has to use this loop:
//
//   for (;;) {
//     channel.DrainWakeups(gpu);
//     <handle channel.Latest(gpu)>
//     channel.Announce(gpu, kAboutToSleep);
//     if (channel.Latest(gpu).sequence is still the handled one) poll(channel.wakeup(gpu), …);
//     channel.Announce(gpu, kAwake);
//   }
//
// The limit on changes. An operator may limit the clock changes per second of a node. The agent
// enforces the limit (gpu_worker.h), and counts the requests that wait for it in the GPU's slot. A
// request that waits has no answer until its turn comes. A later request may replace it earlier.
//
// Thread safety: each slot has one publishing thread and one reading thread at a time. Both sides
// only load and store atomics. Several threads may use ClockPublisher for different GPUs. Any
// thread may read the count.
//
// Rejected alternatives:
//  - A message on the socket. A send and a receive are two system calls and a round trip of the
//    scheduler on the training thread, and messages would queue up if the agent is slow.
//  - A futex. Its word would be in memory that the client may overwrite. Also, the agent's thread
//    has to wait for commands of the agent at the same time, and poll() waits for both.
//  - The limit in the channel, so that the client skips the changes of its plan that save least.
//    That saves more than waiting does, but needs much code in every training process. A plan that
//    was made for the limit loses less than both.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"

namespace perseus::protocol {

// The highest clock that a slot can hold. No GPU has it. A value outside of the range is published
// as this one, which the agent refuses.
inline constexpr int kHighestClockMhz = (1 << 24) - 1;

// A client's request for one GPU. Frequency 0 means: return to the clock before the lease.
struct ClockRequest {
  std::uint32_t sequence = 0;    // Counts this slot's requests: from 1, wraps to 1. 0: none yet.
  int sm_clock_mhz = 0;          // 0 to kHighestClockMhz.
  Nanoseconds requested_at = 0;  // By the GPU's clock (device::DeviceList). 0: unknown.
};

// The agent's answer to a request.
enum class ClockOutcome : std::uint32_t {
  kNone = 0,
  kAccepted = 1,  // The driver accepted it. kInEffect follows when it is read back.
  kInEffect = 2,
  // Accepted, but something keeps the GPU below it: temperature, another program, a fault. An older
  // agent also reports the power limit in this way.
  kLimited = 3,
  kRefused = 4,       // Not one of the GPU's clocks.
  kFailed = 5,        // The driver did not accept it.
  kAtPowerLimit = 6,  // Accepted, but the power limit alone keeps the GPU below it.
};
struct ClockAnswer {
  std::uint32_t sequence = 0;  // The last request that was handled. 0: none.
  int sm_clock_mhz = 0;        // The last setting that the driver accepted.
  ClockOutcome outcome = ClockOutcome::kNone;
  Nanoseconds applied_at = 0;  // When the driver's call returned, by the GPU's clock.
};

// The layout of the memory: the header, then a slot for each GPU. It is public for tests that
// overwrite it.
//
// A request or an answer is one word, so a reader never sees only a part of it:
//
//   63          32  31    30      24  23     0
//   sequence        turn  outcome     MHz          (a request's outcome is 0)
//
// The time does not fit into the word. `turn` flips with every word and says which of the two times
// belongs to it. The other one is free for the next word. A reader loads the word, the time, and
// the word again. If the word is the same, the time belongs to it.
struct ClockSlot {
  // Written by the client.
  alignas(64) std::atomic<std::uint64_t> request;
  std::atomic<std::int64_t> requested_at[2];
  // Written by the agent.
  alignas(64) std::atomic<std::uint64_t> answer;
  std::atomic<std::int64_t> applied_at[2];
  std::atomic<std::uint32_t> agent_sleeps;  // 1: the next publisher has to write to the eventfd.
  // Requests that waited for the limit on changes. Version 0.1.0 reads a limit from the 8 bytes
  // after it, which stay 0: no limit.
  std::atomic<std::uint32_t> postponed;
};
inline constexpr std::uint32_t kClockChannelMagic = 0x70657273;  // "pers"
inline constexpr std::uint32_t kClockChannelVersion = 1;         // The version of this layout.
inline constexpr int kMostChannelGpus = 64;
struct ClockChannelHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t gpu_count;
  // The client changes the value when it publishes or beats. The lease lives while it changes.
  alignas(64) std::atomic<std::uint64_t> heartbeat;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(ClockSlot) == 128 && sizeof(ClockChannelHeader) == 128);

// The agent's end.
class ClockChannel {
 public:
  // Creates a channel for 1 to 64 GPUs. Fails (kSystem) if no memory or descriptors are left.
  static Result<ClockChannel> Create(int gpu_count);
  ClockChannel(ClockChannel&&) noexcept;
  ClockChannel& operator=(ClockChannel&&) noexcept;
  ~ClockChannel();

  int gpu_count() const;
  // The descriptors for the client: the memory first, then an eventfd for each GPU.
  std::vector<int> descriptors() const;
  // A descriptor for poll(). It is readable after a publisher has found the agent asleep.
  // DrainWakeups consumes the wake-ups and never blocks. Call Latest() after it, not before.
  int wakeup(int gpu) const;
  void DrainWakeups(int gpu);

  // The latest request for the GPU, even if it was returned before.
  ClockRequest Latest(int gpu) const;
  // Announces that the agent is about to call poll(), or no longer does. After kAboutToSleep, the
  // caller has to check Latest() once more before it sleeps: a request from before the announcement
  // writes no eventfd.
  enum class Sleep { kAboutToSleep, kAwake };
  void Announce(int gpu, Sleep sleep);
  void Answer(int gpu, const ClockAnswer& answer);
  // How many requests have waited for the limit on changes.
  void SetPostponed(int gpu, std::uint32_t count);
  // The value changes whenever the client publishes or beats.
  std::uint64_t heartbeat() const;

 private:
  struct Memory;
  explicit ClockChannel(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

// The client's end. A training thread can safely make all calls except Attach: they allocate
// nothing, take no lock and do not wait.
class ClockPublisher {
 public:
  // Attaches to the channel of these descriptors, from the socket. Fails (kInput) if they are not a
  // valid channel: the memory is not sealed, has the wrong size or another version, or a write to
  // an eventfd could block or raise a signal.
  static Result<ClockPublisher> Attach(std::vector<FileDescriptor> descriptors);
  ClockPublisher(ClockPublisher&&) noexcept;
  ClockPublisher& operator=(ClockPublisher&&) noexcept;
  ~ClockPublisher();

  int gpu_count() const;
  // Requests a clock and returns at once. The answer has the returned sequence number.
  std::uint32_t Publish(int gpu, int sm_clock_mhz, Nanoseconds requested_at = 0);
  // Keeps the lease alive while no clocks are requested.
  void Beat();
  ClockAnswer answer(int gpu) const;
  // How many requests have waited for the agent's limit on changes. It wraps.
  std::uint32_t postponed(int gpu) const;

 private:
  struct Memory;
  explicit ClockPublisher(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

}  // namespace perseus::protocol
