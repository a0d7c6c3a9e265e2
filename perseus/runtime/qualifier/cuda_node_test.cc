// The host's side of the kernels, on a fake driver that runs them on threads. No test here runs a
// real kernel.
#include "perseus/runtime/qualifier/cuda_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "perseus/runtime/qualifier/kernels.h"
#include "tests/fake_cuda/fake_kernels.h"
#include "tests/support/fake_device.h"

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
    ::setenv("PERSEUS_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    devices_.push_back(first_.Open());
    devices_.push_back(second_.Open());
    fake_kernels::Reset({kSecondUuid, kFirstUuid});
  }
  ~CudaNodeTest() override {
    EXPECT_EQ(fake_kernels::LiveResources(), 0);
    ::unsetenv("PERSEUS_CUDA_LIBRARY");
    ::unsetenv("PERSEUS_NCCL_LIBRARY");
  }
  std::unique_ptr<MeasuredNode> Open() {
    return OpenCudaNode({devices_[0].get(), devices_[1].get()});
  }

  FakeGpu first_, second_;
  std::vector<std::unique_ptr<device::Device>> devices_;
};

TEST_F(CudaNodeTest, RunsEveryLoadAndFreesEverything) {
  const auto node = Open();
  EXPECT_GT(fake_kernels::LiveResources(), 0);
  for (const Load load : {Load::kCompute, Load::kMemory, Load::kBlocked, Load::kIdle}) {
    EXPECT_THAT(node->WhyNot(load), IsEmpty());
    EXPECT_TRUE(node->Run(1, load));
  }
  EXPECT_THAT(node->WhyNot(Operation::kCopy), IsEmpty());
  EXPECT_THAT(node->WhyNot(Operation::kCollective), HasSubstr("NCCL cannot be loaded"));
  // The destructor also stops a kernel that still runs.
  EXPECT_TRUE(node->Run(0, Load::kCompute));
}

TEST_F(CudaNodeTest, SamplesShowTheRateOfTheKernel) {
  const auto node = Open();
  fake_kernels::SetRate(0.5);
  ASSERT_TRUE(node->Run(0, Load::kCompute));
  const auto watched = node->Watch({0}, 50 * kMillisecond);
  ASSERT_TRUE(watched);
  const auto& samples = watched->front();
  ASSERT_GE(samples.size(), 2U);
  // The work of a sample is rounded to a whole iteration.
  const auto duration = static_cast<double>(samples.back().at - samples.front().at);
  EXPECT_NEAR((samples.back().work - samples.front().work) / duration, 0.5, 2 / duration);
  // The GPU's timer starts elsewhere, and a sample is never later than it was seen.
  EXPECT_LE(samples.back().at, node->clock().Now());
}

TEST_F(CudaNodeTest, ASwitchSetsTheClocksAndRecordsTheWorkAround) {
  const auto node = Open();
  for (const int gpu : {0, 1}) ASSERT_TRUE(node->Run(gpu, Load::kCompute));
  const auto records = node->Switch({0, 1}, Setting{600, 600}, 5 * kMillisecond, 5 * kMillisecond);
  ASSERT_TRUE(records);
  ASSERT_EQ(records->size(), 2U);
  for (const SwitchRecord& record : *records) {
    EXPECT_LE(record.call_begin, record.call_end);
    ASSERT_GE(record.samples.size(), 2U);
    EXPECT_LT(record.samples.front().at, record.call_begin);
    EXPECT_GT(record.samples.back().at, record.call_end);
  }
  EXPECT_EQ(first_.setting(Control::kSmClock), (Setting{600, 600}));
  EXPECT_EQ(second_.setting(Control::kSmClock), (Setting{600, 600}));
}

TEST_F(CudaNodeTest, TimesOperationsBesideChanges) {
  const auto node = Open();
  const Disturbance changes{
      .change_period = 2 * kMillisecond, .first_mhz = 900, .second_mhz = 885, .reads_per_s = 100};
  for (const Operation operation :
       {Operation::kLaunch, Operation::kKernel, Operation::kCopy, Operation::kHostFunction}) {
    const auto mean = node->Time(operation, changes, 20 * kMillisecond);
    ASSERT_TRUE(mean) << NameOf(operation) << ": " << mean.error().message;
    EXPECT_GT(*mean, 0) << NameOf(operation);
  }
  EXPECT_FALSE(first_.history().empty());
  EXPECT_FALSE(second_.history().empty());
  EXPECT_GT(fake_kernels::Calls("cuMemcpyPeerAsync"), 0);
  EXPECT_GT(fake_kernels::Calls("cuLaunchHostFunc"), 0);
}

TEST_F(CudaNodeTest, ADriverThatFailsBesideAnOperationIsAnError) {
  const auto node = Open();
  first_.Break(device::DeviceErrorKind::kGone, "fell off the bus");
  const auto mean = node->Time(
      Operation::kLaunch,
      {.change_period = 2 * kMillisecond, .first_mhz = 900, .second_mhz = 885, .reads_per_s = 0},
      20 * kMillisecond);
  ASSERT_FALSE(mean);
  EXPECT_THAT(mean.error().message, HasSubstr("fell off the bus"));
}

// Whatever fails while the node opens, the driver alone is used, the message has the cause, and
// nothing stays allocated (the destructor checks).
TEST_F(CudaNodeTest, EveryFailureWhileOpeningLeavesNothingBehind) {
  for (const char* entry_point :
       {"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid", "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuModuleLoadData", "cuModuleGetFunction",
        "cuMemAlloc_v2", "cuMemsetD32_v2", "cuMemHostAlloc", "cuMemHostGetDevicePointer_v2",
        "cuStreamCreate", "cuStreamQuery", "cuLaunchKernel"}) {
    for (const int after : {0, 1}) {
      if (after == 1 && std::string_view(entry_point) == "cuInit") continue;  // Called once.
      fake_kernels::Reset({kSecondUuid, kFirstUuid});
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
