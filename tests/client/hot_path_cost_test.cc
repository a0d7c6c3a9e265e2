// Tests the promise of the header for the hot path: no system call except the write that wakes the
// agent, and no allocation. A filter in the kernel and the allocator check this.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "tests/client/agent_node.h"

// ---- Counting allocations ----

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void __libc_free(void* memory);
}

namespace {
thread_local bool is_counting = false;
thread_local std::uint64_t allocations = 0;
void Count() {
  if (is_counting) ++allocations;
}
}  // namespace

extern "C" {
void* malloc(std::size_t size) {
  Count();
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  Count();
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  Count();
  return __libc_realloc(memory, size);
}
void free(void* memory) {
  if (memory != nullptr) Count();
  __libc_free(memory);
}
}

namespace perseus {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

// From now on, a system call of this thread kills the process. Two calls are allowed: a write of
// eight bytes (to an eventfd) and the exit of the process. Other threads are not affected.
bool ForbidSystemCalls() {
  const auto load = [](std::size_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  };
  const auto unless_equal = [](std::uint32_t value, std::uint8_t skip) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip);
  };
  const auto answer = [](std::uint32_t what) {
    return sock_filter BPF_STMT(BPF_RET | BPF_K, what);
  };
  sock_filter filter[] = {
      load(offsetof(seccomp_data, arch)),
      unless_equal(kArchitecture, 6),
      load(offsetof(seccomp_data, nr)),
      unless_equal(SYS_exit_group, 1),
      answer(SECCOMP_RET_ALLOW),
      unless_equal(SYS_write, 2),
      load(offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t)),
      unless_equal(8, 0),
      answer(SECCOMP_RET_KILL_PROCESS),
      answer(SECCOMP_RET_ALLOW),
  };
  // For a write of eight bytes, the filter jumps over the kill.
  filter[7] = sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 8, 1, 0);
  const sock_fprog program{sizeof filter / sizeof filter[0], filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum ChildEnd : int { kGood = 0, kNoFilter = 3, kAllocated = 4, kOffPlan = 5, kNoLease = 6 };

// Runs steps of a session under the filter.
int RunForbidden(const RankSession::Place& place, bool wants_lease) {
  RankSession rank(place);
  if (wants_lease && rank.Counters().may_set_clocks == 0) return kNoLease;
  rank.RunStep(4);  // The first step also does the work that is done only once.
  if (!ForbidSystemCalls()) return kNoFilter;
  allocations = 0;  // The child inherited the count of the parent.
  is_counting = true;
  for (int step = 0; step < 2000; ++step) rank.RunStep(4);
  is_counting = false;
  if (allocations != 0) ::_exit(kAllocated);
  ::_exit(rank.Counters().steps_off_plan == 0 ? kGood : kOffPlan);
}

class HotPathCostTest : public AgentNodeTest {
 protected:
  RankSession::Place Place() const {
    return {"off", devices(), Uuid(0), 0, "", (directory_ / "job").string(), 0};
  }
  RankSession::Place PlaceWithPlan() const {
    plan_file::PlanFile plan = PlanGpipe(1, 4);
    const int clocks[] = {1410, 1200, 1005, 1305, 900, 1410, 1395, 1110};
    for (std::size_t i = 0; i < 8; ++i) plan.pp_ranks[0].instructions[i].frequency_mhz = clocks[i];
    Write("plan.json", plan_file::FormatPlan(plan));
    RankSession::Place place = Place();
    place.socket = socket();
    place.plan = (directory_ / "plan.json").string();
    return place;
  }
  static void ExpectGood(int status) {
    if (WIFSIGNALED(status)) FAIL() << "killed by signal " << WTERMSIG(status) << ": a system call";
    EXPECT_EQ(WEXITSTATUS(status), kGood);
  }
};

// This test shows that the filter works. Without this, the other tests would prove nothing.
TEST_F(HotPathCostTest, AnyOtherSystemCallEndsTheProcess) {
  const int status = WaitFor(StartChild([] {
    if (!ForbidSystemCalls()) return static_cast<int>(kNoFilter);
    return static_cast<int>(::getppid());
  }));
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGSYS);
}

TEST_F(HotPathCostTest, AllocationsAreCounted) {
  is_counting = true;
  const auto before = allocations;
  std::free(std::malloc(100));
  is_counting = false;
  EXPECT_EQ(allocations - before, 2U);
}

TEST_F(HotPathCostTest, MeasuringMakesNoSystemCallAndDoesNotAllocate) {
  ExpectGood(WaitFor(StartChild([&] { return RunForbidden(Place(), false); })));
}

TEST_F(HotPathCostTest, ClockChangesMakeNoSystemCallExceptTheWakeUp) {
  StartAgent();
  const RankSession::Place place = PlaceWithPlan();
  ExpectGood(WaitFor(StartChild([&] { return RunForbidden(place, true); })));
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
}

}  // namespace
}  // namespace perseus
