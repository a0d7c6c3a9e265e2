// Which GPU each way to name it chooses.
#include "perseus/runtime/client/gpu_choice.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/virtual_node_fixture.h"

namespace perseus::client {
namespace {

using ::testing::HasSubstr;

class GpuChoiceTest : public VirtualNodeTest {
 protected:
  // The UUID, or what is wrong.
  std::string Choose(int gpus, const std::string& wanted, const char* visible = nullptr) {
    const auto path = directory_ / "box.toml";
    std::ofstream(path) << "name = \"box" << gpus << "\"\nstate = \"state" << gpus
                        << "\"\ngpus = " << gpus << "\n[gpu]\nmodel = \"a100-sxm\"\n";
    auto devices = virtual_gpu::OpenVirtualNode(path);
    if (!devices) return devices.error().Message();
    const auto chosen = ChooseGpu(*devices, wanted, visible);
    return chosen ? chosen->uuid : chosen.error().Message();
  }
};

TEST_F(GpuChoiceTest, ByNumberInTheirOrder) {
  EXPECT_EQ(Choose(12, "2"), "GPU-virtual-box12-2");
  EXPECT_EQ(Choose(12, "10"), "GPU-virtual-box12-10");
}

TEST_F(GpuChoiceTest, ByNumberAmongTheVisible) {
  EXPECT_EQ(Choose(8, "1", "5,3"), "GPU-virtual-box8-3");
  EXPECT_EQ(Choose(8, "1", "GPU-virtual-box8-7,GPU-virtual-box8-6"), "GPU-virtual-box8-6");
  EXPECT_EQ(Choose(8, "", "5"), "GPU-virtual-box8-5");
}

TEST_F(GpuChoiceTest, ByName) { EXPECT_EQ(Choose(8, "GPU-virtual-box8-4"), "GPU-virtual-box8-4"); }

TEST_F(GpuChoiceTest, TheOnlyOneNeedsNoName) { EXPECT_EQ(Choose(1, ""), "GPU-virtual-box1-0"); }

TEST_F(GpuChoiceTest, SaysWhatIsMissing) {
  EXPECT_THAT(Choose(8, ""), HasSubstr("which of 8 GPUs?"));
  EXPECT_THAT(Choose(8, "", "1,2"), HasSubstr("which of the visible GPUs"));
  EXPECT_THAT(Choose(8, "8"), HasSubstr("no GPU \"8\" here"));
  EXPECT_THAT(Choose(8, "2", "5,3"), HasSubstr("no GPU \"2\" here among the visible ones"));
  EXPECT_THAT(Choose(8, "GPU-other"), HasSubstr("perseus gpu list"));
}

}  // namespace
}  // namespace perseus::client
