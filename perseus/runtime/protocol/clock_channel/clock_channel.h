// The hot path from a training process to the agent. Shared memory has a slot for every GPU of a
// lease. The slot contains the next clock that the process requests. Only the latest request
// counts. Nothing is queued.
//
// The agent creates the channel, and passes two kinds of descriptors over its socket. The first is
// the memory: a memfd, which is sealed so that the client cannot shrink it. The others are one
// eventfd for each GPU, which wakes a sleeping agent. A request is three atomic stores. Only if the
// agent sleeps, a request also writes to the eventfd.
//
// Trust. The agent does not trust what the client writes. It reads only values, never lengths or
// offsets, and checks each value against the GPU's own list of clocks. So a client can only request
// wrong clocks of its own GPUs:
//  1. The size of the memory is sealed, so no access of the agent is beyond the end (SIGBUS). If
//     the client punches a hole into the memory, the next access finds a page of zeros.
//  2. The agent keeps its own values outside the memory: its answers, and the number of GPUs.
//  3. The agent never reads the eventfd. O_NONBLOCK belongs to the open file, which both sides
//     share. So a client could clear the flag and read the count itself. A read of the agent would
//     then block forever. So the agent watches the eventfd with its own edge-triggered epoll
//     instance. Every write wakes the agent, and no other process can consume the wake-up.
//
// No wake-up is lost (Dekker's pattern). The publisher stores its request, then loads
// `agent_sleeps`. The agent stores `agent_sleeps`, then loads the request. All four operations are
// sequentially consistent, so they have a single total order. In this order, the later of the two
// stores comes before the load of the other side. So there are two cases. Either the agent sees the
// request before it sleeps, or the publisher sees that the agent sleeps and writes the eventfd.
// Release and acquire alone are not enough. Both loads could then return old values, because a
// processor may execute a load before its own earlier store (x86 does). The agent has to use this
// loop:
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
// enforces the limit (gpu_worker.h). It counts, in the GPU's slot, the requests that wait because
// of the limit. A request that waits has no answer until the limit permits it. Before that, a later
// request may replace it.
//
// Thread safety: each slot has one publishing thread and one reading thread at a time. Both sides
// only load and store atomics. Several threads may use ClockPublisher for different GPUs. Any
// thread may read the count.
//
// Rejected alternatives:
//  - A message on the socket. The training thread would make two system calls, a send and a
//    receive, and wait for a round trip of the scheduler. Messages would queue up if the agent is
//    slow.
//  - A futex. Its word would be in memory that the client may overwrite. Also, the agent's thread
//    has to wait for commands of the agent at the same time, and poll() waits for both.
//  - The limit in the channel, so that the client skips the changes of its plan that save least.
//    Skipping saves more than waiting does, but needs much code in every training process. A plan
//    that was made for the limit loses less than both.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"

