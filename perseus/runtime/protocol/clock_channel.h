// The hot path from a training process to the agent: for every GPU of a lease a slot in shared
// memory that holds the clock wanted next. The latest value wins; nothing is queued.
//
// The agent makes the channel and passes two kinds of descriptors over its socket: the memory (a
// memfd, sealed so that the client cannot shrink it under the agent), and for each GPU an eventfd
// by which a sleeping agent is woken. Publishing is three atomic stores, and one write to
// the eventfd only if the agent sleeps.
//
// Trust: whatever the client writes, the agent reads values, never lengths or offsets, and checks
// each against the GPU's own list of clocks. A client can do no more than ask for wrong clocks of
// its own GPUs:
//  1. The size is sealed, so no access of the agent's is past the end (SIGBUS). A hole that the
//     client punches is a page of zeros at the next access.
//  2. What the agent counts (its answers, the number of GPUs) it keeps outside the memory.
//  3. The agent never reads the eventfd. O_NONBLOCK belongs to the open file that both sides share:
//     a client could clear it, take the count itself, and a read would block for good. The agent
//     watches the eventfd by an epoll instance of its own, edge-triggered, which every write wakes
//     and nobody else can empty.
//
// No wake-up is lost (Dekker's pattern). The publisher stores its request, then loads
// `agent_sleeps`; the agent stores `agent_sleeps`, then loads the request. All four are
// sequentially consistent, so in their one total order the later of the two stores comes before the
// other side's load: either the agent sees the request before it sleeps, or the publisher sees that
// the agent sleeps and writes the eventfd. With release and acquire alone both loads could be
// answered with old values, since a processor may pass a load ahead of its own earlier store (x86
// does). The agent's half of the bargain:
//
//   for (;;) {
//     channel.DrainWakeups(gpu);
//     <deal with channel.Latest(gpu)>
//     channel.Announce(gpu, kAboutToSleep);
//     if (channel.Latest(gpu).sequence is still the one dealt with) poll(channel.wakeup(gpu), …);
//     channel.Announce(gpu, kAwake);
//   }
//
// Thread safety: one publisher a slot at a time; the reader is one thread a slot. Both sides only
// load and store atomics. ClockPublisher's slots of several GPUs may be used by several threads.
//
// Why not a message on the socket: a send and a receive take two system calls and a scheduler's
// round trip on the training thread, and what the agent cannot keep up with would queue up.
// Why not a futex: its word would lie in memory that the client may scribble on, and the agent's
// thread has to wait for its own assignment, too; poll() waits for both.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"

namespace perseus::protocol {

// The slot's field ends here. Nobody's clock: what lies outside the field is published as this, for
// the agent to refuse.
inline constexpr int kHighestClockMhz = (1 << 24) - 1;

// What a client asks of one GPU. Frequency 0: back to what the lease found.
struct ClockRequest {
  std::uint32_t sequence = 0;    // Of this slot, from 1; wraps to 1. 0: nothing was asked yet.
  int sm_clock_mhz = 0;          // 0 to kHighestClockMhz.
  Nanoseconds requested_at = 0;  // Of the GPU's clock (device::DeviceList); 0: not told.
};

// What became of a request, for the client to read.
enum class ClockOutcome : std::uint32_t {
  kNone = 0,
  kAccepted = 1,  // The driver took it; `in effect` follows once it is read back.
  kInEffect = 2,
  kLimited = 3,  // Accepted, but power or temperature holds the GPU lower.
  kRefused = 4,  // Not one of the GPU's clocks.
  kFailed = 5,   // The driver did not take it.
};
struct ClockAnswer {
  std::uint32_t sequence = 0;  // Of the last request that was dealt with; 0 for none.
  int sm_clock_mhz = 0;        // The setting that the driver took last.
  ClockOutcome outcome = ClockOutcome::kNone;
  Nanoseconds applied_at = 0;  // When the driver's call returned, by the same clock.
};

// The memory as both sides see it: the header, then a slot a GPU. Public for the tests that
// scribble on it.
//
// A request or an answer is one word, so that a reader never sees a part of it without the rest:
//
//   63          32  31    30      24  23     0
//   sequence        turn  outcome     MHz          (a request's outcome is 0)
//
// Its time does not fit. `turn` flips with every word and says which of the two times belongs to
// it: the other one is free for the next word. A reader that finds the same word again after it
// read the time has the time of this word.
struct ClockSlot {
  // Written by the client.
  alignas(64) std::atomic<std::uint64_t> request;
  std::atomic<std::int64_t> requested_at[2];
  // Written by the agent.
  alignas(64) std::atomic<std::uint64_t> answer;
  std::atomic<std::int64_t> applied_at[2];
  std::atomic<std::uint32_t> agent_sleeps;  // 1: the next publisher has to write the eventfd.
};
inline constexpr std::uint32_t kClockChannelMagic = 0x70657273;  // "pers"
inline constexpr std::uint32_t kClockChannelVersion = 1;         // Of this layout.
inline constexpr int kMostChannelGpus = 64;
struct ClockChannelHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t gpu_count;
  // Written by the client whenever it publishes or beats; the lease lives as long as it moves.
  alignas(64) std::atomic<std::uint64_t> heartbeat;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(ClockSlot) == 128 && sizeof(ClockChannelHeader) == 128);

// The agent's end.
class ClockChannel {
 public:
  // Of `gpu_count` GPUs, 1 to 64. Fails (kSystem) if the machine has no memory or descriptors left.
  static Result<ClockChannel> Create(int gpu_count);
  ClockChannel(ClockChannel&&) noexcept;
  ClockChannel& operator=(ClockChannel&&) noexcept;
  ~ClockChannel();

  int gpu_count() const;
  // To send to the client: the memory first, then an eventfd a GPU.
  std::vector<int> descriptors() const;
  // To poll: readable after a publisher found the agent asleep. DrainWakeups empties it, and never
  // blocks; look at Latest() after it, not before.
  int wakeup(int gpu) const;
  void DrainWakeups(int gpu);

  // The latest request of the GPU, whether or not it was read before.
  ClockRequest Latest(int gpu) const;
  // Announces that the agent is about to poll(), or no longer does. After kAboutToSleep the caller
  // looks at Latest() once more before it sleeps: a request that came before the announcement
  // writes no eventfd.
  enum class Sleep { kAboutToSleep, kAwake };
  void Announce(int gpu, Sleep sleep);
  void Answer(int gpu, const ClockAnswer& answer);
  // Moves whenever the client publishes or beats.
  std::uint64_t heartbeat() const;

 private:
  struct Memory;
  explicit ClockChannel(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

// The client's end. All calls are safe to make from a training thread: no allocation, no lock, no
// waiting.
class ClockPublisher {
 public:
  // From the descriptors that came over the socket. Fails (kInput) if they are not a channel: not
  // sealed, not of the size that as many GPUs have, of another version, or with eventfds on which a
  // write could block or raise a signal.
  static Result<ClockPublisher> Attach(std::vector<FileDescriptor> descriptors);
  ClockPublisher(ClockPublisher&&) noexcept;
  ClockPublisher& operator=(ClockPublisher&&) noexcept;
  ~ClockPublisher();

  int gpu_count() const;
  // Asks for a clock and returns at once; the sequence number that the answer will name.
  std::uint32_t Publish(int gpu, int sm_clock_mhz, Nanoseconds requested_at = 0);
  // "Still here", for stretches without instructions.
  void Beat();
  ClockAnswer answer(int gpu) const;

 private:
  struct Memory;
  explicit ClockPublisher(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

}  // namespace perseus::protocol
