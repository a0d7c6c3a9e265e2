#include "perseus/runtime/client/own_core.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace perseus::client {
namespace {

cpu_set_t Cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  EXPECT_EQ(::sched_getaffinity(0, sizeof cores, &cores), 0);
  return cores;
}

// The first `count` cores of `all`.
cpu_set_t FirstOf(const cpu_set_t& all, int count) {
  cpu_set_t first;
  CPU_ZERO(&first);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&first) < count; ++core) {
    if (CPU_ISSET(core, &all)) CPU_SET(core, &first);
  }
  return first;
}

// The cores of a thread that was started on `cores`, after LeaveSingleCore().
cpu_set_t CoresAfterStartOn(const cpu_set_t& cores) {
  cpu_set_t after;
  std::thread([&] {
    EXPECT_EQ(::sched_setaffinity(0, sizeof cores, &cores), 0);
    std::thread([&] {
      LeaveSingleCore();
      after = Cores();
    }).join();
    const cpu_set_t of_starter = Cores();
    EXPECT_TRUE(CPU_EQUAL(&of_starter, &cores)) << "another thread keeps its cores";
  }).join();
  return after;
}

TEST(LeaveSingleCore, AllowsAllCoresToAThreadWithOne) {
  const cpu_set_t all = Cores();
  const cpu_set_t after = CoresAfterStartOn(FirstOf(all, 1));
  EXPECT_GE(CPU_COUNT(&after), CPU_COUNT(&all));
}

TEST(LeaveSingleCore, KeepsAChoiceOfSeveralCores) {
  const cpu_set_t all = Cores();
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "this process has one core";
  const cpu_set_t two = FirstOf(all, 2);
  const cpu_set_t after = CoresAfterStartOn(two);
  EXPECT_TRUE(CPU_EQUAL(&after, &two));
}

}  // namespace
}  // namespace perseus::client
