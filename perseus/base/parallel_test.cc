#include "perseus/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <deque>
#include <stdexcept>
#include <thread>
#include <vector>

#include "perseus/base/mutex.h"

namespace perseus {
namespace {

TEST(ForEachOnAllCores, CallsTheFunctionOnceForEachItem) {
  std::vector<std::atomic<int>> done(10'000);
  ForEachOnAllCores(done.size(), [&](std::size_t i) { ++done[i]; });
  for (const auto& times : done) EXPECT_EQ(times, 1);
  ForEachOnAllCores(0, [](std::size_t) { FAIL(); });
}

TEST(ForEachOnAllCores, AnExceptionReachesTheCallerAndEndsTheWork) {
  std::atomic<int> begun = 0;
  EXPECT_THROW(ForEachOnAllCores(1'000'000,
                                 [&](std::size_t i) {
                                   ++begun;
                                   if (i == 5) throw std::runtime_error("five");
                                 }),
               std::runtime_error);
  EXPECT_LT(begun, 1'000'000);
}

TEST(DrainOnAllCores, CallsTheFunctionOnceForEachTaskAlsoForThoseThatCallsAdd) {
  // A binary tree of tasks of depth 10, from three roots. At first, only a few threads find a task,
  // and the others wait.
  Mutex mutex;
  std::deque<int> depths = {1, 1, 1};
  std::atomic<int> done = 0;
  DrainOnAllCores(depths.size(), [&]() -> std::size_t {
    const MutexLock lock(mutex);
    const int depth = depths.front();  // Fails with _GLIBCXX_ASSERTIONS if there is no task.
    depths.pop_front();
    ++done;
    if (depth == 10) return 0;
    depths.insert(depths.end(), {depth + 1, depth + 1});
    return 2;
  });
  EXPECT_EQ(done, 3 * 1023);
  EXPECT_TRUE(depths.empty());
  DrainOnAllCores(0, []() -> std::size_t {
    ADD_FAILURE();
    return 0;
  });
}

TEST(DrainOnAllCores, AThreadWaitsForTasksThatARunningCallMayAdd) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two cores";
  // The first call adds two tasks late. Both tasks must then run at the same time, so a thread that
  // waited has to take one of them.
  std::atomic<int> begun = 0;
  std::barrier both(2);
  DrainOnAllCores(1, [&]() -> std::size_t {
    if (begun++ == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return 2;
    }
    both.arrive_and_wait();
    return 0;
  });
  EXPECT_EQ(begun, 3);
}

TEST(DrainOnAllCores, AnExceptionReachesTheCallerAndEndsTheWork) {
  std::atomic<int> begun = 0;  // Without the exception, the work has no end.
  EXPECT_THROW(DrainOnAllCores(1,
                               [&]() -> std::size_t {
                                 if (++begun == 5) throw std::runtime_error("five");
                                 return 2;
                               }),
               std::runtime_error);
}

}  // namespace
}  // namespace perseus
