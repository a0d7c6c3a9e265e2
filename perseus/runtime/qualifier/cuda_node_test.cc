// Tests the host's side of the kernels, with a fake driver that runs the kernels on threads. No
// test here runs a real kernel.
#include "perseus/runtime/qualifier/cuda_node.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "perseus/runtime/cuda/driver.h"
#include "perseus/runtime/qualifier/cuda_gpu.h"
#include "tests/fake_cuda/fake_kernels.h"
#include "tests/support/fake_device.h"
#include "tests/support/results.h"

namespace perseus::qualifier {
namespace {

using device::Control;
using device::Setting;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kFirstUuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
constexpr const char* kSecondUuid = "GPU-ff010203-0405-0607-0809-0a0b0c0d0eff";

class CudaNodeTest : public ::testing::Test {
 protected:
  CudaNodeTest() : first_(kFirstUuid), second_(kSecondUuid) {
    ::setenv("PERSEUS_CUDA_LIBRARY", FAKE_KERNELS_LIBRARY, 1);
    ::setenv("PERSEUS_NCCL_LIBRARY", FAKE_KERNELS_LIBRARY, 1);
    devices_.push_back(first_.Open());
    devices_.push_back(second_.Open());
    Reset({});
  }
  ~CudaNodeTest() override {
    EXPECT_EQ(fake_kernels::LiveResources(), 0);
    EXPECT_EQ(fake_kernels::LiveCommunicators(), 0);
    ::unsetenv("PERSEUS_CUDA_LIBRARY");
    ::unsetenv("PERSEUS_NCCL_LIBRARY");
  }
  // CUDA lists the GPUs in another order than the devices.
  static void Reset(const fake_kernels::GpuTraits& traits) {
    fake_kernels::Reset({kSecondUuid, kFirstUuid}, traits);
  }
  std::unique_ptr<MeasuredNode> Open() {
    return OpenCudaNode({devices_[0].get(), devices_[1].get()});
  }

