#include "perseus/runtime/access/access_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>

namespace perseus::agent {
namespace {

constexpr uid_t kHangingUser = 1000;
constexpr uid_t kOtherUserOfQueue = 1001;

// Checks that end when the test says so.
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
  // Checks of the user wait until the promise is set.
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
  checks.WaitUntilOneRuns(kHangingUser);  // It waits no more.
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
  // Answered, or dropped with its promise: nothing is left to wait for.
  for (auto& answer : held) {
    EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  }
}

}  // namespace
}  // namespace perseus::agent
