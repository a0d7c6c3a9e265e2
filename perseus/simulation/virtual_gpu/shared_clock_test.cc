#include "perseus/simulation/virtual_gpu/shared_clock.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/base/mutex.h"
#include "tests/support/temporary_directory.h"

namespace perseus::virtual_gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Part = Clock::Part;

class SharedClockTest : public testing::Test {
 protected:
  std::shared_ptr<SharedClock> Open() const { return SharedClock::Open(file_).value(); }
  static void WaitUntil(Clock& clock, Nanoseconds until) {
    while (clock.Now() < until) clock.WaitUntil(until);
  }

  TemporaryDirectory directory_;
  const std::filesystem::path file_ = directory_ / "job.clock";
};

// Forks a process that runs `work` and exits with its result. The caller must have no threads.
pid_t StartProcess(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  return child;
}

int StatusOf(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(SharedClockTest, MovesToTheEarliestAwaitedMoment) {
  const auto clock = Open();
  const Nanoseconds begin = clock->Now();
  Mutex mutex;
  std::vector<std::pair<char, Nanoseconds>> seen;
  std::atomic<int> ready = 0;
  const auto tick = [&](char name, Nanoseconds period, int times) {
    const auto part = clock->TakePart(Part::kLeads);
    // No process begins before all take part.
    for (++ready; ready < 2;) std::this_thread::yield();
    for (int i = 1; i <= times; ++i) {
      WaitUntil(*clock, begin + i * period);
      const MutexLock lock(mutex);
      seen.emplace_back(name, (clock->Now() - begin) / kSecond);
    }
  };
  std::thread other([&] { tick('b', 30 * kSecond, 2); });
  tick('a', 20 * kSecond, 2);
  other.join();
  EXPECT_THAT(seen, ElementsAre(std::pair{'a', 20}, std::pair{'b', 30}, std::pair{'a', 40},
                                std::pair{'b', 60}));
}

TEST_F(SharedClockTest, StandsStillWhileAParticipantRuns) {
  const auto clock = Open();
  const Nanoseconds begin = clock->Now();
  std::atomic<bool> is_waiting = false;
  std::atomic<bool> has_come = false;
  auto part = clock->TakePart(Part::kLeads);
  std::thread other([&] {
    const auto its_part = clock->TakePart(Part::kFollows);
    is_waiting = true;
    WaitUntil(*clock, begin + kSecond);
    has_come = true;
  });
  while (!is_waiting) std::this_thread::yield();
  // Maps the same file again, as another process does.
  const auto same = Open();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(same->Now(), begin);
    std::this_thread::yield();
  }
  EXPECT_FALSE(has_come);
  WaitUntil(*clock, begin + 2 * kSecond);
  EXPECT_TRUE(has_come);
  part.reset();
  other.join();
}

TEST_F(SharedClockTest, AWordThatChangesEndsTheWait) {
  const auto clock = Open();
  std::atomic<std::uint32_t> word = 0;
  std::thread other([&] {
    const auto part = clock->TakePart(Part::kFollows);
    while (word == 0) clock->WaitWhile(word, 0, Clock::kNever);
  });
  word = 1;
  WakeAll(word);
  other.join();
}

TEST_F(SharedClockTest, ReadableDataEndsThePoll) {
  const auto clock = Open();
  const auto part = clock->TakePart(Part::kFollows);
  const int event = eventfd(1, EFD_CLOEXEC);
  pollfd wanted{event, POLLIN, 0};
  const Nanoseconds before = clock->Now();
  EXPECT_EQ(clock->Poll({&wanted, 1}, before + 100 * kSecond), 1);
  EXPECT_EQ(wanted.revents, POLLIN);
  EXPECT_EQ(clock->Now(), before);
  close(event);
}

class SharedClockRingTest : public SharedClockTest {
 protected:
  static constexpr Nanoseconds kKept = 7 * kMillisecond;  // How long a process keeps the token.

