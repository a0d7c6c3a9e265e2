#include "perseus/runtime/agent/access_requests.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <thread>

#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uid_t kHangingUser = 1000;
constexpr uid_t kOtherUserOfQueue = 1001;

// Checks that end when the test ends them.
class HeldChecks {
 public:
  void Run(uid_t user) {
    std::shared_future<void> open;
    {
      const MutexLock lock(mutex_);
      if (++running_[user] > 1) overlapped_ = true;
      open = held_.contains(user) ? held_.at(user) : std::shared_future<void>();
    }
    changed_.notify_all();
    if (open.valid()) open.wait();
    const MutexLock lock(mutex_);
    --running_[user];
  }
  // Makes checks of the user wait until the promise is set.
  void Hold(uid_t user, std::shared_future<void> until) {
    const MutexLock lock(mutex_);
    held_[user] = std::move(until);
  }
  void WaitUntilOneRuns(uid_t user) {
    const MutexLock lock(mutex_);
    while (running_[user] == 0) changed_.wait(mutex_);
  }
  bool overlapped() {
    const MutexLock lock(mutex_);
    return overlapped_;
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::map<uid_t, int> running_;
  std::map<uid_t, std::shared_future<void>> held_;
  bool overlapped_ = false;
};

std::future<int> AddFor(AccessQueue& queue, HeldChecks& checks, uid_t user) {
  auto promise = std::make_shared<std::promise<int>>();
  std::future<int> answer = promise->get_future();
  const bool is_taken = queue.Add(user, [promise, &checks, user](AccessChecker&) {
    checks.Run(user);
    promise->set_value(static_cast<int>(user));
  });
  if (!is_taken) promise->set_value(-1);
  return answer;
}

TEST(AccessQueue, AnswersEveryCheckOfAUserOneAfterTheOther) {
  HeldChecks checks;
  AccessQueue queue;
  std::vector<std::future<int>> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(AddFor(queue, checks, kHangingUser));
  for (auto& answer : answers) EXPECT_EQ(answer.get(), static_cast<int>(kHangingUser));
  EXPECT_FALSE(checks.overlapped());
}

TEST(AccessQueue, AUserWhoseChecksHangDelaysNobodyElse) {
  HeldChecks checks;
  std::promise<void> release;
  checks.Hold(kHangingUser, release.get_future().share());
  AccessQueue queue;
  std::vector<std::future<int>> held;
  for (int i = 0; i < AccessQueue::kThreads + 1; ++i)
    held.push_back(AddFor(queue, checks, kHangingUser));
  EXPECT_EQ(AddFor(queue, checks, kOtherUserOfQueue).get(), static_cast<int>(kOtherUserOfQueue));
  release.set_value();
  for (auto& answer : held) EXPECT_EQ(answer.get(), static_cast<int>(kHangingUser));
}

TEST(AccessQueue, RefusesOneUserTooManyWaitingChecks) {
  HeldChecks checks;
  std::promise<void> release;
  checks.Hold(kHangingUser, release.get_future().share());
  AccessQueue queue;
  std::vector<std::future<int>> held;
  held.push_back(AddFor(queue, checks, kHangingUser));
  checks.WaitUntilOneRuns(kHangingUser);  // It no longer waits.
  for (int i = 0; i < AccessQueue::kMostWaiting; ++i)
    held.push_back(AddFor(queue, checks, kHangingUser));
  EXPECT_EQ(AddFor(queue, checks, kHangingUser).get(), -1);
  EXPECT_EQ(AddFor(queue, checks, kOtherUserOfQueue).get(), static_cast<int>(kOtherUserOfQueue));
  release.set_value();
  for (auto& answer : held) EXPECT_EQ(answer.get(), static_cast<int>(kHangingUser));
}

TEST(AccessQueue, EndsWithChecksThatWait) {
  HeldChecks checks;
  auto release = std::make_shared<std::promise<void>>();
  checks.Hold(kHangingUser, release->get_future().share());
  std::vector<std::future<int>> held;
  {
    AccessQueue queue;
    for (int i = 0; i < 3; ++i) held.push_back(AddFor(queue, checks, kHangingUser));
    release->set_value();
  }
  // The request was answered, or dropped together with its promise. So nothing waits any more.
  for (auto& answer : held) {
    EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  }
}

// The child that asks the kernel joins two cgroups, which are pipes in this test. So the child
// waits twice, and the process moves to another cgroup between the two waits.
TEST(JudgeAccess, RefusesAProcessThatMovesToAnotherCgroupMeanwhile) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  const TemporaryDirectory root;
  const auto write = [&](const fs::path& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  const std::string before = "5:devices:/job_1\n0::/job_1\n";
  write("proc/self/cgroup", "0::/agent\n");
  write("proc/4242/stat", "4242 (train) R 1 4242 4242 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7000 0 0\n");
  write("proc/4242/cgroup", before);
  write("sys/fs/cgroup/cgroup.controllers", "");
  const fs::path first = root / "sys/fs/cgroup/devices/job_1/cgroup.procs";
  const fs::path second = root / "sys/fs/cgroup/job_1/cgroup.procs";
  for (const fs::path& pipe : {first, second}) {
    fs::create_directories(pipe.parent_path());
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  }
  Host host;
  host.root = root;
  Caller caller;
  caller.process = {4242, 7000};
  caller.uid = 54'321;
  AccessChecker checker;
  const auto judge = [&](const std::string& cgroups_meanwhile) {
    std::thread mover([&] {
      const std::ifstream joins_first(first);
      write("proc/4242/cgroup", cgroups_meanwhile);
      std::ifstream joins_second(second);
      std::string text;
      joins_second >> text;
    });
    const auto allowed = JudgeAccess(host, {caller, {GpuFile{"GPU-a", "/dev/null"}}, {}}, checker);
    mover.join();
    return allowed;
  };
  const auto stays = judge(before);
  EXPECT_TRUE(stays) << stays.error().message;
  EXPECT_THAT(judge("5:devices:/job_2\n0::/job_1\n"),
              FailsAs(protocol::Refusal::kUnavailable, HasSubstr("moved to another cgroup")));
}

}  // namespace
}  // namespace perseus::agent
