#include "perseus/runtime/protocol/clock_channel/clock_channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>
#include <random>
#include <thread>

#include "tests/support/results.h"

namespace perseus::protocol {
namespace {

using ::testing::HasSubstr;

// Returns the client's side: its own descriptors of the same files.
std::vector<FileDescriptor> Passed(const ClockChannel& channel) {
  std::vector<FileDescriptor> passed;
  for (const int fd : channel.descriptors()) {
    passed.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  }
  return passed;
}

bool IsReadable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return ::poll(&wanted, 1, 0) == 1;
}

// Both ends in one process.
struct Ends {
  ClockChannel agent;
  ClockPublisher client;
};
Ends Connected(int gpu_count) {
  auto agent = ClockChannel::Create(gpu_count);
  auto client = ClockPublisher::Attach(Passed(*agent));
  return {std::move(*agent), std::move(*client)};
}

// The memory as words that a client may overwrite.
class Scribble {
 public:
  explicit Scribble(const ClockChannel& channel)
      : size_(sizeof(ClockChannelHeader) +
              static_cast<std::size_t>(channel.gpu_count()) * sizeof(ClockSlot)),
        address_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED,
                        channel.descriptors()[0], 0)) {}
  Scribble(const Scribble&) = delete;
  Scribble& operator=(const Scribble&) = delete;
  ~Scribble() { ::munmap(address_, size_); }

  ClockChannelHeader& header() const { return *static_cast<ClockChannelHeader*>(address_); }
  ClockSlot& slot(int gpu) const { return reinterpret_cast<ClockSlot*>(&header() + 1)[gpu]; }

 private:
  std::size_t size_;
  void* address_;
};

// ---- The count of requests that waited ----

TEST(ClockChannel, EachGpuHasItsCountOfRequestsThatWaited) {
  Ends ends = Connected(2);
  ends.agent.SetPostponed(1, 7);
  EXPECT_EQ(ends.client.postponed(0), 0U);
  EXPECT_EQ(ends.client.postponed(1), 7U);
}

// ---- Requests and answers ----

TEST(ClockChannel, TheLatestRequestOfEachGpuIsSeen) {
  Ends ends = Connected(2);
  EXPECT_EQ(ends.agent.gpu_count(), 2);
  EXPECT_EQ(ends.client.gpu_count(), 2);
  EXPECT_EQ(ends.agent.Latest(0).sequence, 0U);

  EXPECT_EQ(ends.client.Publish(0, 1410, 17), 1U);
  EXPECT_EQ(ends.client.Publish(0, 1200, 18), 2U);
  EXPECT_EQ(ends.client.Publish(1, 0, 19), 1U);

  const ClockRequest first = ends.agent.Latest(0);
  EXPECT_EQ(first.sequence, 2U);
  EXPECT_EQ(first.sm_clock_mhz, 1200);
  EXPECT_EQ(first.requested_at, 18);
  EXPECT_EQ(ends.agent.Latest(0).requested_at, 18);  // Reading does not consume the request.
  EXPECT_EQ(ends.agent.Latest(1).sequence, 1U);
  EXPECT_EQ(ends.agent.Latest(1).sm_clock_mhz, 0);
  EXPECT_EQ(ends.agent.Latest(1).requested_at, 19);
}