  // Runs processes that pass messages from `in` of one to `out` of the next one. Each process takes
  // part, calls pass(clock, is_first, in, out), and has a thread that wakes periodically.
  template <typename Pass>
  void RunRing(std::size_t processes, Part part, Pass pass) {
    std::vector<std::array<int, 2>> sockets(processes);
    for (auto& pair : sockets) {
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair.data()), 0);
    }
    void* const shared = mmap(nullptr, sizeof(std::atomic<std::size_t>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    auto& ready = *new (shared) std::atomic<std::size_t>(0);
    std::vector<pid_t> children;
    for (std::size_t i = 0; i < processes; ++i) {
      children.push_back(StartProcess([&] {
        const auto clock = Open();
        std::atomic<std::uint32_t> is_over = 0;
        auto taken = clock->TakePart(part);
        std::thread periodic([&] {
          const auto its_part = clock->TakePart(Part::kPeriodic);
          while (is_over == 0) clock->WaitWhile(is_over, 0, clock->Now() + 10 * kMillisecond);
        });
        // If a process began before all take part, time would already pass.
        for (++ready; ready < processes;) std::this_thread::yield();
        const bool is_exact = pass(*clock, i == 0, sockets[i][0], sockets[(i + 1) % processes][1]);
        taken.reset();
        is_over = 1;
        WakeAll(is_over);
        periodic.join();
        return is_exact;
      }));
    }
    for (const pid_t child : children) EXPECT_EQ(StatusOf(child), 0);
    munmap(shared, sizeof(std::atomic<std::size_t>));
  }
};

// Processes pass a token around. Each process keeps it for some time, and has a thread that wakes
// periodically. With any scheduling of the processes, no time passes between sending and receiving.
TEST_F(SharedClockRingTest, NoTimePassesWhileAMessageIsOnItsWay) {
  constexpr int kRounds = 50;
  RunRing(4, Part::kLeads, [](Clock& clock, bool is_first, int in, int out) {
    bool is_exact = true;
    const auto pass_on = [&] {
      const Nanoseconds now = clock.Now();
      is_exact = send(out, &now, sizeof now, 0) == sizeof now && is_exact;
    };
    if (is_first) pass_on();
    for (int round = 0; round < kRounds;) {
      pollfd wanted{in, POLLIN, 0};
      if (clock.Poll({&wanted, 1}, Clock::kNever) == 0) continue;
      Nanoseconds sent = 0;
      is_exact = recv(in, &sent, sizeof sent, 0) == sizeof sent && sent == clock.Now() && is_exact;
      const Nanoseconds until = clock.Now() + kKept;
      WaitUntil(clock, until);
      is_exact = clock.Now() == until && is_exact;
      if (!is_first || ++round < kRounds) pass_on();
      if (!is_first) ++round;
    }
    return is_exact;
  });
}

// As above, but the processes take part as a whole. A thread of each waits for the message in a
// call of which the clock knows nothing, and wakes the thread that keeps the token.
TEST_F(SharedClockRingTest, NoTimePassesWhileProcessesPassAMessage) {
  constexpr int kRounds = 30;
  RunRing(3, Part::kProcess, [](Clock& clock, bool is_first, int in, int out) {
    std::atomic<Nanoseconds> sent = 0;
    std::thread receiver([&] {
      for (int round = 0; round < kRounds; ++round) {
        Nanoseconds at = 0;
        if (recv(in, &at, sizeof at, 0) != sizeof at) at = -1;
        sent = at;
        sent.notify_one();
        while (sent == at) std::this_thread::yield();
      }
    });
    bool is_exact = true;
    const auto pass_on = [&] {
      const Nanoseconds now = clock.Now();
      is_exact = send(out, &now, sizeof now, 0) == sizeof now && is_exact;
    };
    if (is_first) pass_on();
    for (int round = 1; round <= kRounds; ++round) {
      sent.wait(0);
      const Nanoseconds until = clock.Now() + kKept;
      is_exact = sent.exchange(0) + kKept == until && is_exact;
      WaitUntil(clock, until);
      is_exact = clock.Now() == until && is_exact;
      if (!is_first || round < kRounds) pass_on();
    }
    receiver.join();
    return is_exact;
  });
}

