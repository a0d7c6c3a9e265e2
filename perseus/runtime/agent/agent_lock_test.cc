#include "perseus/runtime/agent/agent_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "perseus/base/process.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::agent {
namespace {

class AgentLockTest : public ::testing::Test {
 protected:
  // Starts another process, which takes the lock and then calls `then`.
  pid_t LockInChild(void (*then)()) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto lock = LockFile(path_);
      (void)!::write(ends[1], lock && *lock ? "y" : "n", 1);
      then();
      ::_exit(0);
    }
    ::close(ends[1]);
    char has_it = 0;
    EXPECT_EQ(::read(ends[0], &has_it, 1), 1);
    EXPECT_EQ(has_it, 'y');
    ::close(ends[0]);
    return child;
  }

  TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "new" / "agent.json.lock";
};

TEST_F(AgentLockTest, OneProcessHasIt) {
  const pid_t other = LockInChild([] { ::pause(); });
  EXPECT_FALSE(ValueOf(LockFile(path_)));
  EXPECT_EQ(HolderOf(path_).value().pid, other);

  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  const auto lock = ValueOf(LockFile(path_));
  EXPECT_TRUE(lock);
  EXPECT_EQ(HolderOf(path_)->pid, ::getpid());
}

TEST_F(AgentLockTest, NamesTheSocketOfItsHolder) {
  EXPECT_TRUE(SocketOfHolder(path_).empty()) << "no file";
  const auto lock = LockFile(path_);
  ASSERT_TRUE(lock && *lock);
  EXPECT_TRUE(SocketOfHolder(path_).empty()) << "no socket";
  RecordSocket(*lock, "agent.sock");
  EXPECT_EQ(SocketOfHolder(path_), std::filesystem::absolute("agent.sock"));
  EXPECT_EQ(HolderOf(path_)->pid, ::getpid());
}

// A stopped process is not a killed process: it may continue at any moment, and set clocks.
TEST_F(AgentLockTest, AStoppedProcessKeepsIt) {
  const pid_t other = LockInChild([] { ::pause(); });
  ::kill(other, SIGSTOP);
  int status = 0;
  ::waitpid(other, &status, WUNTRACED);
  EXPECT_FALSE(*LockFile(path_));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

// A descriptor keeps the kernel's lock although the process that took the lock was killed. The
// zombie represents a process that cannot end.
TEST_F(AgentLockTest, AKilledProcessThatDoesNotEndLosesIt) {
  const FileDescriptor kept = [&] {
    auto lock = LockFile(path_);
    EXPECT_TRUE(lock && *lock);
    return *std::move(lock);
  }();
  const pid_t killed = ::fork();
  if (killed == 0) {
    while (true) ::pause();
  }
  ::kill(killed, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(killed), &info, WEXITED | WNOWAIT), 0);
  const auto state = ReadProcessState(killed).value();
  std::ofstream(path_) << killed << " " << state.started << "\n";

  const auto taken = ValueOf(LockFile(path_));
  EXPECT_TRUE(taken);
  EXPECT_EQ(HolderOf(path_)->pid, ::getpid());
  EXPECT_FALSE(*LockFile(path_)) << "the new lock is a lock";
  ::waitpid(killed, nullptr, 0);
}

// For some time, a child that the agent forked before its end has a copy of the descriptor.
TEST_F(AgentLockTest, ALockOfAnAgentThatIsGoneIsWaitedFor) {
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(gone, nullptr, 0), gone);
  auto lock = LockFile(path_);
  ASSERT_TRUE(lock && *lock);
  std::ofstream(path_) << gone << " 5\n";
  const pid_t left = ::fork();
  if (left == 0) {
    ::usleep(100'000);
    ::_exit(0);
  }
  *lock = FileDescriptor();
  EXPECT_TRUE(ValueOf(LockFile(path_, std::chrono::seconds(60))));
  ::waitpid(left, nullptr, 0);
}

TEST_F(AgentLockTest, AFileThatSaysNothingOfItsHolderIsNotTakenOver) {
  const auto lock = LockFile(path_);
  ASSERT_TRUE(lock && *lock);
  for (const char* text : {"", "x", "12", "12 ", "-1 5", "999999999 5"}) {
    std::ofstream(path_) << text;
    EXPECT_FALSE(*LockFile(path_, std::chrono::milliseconds(30))) << text;
  }
}

}  // namespace
}  // namespace perseus::agent