TEST(ClockChannel, ClocksOutOfRangeBecomeTheHighestClock) {
  Ends ends = Connected(1);
  for (const int mhz : {-1, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    ends.client.Publish(0, mhz);
    EXPECT_EQ(ends.agent.Latest(0).sm_clock_mhz, kHighestClockMhz) << mhz;
  }
}

TEST(ClockChannel, TheClientReadsTheAnswerUnchanged) {
  Ends ends = Connected(2);
  EXPECT_EQ(ends.client.answer(1).sequence, 0U);
  EXPECT_EQ(ends.client.answer(1).outcome, ClockOutcome::kNone);
  for (const ClockOutcome outcome :
       {ClockOutcome::kAccepted, ClockOutcome::kInEffect, ClockOutcome::kLimited,
        ClockOutcome::kAtPowerLimit, ClockOutcome::kRefused, ClockOutcome::kFailed}) {
    const auto number = static_cast<std::uint32_t>(outcome);
    ends.agent.Answer(1, {.sequence = 0xFFFF'FFF0U + number,
                          .sm_clock_mhz = 1200,
                          .outcome = outcome,
                          .applied_at = 1'000 + number});
    const ClockAnswer answer = ends.client.answer(1);
    EXPECT_EQ(answer.sequence, 0xFFFF'FFF0U + number);
    EXPECT_EQ(answer.sm_clock_mhz, 1200);
    EXPECT_EQ(answer.outcome, outcome);
    EXPECT_EQ(answer.applied_at, 1'000 + number);
  }
  EXPECT_EQ(ends.client.answer(0).sequence, 0U);
}

TEST(ClockChannel, TheHeartbeatMovesWithEveryRequestAndBeat) {
  Ends ends = Connected(1);
  const std::uint64_t before = ends.agent.heartbeat();
  ends.client.Publish(0, 1410);
  const std::uint64_t published = ends.agent.heartbeat();
  EXPECT_NE(published, before);
  ends.client.Beat();
  EXPECT_NE(ends.agent.heartbeat(), published);
}

// Each word is stored with its own time, so a mismatch reveals a torn read.
TEST(ClockChannel, AWordAndItsTimeBelongTogether) {
  Ends ends = Connected(1);
  constexpr std::uint32_t kAnswers = 200'000;
  std::thread agent([&] {
    for (std::uint32_t i = 1; i <= kAnswers; ++i) {
      ends.agent.Answer(0, {i, static_cast<int>(i % 2000), ClockOutcome::kAccepted, i});
    }
  });
  int torn = 0;
  for (ClockAnswer answer; answer.sequence != kAnswers; answer = ends.client.answer(0)) {
    if (answer.sm_clock_mhz != static_cast<int>(answer.sequence % 2000)) ++torn;
    // If this thread was interrupted, new words may overtake all four attempts. The time is then
    // the time of a later word.
    if (answer.applied_at < Nanoseconds{answer.sequence}) ++torn;
  }
  agent.join();
  EXPECT_EQ(torn, 0);
}

// ---- Waking the agent ----

TEST(ClockChannel, OnlyASleepingAgentIsWoken) {
  Ends ends = Connected(2);
  ends.client.Publish(0, 1410);
  EXPECT_FALSE(IsReadable(ends.agent.wakeup(0)));

  ends.agent.Announce(0, ClockChannel::Sleep::kAboutToSleep);
  EXPECT_FALSE(IsReadable(ends.agent.wakeup(0)));
  ends.client.Publish(1, 1410);
  EXPECT_FALSE(IsReadable(ends.agent.wakeup(0)));
  ends.client.Publish(0, 1410);
  EXPECT_TRUE(IsReadable(ends.agent.wakeup(0)));
  EXPECT_FALSE(IsReadable(ends.agent.wakeup(1)));
  ends.agent.DrainWakeups(0);
  EXPECT_FALSE(IsReadable(ends.agent.wakeup(0)));

  ends.client.Publish(
      0, 1200);  // Every request that finds the agent asleep wakes it, not only the first.
  ends.client.Publish(0, 1410);
  EXPECT_TRUE(IsReadable(ends.agent.wakeup(0)));
  ends.agent.DrainWakeups(0);
  EXPECT_FALSE(IsReadable(ends.agent.wakeup(0)));
  ends.agent.DrainWakeups(0);

  ends.agent.Announce(0, ClockChannel::Sleep::kAwake);
  ends.client.Publish(0, 1200);
  EXPECT_FALSE(IsReadable(ends.agent.wakeup(0)));
}

// Acts as the agent in the header's comment, until it has served request `last`. Counts how often
// it slept, and how often only the timeout ended the sleep. After such a timeout, a wake-up was
// lost, and the agent does not sleep again.
struct Naps {
  int slept = 0;
  int lost = 0;
};
Naps ServeUntil(ClockChannel& channel, std::uint32_t last) {
  constexpr int kTimeoutMs = 20'000;  // Far longer than any delay of the scheduler.
  Naps naps;
  std::uint32_t dealt_with = 0;
  while (dealt_with != last) {
    channel.DrainWakeups(0);
    dealt_with = channel.Latest(0).sequence;
    channel.Answer(0, {dealt_with, 0, ClockOutcome::kAccepted, 0});
    channel.Announce(0, ClockChannel::Sleep::kAboutToSleep);
    if (dealt_with != last && naps.lost == 0 && channel.Latest(0).sequence == dealt_with) {
      pollfd wanted{channel.wakeup(0), POLLIN, 0};
      ++naps.slept;
      if (::poll(&wanted, 1, kTimeoutMs) == 0) ++naps.lost;
    }
    channel.Announce(0, ClockChannel::Sleep::kAwake);
  }
  return naps;
}

// Publishes two requests at a time, and waits for the answer to the second. Only the wake-up of the
// second request can bring it to the agent. The first request wakes the agent. The second comes at
// any moment while the agent is about to sleep again. If this function waited for the answer to the
// first request, the second would always come too late.
void PublishPairs(ClockPublisher& publisher, std::uint32_t count) {
  std::mt19937 random(1);
  for (std::uint32_t sequence = 0; sequence < count;) {
    publisher.Publish(0, 1410);
    for (auto pause = random() % 8192; pause > 0; --pause) (void)publisher.answer(0);
    sequence = publisher.Publish(0, 1200);
    while (publisher.answer(0).sequence != sequence) std::this_thread::yield();
  }
}

constexpr std::uint32_t kRequests = 100'000;

TEST(ClockChannel, NoWakeUpIsLostBetweenThreads) {
  Ends ends = Connected(1);
  std::thread publisher([&] { PublishPairs(ends.client, kRequests); });
  const Naps naps = ServeUntil(ends.agent, kRequests);
  publisher.join();
  EXPECT_EQ(naps.lost, 0);
  EXPECT_GT(naps.slept, 0);
  EXPECT_EQ(ends.agent.Latest(0).sequence, kRequests);
}

TEST(ClockChannel, NoWakeUpIsLostBetweenProcesses) {
  auto channel = ValueOf(ClockChannel::Create(1));
  const pid_t child = ::fork();
  if (child == 0) {
    auto publisher = ClockPublisher::Attach(Passed(channel));
    if (publisher) PublishPairs(*publisher, kRequests);
    ::_exit(publisher ? 0 : 1);
  }
  const Naps naps = ServeUntil(channel, kRequests);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(naps.lost, 0);
  EXPECT_GT(naps.slept, 0);
  EXPECT_EQ(status, 0);
}

// ---- Hostile clients ----

TEST(ClockChannel, AClientCannotMakeTheAgentBlock) {
  Ends ends = Connected(1);
  const int event = ends.agent.descriptors()[1];
  ends.agent.Announce(0, ClockChannel::Sleep::kAboutToSleep);
  ends.client.Publish(0, 1410);
  ASSERT_TRUE(IsReadable(ends.agent.wakeup(0)));
  // O_NONBLOCK belongs to the open file, so the client can also clear it for the agent. The client
  // can then read the count before the agent does.
  ASSERT_EQ(::fcntl(event, F_SETFL, ::fcntl(event, F_GETFL) & ~O_NONBLOCK), 0);
  eventfd_t count = 0;
  ASSERT_EQ(::eventfd_read(event, &count), 0);
  ends.agent.DrainWakeups(0);  // This call must return.
  EXPECT_FALSE(IsReadable(ends.agent.wakeup(0)));
  ends.client.Publish(0, 1200);
  EXPECT_TRUE(IsReadable(ends.agent.wakeup(0)));
}

TEST(ClockChannel, AClientCannotTakeTheMemoryAway) {
  Ends ends = Connected(1);
  const int memory = ends.agent.descriptors()[0];
  EXPECT_NE(::ftruncate(memory, 0), 0);
  EXPECT_NE(::ftruncate(memory, 1 << 20), 0);
  EXPECT_NE(::fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE), 0);
  // A hole reads as zeros, which mean: no request.
  ends.client.Publish(0, 1410);
  ASSERT_EQ(::fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_EQ(ends.agent.Latest(0).sequence, 0U);
  ends.agent.Answer(0, {1, 1410, ClockOutcome::kAccepted, 1});
  EXPECT_EQ(ends.client.answer(0).sequence, 1U);
}

TEST(ClockChannel, TheAgentKeepsItsOwnCountWhateverAClientWrites) {
  auto channel = ValueOf(ClockChannel::Create(3));
  const Scribble scribble(channel);
  scribble.header().magic = 0;
  scribble.header().gpu_count = 1'000'000;
  scribble.slot(2).request.store(~std::uint64_t{0});
  scribble.slot(2).requested_at[1].store(std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(channel.gpu_count(), 3);
  EXPECT_EQ(channel.descriptors().size(), 4U);
  const ClockRequest request = channel.Latest(2);
  EXPECT_EQ(request.sequence, 0xFFFF'FFFFU);
  EXPECT_EQ(request.sm_clock_mhz, kHighestClockMhz);
  EXPECT_EQ(request.requested_at, std::numeric_limits<std::int64_t>::min());
}

TEST(ClockPublisher, AnInvalidAnswerIsIgnored) {
  Ends ends = Connected(1);
  Scribble(ends.agent).slot(0).answer.store(std::uint64_t{7} << 32 | 0x7F00'0000U);
  EXPECT_EQ(ends.client.answer(0).outcome, ClockOutcome::kNone);
}

// ---- Making and attaching ----

TEST(ClockChannel, HasOneToSixtyFourGpus) {
  for (const int count : {0, -1, 65, std::numeric_limits<int>::max()}) {
    EXPECT_THAT(ClockChannel::Create(count), FailsWith(HasSubstr("1 to 64 GPUs"))) << count;
  }
  Ends ends = Connected(64);
  EXPECT_EQ(ends.client.Publish(63, 1410), 1U);
  EXPECT_EQ(ends.agent.Latest(63).sm_clock_mhz, 1410);
}

TEST(ClockChannel, NoDescriptorOutlivesIt) {
  const int next = ::dup(0);
  ::close(next);
  {
    Ends ends = Connected(4);
    Ends moved = std::move(ends);
    moved = Connected(2);
  }
  const int again = ::dup(0);
  ::close(again);
  EXPECT_EQ(again, next);
}

// A defect of the descriptors, and a part of the error of Attach.
struct BadChannel {
  const char* name;
  void (*spoil)(std::vector<FileDescriptor>&);
  const char* message;
};
void PrintTo(const BadChannel& bad, std::ostream* out) { *out << bad.name; }

FileDescriptor Memory(off_t size, int seals) {
  FileDescriptor memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(memory.get(), size), 0);
  EXPECT_EQ(::fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  return memory;
}
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr off_t kSizeOfTwo = sizeof(ClockChannelHeader) + 2 * sizeof(ClockSlot);

void Spoil(const FileDescriptor& memory, std::uint32_t ClockChannelHeader::*member) {
  void* address = ::mmap(nullptr, kSizeOfTwo, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  ++(static_cast<ClockChannelHeader*>(address)->*member);
  ::munmap(address, kSizeOfTwo);
}

class ClockPublisherOf : public ::testing::TestWithParam<BadChannel> {};

TEST_P(ClockPublisherOf, RefusesInvalidChannels) {
  const auto channel = ValueOf(ClockChannel::Create(2));
  std::vector<FileDescriptor> descriptors = Passed(channel);
  GetParam().spoil(descriptors);
  EXPECT_THAT(ClockPublisher::Attach(std::move(descriptors)),
              FailsAs(ErrorKind::kInput, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Descriptors, ClockPublisherOf,
    ::testing::Values(
        BadChannel{"None", [](auto& all) { all.clear(); }, "0 descriptors"},
        BadChannel{"MemoryAlone", [](auto& all) { all.resize(1); }, "1 descriptors"},
        BadChannel{"TooMany", [](auto& all) { all.resize(66); }, "66 descriptors"},
        BadChannel{"FewerEvents", [](auto& all) { all.pop_back(); }, "has 384 bytes"},
        BadChannel{"MoreEvents",
                   [](auto& all) { all.emplace_back(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); },
                   "has 384 bytes"},
        BadChannel{"Closed", [](auto& all) { all[2] = FileDescriptor(); }, "GPU 1: it is not open"},
        BadChannel{"BlockingEvent",
                   [](auto& all) { all[1] = FileDescriptor(::eventfd(0, EFD_CLOEXEC)); },
                   "GPU 0: a write to it could block"},
        BadChannel{"SocketForEvent",
                   [](auto& all) {
                     all[1] = FileDescriptor(
                         ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
                   },
                   "GPU 0: a write to it could raise SIGPIPE"},
        BadChannel{
            "ReadOnlyEvent",
            [](auto& all) { all[1] = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); },
            "GPU 0: it is not open for writing"},
        BadChannel{"EventForMemory", [](auto& all) { std::swap(all[0], all[1]); }, "not sealed"},
        BadChannel{
            "PlainFile",
            [](auto& all) { all[0] = FileDescriptor(::open("/dev/zero", O_RDWR | O_CLOEXEC)); },
            "not sealed"},
        BadChannel{"UnsealedMemory", [](auto& all) { all[0] = Memory(kSizeOfTwo, F_SEAL_SHRINK); },
                   "not sealed"},
        BadChannel{"EmptyMemory", [](auto& all) { all[0] = Memory(0, kAllSeals); }, "has 0 bytes"},
        BadChannel{"MemoryOfZeros", [](auto& all) { all[0] = Memory(kSizeOfTwo, kAllSeals); },
                   "not an agent's"},
        BadChannel{"OtherMagic", [](auto& all) { Spoil(all[0], &ClockChannelHeader::magic); },
                   "not an agent's"},
        BadChannel{"OtherVersion", [](auto& all) { Spoil(all[0], &ClockChannelHeader::version); },
                   "version 2 for 2 GPUs"},
        BadChannel{"OtherCount", [](auto& all) { Spoil(all[0], &ClockChannelHeader::gpu_count); },
                   "version 1 for 3 GPUs"}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace perseus::protocol