// The process that dies has looked whether all processes sleep. Now this one looks.
TEST_F(SharedClockTest, ContinuesAfterAProcessDies) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = StartProcess([&] {
    const auto clock = Open();
    const auto part = clock->TakePart(Part::kProcess);
    clock->WaitUntil(clock->Now() + kMillisecond);
    if (write(ready[1], "r", 1) != 1) return false;
    for (;;) std::this_thread::yield();
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const auto clock = Open();
  const auto part = clock->TakePart(Part::kProcess);
  kill(child, SIGKILL);
  StatusOf(child);
  const Nanoseconds until = clock->Now() + 1000 * kSecond;
  WaitUntil(*clock, until);
  EXPECT_EQ(clock->Now(), until);
}

TEST_F(SharedClockTest, ContinuesAfterARunningParticipantDies) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = StartProcess([&] {
    const auto clock = Open();
    const auto part = clock->TakePart(Part::kFollows);
    if (write(ready[1], "r", 1) != 1) return false;
    for (;;) pause();
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const auto clock = Open();
  const auto part = clock->TakePart(Part::kLeads);
  kill(child, SIGKILL);
  StatusOf(child);
  const Nanoseconds until = clock->Now() + kSecond;
  WaitUntil(*clock, until);
  EXPECT_EQ(clock->Now(), until);
}

TEST_F(SharedClockTest, RunsInRealTimeWithoutAJob) {
  const Nanoseconds real = MonotonicNow();
  const auto clock = Open();
  const auto part = clock->TakePart(Part::kFollows);
  WaitUntil(*clock, clock->Now() + 20 * kMillisecond);
  EXPECT_GE(MonotonicNow() - real, 20 * kMillisecond);
}

TEST_F(SharedClockTest, AThreadThatDoesNotTakePartMayWait) {
  const auto clock = Open();
  std::atomic<bool> is_over = false;
  std::thread job([&] {
    const auto part = clock->TakePart(Part::kLeads);
    while (!is_over) WaitUntil(*clock, clock->Now() + kSecond);
  });
  const Nanoseconds begin = clock->Now();
  WaitUntil(*clock, begin + 100 * kSecond);
  EXPECT_GE(clock->Now(), begin + 100 * kSecond);
  is_over = true;
  job.join();
}

// A wait may end early, because a process that holds the mutex is stopped. The thread then has no
// slot, and gets a slot when it takes part. If it had two slots, time would wait for the unused
// one.
TEST_F(SharedClockTest, AThreadWhoseWaitEndedEarlyMayTakePart) {
  const auto clock = Open();
  auto part = clock->TakePart(Part::kFollows);  // While this thread runs, time stands still.
  const Nanoseconds until = clock->Now() + 100 * kSecond;
  std::atomic<pid_t> waiting = 0;
  std::atomic<bool> has_ended = false;
  std::atomic<bool> may_go_on = false;
  std::thread other([&] {
    const std::atomic<std::uint32_t> never = 0;
    waiting = gettid();
    clock->WaitWhile(never, 0, until);
    has_ended = true;
    while (!may_go_on) std::this_thread::yield();
    const auto its_part = clock->TakePart(Part::kLeads);
    const Nanoseconds give_up = MonotonicNow() + 20 * kSecond;
    while (clock->Now() < until && MonotonicNow() < give_up) clock->WaitWhile(never, 0, until);
    EXPECT_EQ(clock->Now(), until);
  });
  const auto is_asleep = [&] {
    const auto stat = ReadFile("/proc/self/task/" + std::to_string(waiting) + "/stat");
    return waiting != 0 && stat && stat->find(") S ") != std::string::npos;
  };
  while (!is_asleep()) std::this_thread::yield();
  auto held = clock->HoldMutex();
  // The wait ends when the thread cannot get the mutex for 100 ms.
  while (!has_ended) std::this_thread::yield();
  held.reset();
  part.reset();
  may_go_on = true;
  other.join();
}

TEST_F(SharedClockTest, ReportsTimeSince1970) {
  const auto clock = Open();
  EXPECT_EQ(clock->SinceEpoch() - clock->Now(), Open()->SinceEpoch() - Open()->Now());
  EXPECT_GT(clock->SinceEpoch(), clock->Now());
}

TEST_F(SharedClockTest, AnotherFileIsNoClock) {
  std::ofstream(file_) << "something else";
  const auto opened = SharedClock::Open(file_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind, ErrorKind::kInput);
  EXPECT_THAT(opened.error().Message(), HasSubstr("job.clock: is not the clock of virtual nodes"));
}

TEST_F(SharedClockTest, AJobDirectoryNamesItsClock) {
  const auto real = OpenClockOfJob(directory_.path());
  ASSERT_TRUE(real);
  EXPECT_EQ((*real)->TakePart(Part::kFollows), nullptr);
  const auto clock = Open();
  WaitUntil(*clock, clock->Now() + kMillisecond);
  ASSERT_TRUE(SetClockOfJob(directory_.path(), file_));
  ASSERT_TRUE(SetClockOfJob(directory_.path(), file_));  // Each rank may set it.
  EXPECT_EQ((*OpenClockOfJob(directory_.path()))->Now(), clock->Now());
  ASSERT_TRUE(SetClockOfJob(directory_.path(), {}));
  EXPECT_EQ((*OpenClockOfJob(directory_.path()))->TakePart(Part::kFollows), nullptr);
  if (geteuid() != 0) return;  // Only root may give files to another user.
  ASSERT_TRUE(SetClockOfJob(directory_.path(), file_));
  ASSERT_EQ(lchown((directory_ / "clock").c_str(), 65534, static_cast<gid_t>(-1)), 0);
  EXPECT_FALSE(OpenClockOfJob(directory_.path())) << "its owner may link it to any file";
}

}  // namespace
}  // namespace perseus::virtual_gpu
