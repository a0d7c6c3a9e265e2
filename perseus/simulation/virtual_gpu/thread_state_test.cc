#include "perseus/simulation/virtual_gpu/thread_state.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace perseus::virtual_gpu {
namespace {

// A forked process that runs or sleeps until it is killed.
class Child {
 public:
  enum class Does { kRun, kSleep };
  explicit Child(Does does) : pid_(fork()) {
    volatile unsigned spins = 0;
    while (pid_ == 0) {
      if (does == Does::kSleep) pause();
      spins = spins + 1;
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { End(); }
  pid_t pid() const { return pid_; }
  void End() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

TEST(ProcessStateTest, ASleepingProcessUsesNoCpuTime) {
  const Child child(Child::Does::kSleep);
  ProcessState process(child.pid());
  // At the beginning it runs, and a thread that is about to sleep still uses CPU time.
  Nanoseconds before = 0;
  do {
    before = process.CpuTime();
  } while (!process.Sleeps() || process.CpuTime() != before);
}

TEST(ProcessStateTest, ARunningProcessUsesCpuTime) {
  const Child child(Child::Does::kRun);
  ProcessState process(child.pid());
  const Nanoseconds before = process.CpuTime();
  while (process.CpuTime() == before) std::this_thread::yield();
  EXPECT_FALSE(process.Sleeps());
  EXPECT_FALSE(process.Sleeps());
}

TEST(ProcessStateTest, AProcessThatIsGoneSleeps) {
  Child child(Child::Does::kRun);
  ProcessState process(child.pid());
  EXPECT_FALSE(process.Sleeps());
  child.End();
  EXPECT_TRUE(process.Sleeps());
  EXPECT_EQ(process.CpuTime(), 0);
}

TEST(ProcessStateTest, LooksAtTheOtherThreadsOfItsOwnProcess) {
  ProcessState process(getpid());
  EXPECT_TRUE(process.Sleeps());
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    while (!is_over) {
    }
  });
  EXPECT_FALSE(process.Sleeps());
  const Nanoseconds before = process.CpuTime();
  while (process.CpuTime() == before) std::this_thread::yield();
  is_over = true;
  other.join();
  EXPECT_TRUE(process.Sleeps());
}

}  // namespace
}  // namespace perseus::virtual_gpu