namespace perseus::protocol {

// The highest clock that a slot can hold. No GPU has this clock. If a client requests a value
// outside of the range, this clock is published instead, and the agent refuses it.
inline constexpr int kHighestClockMhz = (1 << 24) - 1;

// A client's request for one GPU. Frequency 0: return to the clock before the lease.
struct ClockRequest {
  // The number of the request in this slot: from 1, and after the highest number again 1. 0: no
  // request yet.
  std::uint32_t sequence = 0;
  int sm_clock_mhz = 0;          // 0 to kHighestClockMhz.
  Nanoseconds requested_at = 0;  // On the GPU's clock (device::DeviceList). 0: unknown.
};

// The agent's answer to a request.
enum class ClockOutcome : std::uint32_t {
  kNone = 0,
  // The driver accepted the clock. kInEffect follows when a reading confirms the clock.
  kAccepted = 1,
  kInEffect = 2,
  // Accepted, but something keeps the GPU below the clock: temperature, another program, a fault.
  // An older agent also uses this value for the power limit.
  kLimited = 3,
  kRefused = 4,       // The GPU does not have this clock.
  kFailed = 5,        // The driver did not accept the clock.
  kAtPowerLimit = 6,  // Accepted, but the power limit alone keeps the GPU below the clock.
};
struct ClockAnswer {
  std::uint32_t sequence = 0;  // The last request that the agent handled. 0: none.
  int sm_clock_mhz = 0;        // The last setting that the driver accepted.
  ClockOutcome outcome = ClockOutcome::kNone;
  Nanoseconds applied_at = 0;  // The time on the GPU's clock at which the driver's call returned.
};

// The layout of the memory: the header, then a slot for each GPU. The layout is public for tests
// that overwrite the memory.
//
// A request or an answer is one word, so a reader never sees only a part of a request or an answer:
//
//   63          32  31    30      24  23     0
//   sequence        turn  outcome     MHz          (a request's outcome is 0)
//
// The time does not fit into the word. `turn` flips with every word, and says which of the two
// times belongs to the word. The other time is free for the next word. A reader loads the word, the
// time, and the word again. If both loads of the word are equal, the time belongs to the word.
struct ClockSlot {
  // Written by the client.
  alignas(64) std::atomic<std::uint64_t> request;
  std::atomic<std::int64_t> requested_at[2];
  // Written by the agent.
  alignas(64) std::atomic<std::uint64_t> answer;
  std::atomic<std::int64_t> applied_at[2];
  std::atomic<std::uint32_t> agent_sleeps;  // 1: the next publisher has to write to the eventfd.
  // The number of requests that waited because of the limit on changes. Version 0.1.0 reads a limit
  // from the 8 bytes after this member. These bytes stay 0: no limit.
  std::atomic<std::uint32_t> postponed;
};
inline constexpr std::uint32_t kClockChannelMagic = 0x70657273;  // "pers"
inline constexpr std::uint32_t kClockChannelVersion = 1;         // The version of this layout.
inline constexpr int kMostChannelGpus = 64;
struct ClockChannelHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t gpu_count;
  // The client changes the value whenever it publishes a request or calls Beat(). The lease lives
  // as long as the value changes.
  alignas(64) std::atomic<std::uint64_t> heartbeat;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(ClockSlot) == 128 && sizeof(ClockChannelHeader) == 128);

// The agent's end of the channel.
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
  // A descriptor for poll(). It becomes readable if a publisher finds that the agent sleeps.
  // DrainWakeups consumes the wake-ups and never blocks. Call Latest() after DrainWakeups, not
  // before.
  int wakeup(int gpu) const;
  void DrainWakeups(int gpu);

  // Returns the latest request for the GPU, also if an earlier call returned it.
  ClockRequest Latest(int gpu) const;
  // Announces that the agent is about to call poll(), or no longer waits in poll(). After
  // kAboutToSleep, the caller has to check Latest() once more before it sleeps, because a request
  // from before the announcement writes no eventfd.
  enum class Sleep { kAboutToSleep, kAwake };
  void Announce(int gpu, Sleep sleep);
  void Answer(int gpu, const ClockAnswer& answer);
  // Sets how many requests have waited because of the limit on changes.
  void SetPostponed(int gpu, std::uint32_t count);
  // The value changes whenever the client publishes a request or calls Beat().
  std::uint64_t heartbeat() const;

 private:
  struct Memory;
  explicit ClockChannel(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

// The client's end of the channel. A training thread can safely make all calls except Attach. These
// calls allocate nothing, take no lock and do not wait.
class ClockPublisher {
 public:
  // Attaches to the channel that these descriptors describe. The descriptors come from the socket.
  // Fails (kInput) if they are not a valid channel. Reasons: the memory is not sealed, the memory
  // has the wrong size or another version, or a write to an eventfd could block or raise a signal.
  static Result<ClockPublisher> Attach(std::vector<FileDescriptor> descriptors);
  ClockPublisher(ClockPublisher&&) noexcept;
  ClockPublisher& operator=(ClockPublisher&&) noexcept;
  ~ClockPublisher();

  int gpu_count() const;
  // Requests a clock and returns at once. The answer to this request has the returned sequence
  // number.
  std::uint32_t Publish(int gpu, int sm_clock_mhz, Nanoseconds requested_at = 0);
  // Keeps the lease alive while no clocks are requested.
  void Beat();
  ClockAnswer answer(int gpu) const;
  // Returns how many requests have waited because of the agent's limit on changes. The count starts
  // at 0 again after the highest value.
  std::uint32_t postponed(int gpu) const;

 private:
  struct Memory;
  explicit ClockPublisher(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

}  // namespace perseus::protocol