  FakeGpu first_, second_;
  std::vector<std::unique_ptr<device::Device>> devices_;
};

// Calls measure(window) until its result is enough, each time with twice the window. Returns the
// last result. On a busy machine, threads that sample, read or change clocks may not run once in a
// short window.
template <typename Measure, typename IsEnough>
auto MeasureUntil(Nanoseconds window, Measure measure, IsEnough is_enough) {
  auto measured = measure(window);
  while (!is_enough(measured) && window < 10 * kSecond) measured = measure(window *= 2);
  return measured;
}

TEST_F(CudaNodeTest, RunsEveryLoadAndFreesEverything) {
  const auto node = Open();
  EXPECT_GT(fake_kernels::LiveResources(), 0);
  for (const Load load : {Load::kCompute, Load::kBlocked, Load::kIdle}) {
    EXPECT_THAT(node->WhyNot(load), IsEmpty());
    EXPECT_TRUE(node->Run(1, load));
  }
  for (const Operation operation : kAllOperations) {
    EXPECT_THAT(node->WhyNot(operation), IsEmpty()) << NameOf(operation);
  }
  // The destructor also stops a kernel that still runs.
  EXPECT_TRUE(node->Run(0, Load::kCompute));
}

TEST_F(CudaNodeTest, SamplesShowTheRateOfTheKernel) {
  const auto node = Open();
  fake_kernels::SetRate(0.5);
  ASSERT_TRUE(node->Run(0, Load::kCompute));
  const auto watched = MeasureUntil(
      50 * kMillisecond,
      [&](Nanoseconds window) { return node->Record(1, std::nullopt, 0, window); },
      [](const auto& result) { return !result || result->front().samples.size() >= 2; });
  ASSERT_TRUE(watched);
  const auto& samples = watched->front().samples;
  ASSERT_GE(samples.size(), 2U);
  // The work of a sample is rounded to a whole iteration.
  const auto duration = static_cast<double>(samples.back().at - samples.front().at);
  EXPECT_NEAR((samples.back().work - samples.front().work) / duration, 0.5, 2 / duration);
  // The GPU's timer starts at another moment. A sample is never later than the time at which it was
  // seen.
  EXPECT_LE(samples.back().at, node->clock().Now());
}

TEST_F(CudaNodeTest, ASwitchSetsTheClocksAndRecordsTheWorkAround) {
  const auto node = Open();
  for (const int gpu : {0, 1}) ASSERT_TRUE(node->Run(gpu, Load::kCompute));
  const auto is_around = [](const SwitchRecord& record) {
    return record.samples.size() >= 2 && record.samples.front().at < record.call_begin &&
           record.samples.back().at > record.call_end;
  };
  const auto records = MeasureUntil(
      5 * kMillisecond,
      [&](Nanoseconds window) {
        return node->Record(2, Setting{600, 600}, window, window);
      },
      [&](const auto& result) { return !result || std::ranges::all_of(*result, is_around); });
  ASSERT_TRUE(records);
  ASSERT_EQ(records->size(), 2U);
  for (const SwitchRecord& record : *records) {
    EXPECT_LE(record.call_begin, record.call_end);
    EXPECT_TRUE(is_around(record));
  }
  EXPECT_EQ(first_.setting(Control::kSmClock), (Setting{600, 600}));
  EXPECT_EQ(second_.setting(Control::kSmClock), (Setting{600, 600}));
}

TEST_F(CudaNodeTest, TimesOperationsBesideChanges) {
  const auto node = Open();
  const Disturbance changes{
      .change_period = 2 * kMillisecond, .first_mhz = 900, .second_mhz = 885, .reads_per_s = 100};
  const Disturbance quiet{
      .change_period = 0, .first_mhz = 900, .second_mhz = 885, .reads_per_s = 0};
  for (const Operation operation : kAllOperations) {
    const auto beside = MeasureUntil(
        20 * kMillisecond,
        [&](Nanoseconds window) { return node->Time(operation, changes, window); },
        [](const auto& timed) { return timed && timed->changes_per_s > 0; });
    ASSERT_TRUE(beside) << NameOf(operation) << ": " << beside.error().Message();
    EXPECT_GT(beside->mean_ns, 0) << NameOf(operation);
    EXPECT_GT(beside->changes_per_s, 0) << NameOf(operation);
  }
  const auto alone = ValueOf(node->Time(Operation::kCollective, quiet, 20 * kMillisecond));
  EXPECT_GT(alone.mean_ns, 0);
  EXPECT_EQ(alone.changes_per_s, 0);
  EXPECT_FALSE(first_.history().empty());
  EXPECT_FALSE(second_.history().empty());
  EXPECT_GT(fake_kernels::Calls("cuMemcpyPeerAsync"), 0);
  // The first group ran when the node was opened.
  EXPECT_GT(fake_kernels::Calls("ncclGroupEnd"), 1);
}

// Otherwise, one clock would have more than half of the time.
TEST_F(CudaNodeTest, EveryChangeIsToTheOtherClock) {
  const auto node = Open();
  Disturbance disturbance{.change_period = 0, .first_mhz = 900, .second_mhz = 885};
  ASSERT_TRUE(node->Time(Operation::kKernel, disturbance, 20 * kMillisecond));
  const std::size_t before = first_.history().size();
  disturbance.change_period = 5 * kMillisecond;
  const auto history = MeasureUntil(
      20 * kMillisecond,
      [&](Nanoseconds window) {
        EXPECT_TRUE(node->Time(Operation::kKernel, disturbance, window));
        return first_.history();
      },
      [&](const auto& writes) { return writes.size() > before; });
  ASSERT_GT(history.size(), before);
  EXPECT_NE(history[before].setting, history[before - 1].setting);
}

TEST_F(CudaNodeTest, ReadsAllGpusAtOnce) {
  const auto node = Open();
  const auto read_both = [&](Nanoseconds window) { return node->Read(window); };
  const auto readings = MeasureUntil(10 * kMillisecond, read_both, [](const auto& result) {
    return !result || std::ranges::none_of(*result, &std::vector<device::Telemetry>::empty);
  });
  ASSERT_TRUE(readings);
  ASSERT_EQ(readings->size(), 2U);
  for (const auto& of_gpu : *readings) EXPECT_FALSE(of_gpu.empty());
  second_.Break(device::DeviceErrorKind::kGone, "fell off the bus");
  EXPECT_FALSE(
      MeasureUntil(10 * kMillisecond, read_both, [](const auto& result) { return !result; }));
}

// As on an H100. The load of a GPU with one multiprocessor leaves no multiprocessor free.
TEST_F(CudaNodeTest, ASmallKernelStartsWhenALoadOnEveryMultiprocessorEnds) {
  Reset({.multiprocessors = 1});
  RealClock clock;
  const cuda::Driver driver = ValueOf(cuda::LoadForKernels());
  const auto gpu = ValueOf(CudaGpu::Open(driver, 0, 0, clock));
  ASSERT_TRUE(gpu->Start(Load::kCompute));
  ASSERT_TRUE(gpu->Notify());
  const auto has_worked = [&] {
    const auto sample = gpu->ReadMailbox();
    return sample && sample->work > 10'000;  // For 10 ms.
  };
  EXPECT_TRUE(gpu->WaitUntil(has_worked, "work"));
  EXPECT_EQ(driver.StreamQuery(gpu->probe_stream()), cuda::kNotReady);
  EXPECT_TRUE(gpu->Stop());
  EXPECT_TRUE(gpu->AwaitNotice());
}

TEST_F(CudaNodeTest, ALoadLeavesRoomForASmallKernel) {
  for (const int multiprocessors : {5, 16, 132}) {
    Reset({.multiprocessors = multiprocessors});
    const auto node = Open();
    EXPECT_TRUE(node->Time(Operation::kLaunch, {}, 2 * kMillisecond)) << multiprocessors;
  }
}

TEST_F(CudaNodeTest, AGpuThatCannotRunTheKernelsSaysWhy) {
  Reset({.ends_long_kernels = true});
  EXPECT_THAT(Open()->WhyNot(Load::kCompute), HasSubstr("drives a display"));
  Reset({.compute_capability = 6});
  EXPECT_THAT(Open()->WhyNot(Load::kCompute), HasSubstr("compute capability 7.0"));
}

TEST_F(CudaNodeTest, CopiesGoStraightToTheNextGpuWherePossible) {
  const auto can_copy = [](MeasuredNode& node) {
    return node.Time(Operation::kCopy, {}, 2 * kMillisecond).has_value();
  };
  EXPECT_TRUE(can_copy(*Open()));
  EXPECT_EQ(fake_kernels::Calls("cuCtxEnablePeerAccess"), 2);
  EXPECT_TRUE(can_copy(*Open()));  // The GPUs are connected already.
  Reset({.has_peers = false});
  EXPECT_TRUE(can_copy(*Open()));
  EXPECT_EQ(fake_kernels::Calls("cuCtxEnablePeerAccess"), 0);
  for (const char* entry_point : {"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"}) {
    Reset({});
    fake_kernels::FailOnce(entry_point, 2);
    const auto node = Open();
    EXPECT_THAT(node->WhyNot(Operation::kCopy), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
    EXPECT_THAT(node->WhyNot(Operation::kLaunch), IsEmpty());
  }
}

TEST_F(CudaNodeTest, WithoutNcclTheRestIsMeasured) {
  ::setenv("PERSEUS_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  const auto node = Open();
  EXPECT_THAT(node->WhyNot(Operation::kCollective), HasSubstr("NCCL cannot be loaded"));
  EXPECT_THAT(node->WhyNot(Operation::kCopy), IsEmpty());
  EXPECT_THAT(node->WhyNot(Load::kCompute), IsEmpty());
  ::setenv("PERSEUS_NCCL_LIBRARY", "libm.so.6", 1);
  EXPECT_THAT(Open()->WhyNot(Operation::kCollective),
              HasSubstr("lacks ncclCommInitAll: it is not NCCL"));
}

// NCCL connects the GPUs in the first collective. So a collective runs when the node is opened.
TEST_F(CudaNodeTest, WhateverFailsInNcclTheRestIsMeasured) {
  for (const char* entry_point :
       {"ncclCommInitAll", "ncclGroupStart", "ncclAllReduce", "ncclGroupEnd"}) {
    Reset({});
    fake_kernels::FailOnce(entry_point, fake_kernels::kSystemError);
    const auto node = Open();
    EXPECT_THAT(node->WhyNot(Operation::kCollective),
                HasSubstr("unhandled system error (NCCL error 2"))
        << entry_point;
    EXPECT_EQ(fake_kernels::LiveCommunicators(), 0) << entry_point;
    EXPECT_TRUE(node->Time(Operation::kLaunch, {}, 2 * kMillisecond)) << entry_point;
  }
}

TEST_F(CudaNodeTest, ACollectiveThatFailsLaterIsAnErrorAndEndsItsGroup) {
  const auto node = Open();
  // The call for the second GPU fails.
  fake_kernels::FailOnce("ncclAllReduce", fake_kernels::kSystemError, 1);
  // The call ends at the failure.
  const auto timed = node->Time(Operation::kCollective, {}, 10 * kSecond);
  EXPECT_THAT(timed, FailsWith(HasSubstr("NCCL cannot run an all-reduce")));
  EXPECT_TRUE(node->Time(Operation::kCollective, {}, 2 * kMillisecond));
}

TEST_F(CudaNodeTest, ADriverThatFailsBesideAnOperationIsAnError) {
  const auto node = Open();
  first_.Break(device::DeviceErrorKind::kGone, "fell off the bus");
  const Disturbance changes{
      .change_period = 2 * kMillisecond, .first_mhz = 900, .second_mhz = 885, .reads_per_s = 0};
  EXPECT_THAT(
      MeasureUntil(
          20 * kMillisecond,
          [&](Nanoseconds window) { return node->Time(Operation::kLaunch, changes, window); },
          [](const auto& timed) { return !timed; }),
      FailsWith(HasSubstr("fell off the bus")));
}

// If anything fails while the node opens, only the driver is used. The message has the cause, and
// nothing stays allocated (the destructor checks this).
TEST_F(CudaNodeTest, EveryFailureWhileOpeningLeavesNothingBehind) {
  for (const char* entry_point :
       {"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid", "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuModuleLoadData", "cuModuleGetFunction",
        "cuMemAlloc_v2", "cuMemsetD32Async", "cuMemHostAlloc", "cuMemHostGetDevicePointer_v2",
        "cuStreamCreate", "cuStreamQuery", "cuLaunchKernel"}) {
    for (const int after : {0, 1}) {
      if (after == 1 && std::string_view(entry_point) == "cuInit") continue;  // Only one call.
      Reset({});
      fake_kernels::FailOnce(entry_point, 2, after);
      const auto node = Open();
      EXPECT_THAT(node->WhyNot(Load::kCompute), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"))
          << entry_point << " " << after;
      EXPECT_EQ(fake_kernels::LiveResources(), 0) << entry_point << " " << after;
    }
  }
}

TEST_F(CudaNodeTest, AHiddenGpuIsNamed) {
  fake_kernels::Reset({kFirstUuid});
  EXPECT_THAT(Open()->WhyNot(Load::kCompute),
              HasSubstr(std::string("does not show ") + kSecondUuid));
}

TEST_F(CudaNodeTest, WithoutCudaTheDriverAloneIsUsed) {
  ::setenv("PERSEUS_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
  const auto node = Open();
  EXPECT_THAT(node->WhyNot(Load::kBlocked), HasSubstr("no CUDA driver"));
  EXPECT_THAT(node->WhyNot(Operation::kLaunch), HasSubstr("no CUDA driver"));
  EXPECT_FALSE(node->Run(0, Load::kCompute));
  EXPECT_TRUE(node->Run(0, Load::kIdle));
}

}  // namespace
}  // namespace perseus::qualifier
