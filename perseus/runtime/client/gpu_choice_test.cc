// Which GPU each way to name it chooses.
#include "perseus/runtime/client/gpu_choice.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <fstream>

#include "tests/fake_nvml/fake_node.h"
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
    const auto chosen =
        OpenGpu("virtual:" + path.string(), virtual_gpu::OpenVirtualNode, wanted, visible);
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

// What a choice among the GPUs of NVML costs, in calls.
class NvmlGpuChoiceTest : public testing::Test {
 protected:
  // The UUID, or what is wrong.
  std::string Choose(const std::string& wanted, const char* visible = nullptr) {
    const std::uint64_t before = fake_.node.LogEnd();
    const auto chosen =
        OpenGpu("nvml:" FAKE_NVML_LIBRARY, virtual_gpu::OpenVirtualNode, wanted, visible);
    calls_ = static_cast<int>(fake_.node.LogEnd() - before);
    if (!chosen) return chosen.error().Message();
    EXPECT_EQ(chosen->device->info().uuid, chosen->uuid);
    EXPECT_EQ(chosen->device->info().name, "Fake A100");
    EXPECT_EQ(chosen->device->info().measure_only, "");
    EXPECT_TRUE(chosen->device->Read());
    return chosen->uuid;
  }

  FakeNode fake_{{{}, {}, {}, {}, {.mig_instances = 2}, {}, {}, {}}};
  int calls_ = 0;
};

TEST_F(NvmlGpuChoiceTest, AUuidNeedsNoLookAtTheOthers) {
  EXPECT_EQ(Choose(fake_.node.Uuid(3)), fake_.node.Uuid(3));
  EXPECT_LE(calls_, 10);
  EXPECT_EQ(Choose("1", (fake_.node.Uuid(5) + "," + fake_.node.Uuid(2)).c_str()),
            fake_.node.Uuid(2));
  EXPECT_LE(calls_, 10);
  EXPECT_EQ(Choose("", fake_.node.Uuid(5).c_str()), fake_.node.Uuid(5));
  EXPECT_LE(calls_, 10);
}

TEST_F(NvmlGpuChoiceTest, OtherNamesOnlyNeedTheNamesOfTheOthers) {
  EXPECT_EQ(Choose("6"), fake_.node.Uuid(7)) << "the GPU in MIG mode does not count";
  EXPECT_LE(calls_, 55);
  EXPECT_EQ(Choose("0", "3"), fake_.node.Uuid(3));
  const std::string beginning = fake_.node.Uuid(2).substr(0, 16);
  EXPECT_EQ(Choose(beginning), fake_.node.Uuid(2));
  EXPECT_LE(calls_, 55);
}

TEST_F(NvmlGpuChoiceTest, SaysWhatIsMissing) {
  EXPECT_THAT(Choose(""), HasSubstr("which of 7 GPUs?"));
  EXPECT_THAT(Choose("7"), HasSubstr("no GPU \"7\" here: there are 7"));
  EXPECT_THAT(Choose("GPU-other"), HasSubstr("no GPU \"GPU-other\" here: there are 7"));
  EXPECT_THAT(Choose(fake_.node.Uuid(4)), HasSubstr("here: there are 7")) << "it is in MIG mode";
  EXPECT_THAT(Choose("MIG-" + fake_.node.Uuid(4).substr(4)), HasSubstr("there are 7"));
}

TEST_F(NvmlGpuChoiceTest, ALostGpuIsNotChosen) {
  fake_.node.Lose(3);
  EXPECT_THAT(Choose(fake_.node.Uuid(3)), HasSubstr("here: there are 6"));
}

}  // namespace
}  // namespace perseus::client
