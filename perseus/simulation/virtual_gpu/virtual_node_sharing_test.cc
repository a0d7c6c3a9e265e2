// A virtual node that several processes share. Some of the processes are killed. The results do not
// depend on any duration.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <new>
#include <random>
#include <vector>

#include "perseus/simulation/virtual_gpu/virtual_node.h"
#include "tests/support/virtual_node_fixture.h"

namespace perseus::virtual_gpu {
namespace {

// Forks a process that runs `work` and exits with its result.
pid_t Start(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  return child;
}

// Returns the exit status, or minus the signal that ended the process.
int Await(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Memory that children share. It is freed with the process.
void* SharedPage() {
  return mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

class VirtualNodeSharingTest : public VirtualNodeTest {
 protected:
  static constexpr device::Setting k500{500, 500};

  std::shared_ptr<VirtualNodeMemory> OpenMemory() {
    const auto spec = ReadVirtualNode(description_);
    auto memory = VirtualNodeMemory::Open(*spec, std::make_shared<RealClock>());
    EXPECT_TRUE(memory);
    return *memory;
  }
  VirtualNode OpenNode() {
    auto node = VirtualNode::Open(description_);
    EXPECT_TRUE(node);
    return *node;
  }

  std::filesystem::path description_ = Describe("rate = 1000\n" + std::string(kTwoGpus));
};

TEST_F(VirtualNodeSharingTest, ASettingIsVisibleToOtherProcesses) {
  const VirtualNode node = OpenNode();
  const pid_t agent = Start([&] {
    const auto devices = OpenVirtualNode(description_);
    return devices && devices->devices[1]->Apply(device::Control::kSmClock, k500).has_value();
  });
  EXPECT_EQ(Await(agent), 0);
  EXPECT_EQ(node.Look(1)->reading.requested_lock, k500);
  EXPECT_EQ(node.Look(0)->writes, 0U);
}

TEST_F(VirtualNodeSharingTest, AWorkerWakesWhenAnotherProcessSetsTheClock) {
  const VirtualNode node = OpenNode();
  const auto devices = node.Devices();
  ASSERT_TRUE(devices.devices[0]->Apply(device::Control::kSmClock, k500));
  const pid_t rank = Start([&] {
    InstructionTable work = Work(1);
    work.rows[0].time_s = 1e6;  // A quarter of an hour of real time at 500 MHz.
    auto worker = OpenNode().OpenWorker(0);
    return worker && worker->Begin(work) && worker->WaitUntilDone();
  });
  while (!node.Look(0)->reading.is_running) sched_yield();
  EXPECT_EQ(node.Look(0)->worker_pid, rank);
  ASSERT_TRUE(devices.devices[0]->Apply(device::Control::kSmClock, std::nullopt));
  EXPECT_EQ(Await(rank), 0);
}

TEST_F(VirtualNodeSharingTest, ProcessesThatCreateItTogetherShareOneNode) {
  constexpr int kProcesses = 8;
  for (int round = 0; round < 20; ++round) {
    std::filesystem::remove(directory_ / "box.toml.state");
    std::vector<pid_t> children;
    children.reserve(kProcesses);
    for (int i = 0; i < kProcesses; ++i) {
      children.push_back(Start([&] {
        const auto devices = OpenVirtualNode(description_);
        return devices && devices->devices[0]->Apply(device::Control::kSmClock, k500).has_value();
      }));
    }
    for (const pid_t child : children) EXPECT_EQ(Await(child), 0);
    EXPECT_EQ(OpenNode().Look(0)->writes, static_cast<std::uint64_t>(kProcesses));
  }
  // Only the description and the state remain, no temporary files.
  const std::filesystem::directory_iterator files(directory_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST_F(VirtualNodeSharingTest, AnUpdateThatIsKilledMidwayHasNoEffect) {
  const auto memory = OpenMemory();
  const VirtualNode node = OpenNode();
  const auto devices = node.Devices();
  ASSERT_TRUE(devices.devices[0]->Apply(device::Control::kSmClock, k500));
  const pid_t child = Start([&] {
    return memory
        ->Update(0,
                 [](VirtualCell& cell, Nanoseconds now) {
                   cell.writes = 99;
                   cell.gpu.RequestLock(device::Setting{700, 700}, now);
                   std::raise(SIGKILL);
                 })
        .has_value();
  });
  EXPECT_EQ(Await(child), -SIGKILL);
  EXPECT_EQ(node.Look(0)->writes, 1U);
  EXPECT_EQ(node.Look(0)->reading.requested_lock, k500);
  EXPECT_TRUE(devices.devices[0]->Apply(device::Control::kSmClock, device::Setting{800, 800}));
  EXPECT_EQ(node.Look(0)->reading.requested_lock, (device::Setting{800, 800}));
}

TEST_F(VirtualNodeSharingTest, TheStateStaysConsistentWheneverAProcessIsKilled) {
  const auto memory = OpenMemory();
  const VirtualNode node = OpenNode();
  auto* begun = new (SharedPage()) std::atomic<std::uint64_t>(0);
  std::mt19937_64 random(1);
  std::uint64_t writes = 0;
  double energy_j = 0;
  for (int round = 0; round < 300; ++round) {
    // At any point at which the child is killed, the first and the last value that it writes agree.
    // It spends most of its time between these two writes.
    const pid_t child = Start([&] {
      for (;;) {
        const auto updated = memory->Update(0, [&](VirtualCell& cell, Nanoseconds now) {
          const std::uint64_t next = cell.writes + 1;
          begun->store(next);
          cell.gpu.SetThrottle(static_cast<int>(next % 1000), now);
          if (!cell.gpu.is_running()) cell.gpu.Begin(Work(0.1), now);
          for (int i = 0; i < 50; ++i) (void)cell.gpu.ReadAt(now);
          cell.writes = next;
        });
        if (!updated) return false;
      }
    });
    // The test watches without the mutex. Otherwise, the child would wait for the mutex and could
    // not be killed during an update.
    const std::uint64_t until = writes + 1 + random() % 20;
    while (begun->load() < until) sched_yield();
    for (std::uint64_t spin = random() % 2000; spin > 0; --spin) (void)memory->Now();
    kill(child, SIGKILL);
    ASSERT_EQ(Await(child), -SIGKILL);

    const auto view = node.Look(0);
    ASSERT_TRUE(view) << view.error().Message();
    ASSERT_GE(view->writes, until - 1);  // The last update that began may be lost.
    ASSERT_EQ(view->reading.throttle_mhz, static_cast<int>(view->writes % 1000));
    ASSERT_GE(view->reading.energy_j, energy_j);
    writes = view->writes;
    energy_j = view->reading.energy_j;
    begun->store(writes);
  }
}

TEST_F(VirtualNodeSharingTest, AKilledWorkerReleasesItsGpu) {
  const VirtualNode node = OpenNode();
  for (int round = 0; round < 20; ++round) {
    const pid_t rank = Start([&] {
      auto worker = OpenNode().OpenWorker(1);
      if (!worker || !worker->SetRest(Rest::kBlocking) || !worker->Begin(Work(1e5))) return false;
      return worker->WaitUntilDone().has_value();
    });
    while (!node.Look(1)->reading.is_running) sched_yield();
    EXPECT_FALSE(node.OpenWorker(1)) << "it has one";
    kill(rank, SIGKILL);
    EXPECT_EQ(Await(rank), -SIGKILL);
    const auto view = node.Look(1);
    EXPECT_EQ(view->worker_pid, 0);
    EXPECT_FALSE(view->reading.is_running);
    EXPECT_EQ(device::Describe(view->reading.limits), "idle");
    EXPECT_TRUE(node.OpenWorker(1));
  }
}

}  // namespace
}  // namespace perseus::virtual_gpu
