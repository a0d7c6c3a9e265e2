// Which GPU each way to name it chooses.
#include "perseus/runtime/client/gpu_choice.h"

#include <fmt/core.h>
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
    const auto chosen = OpenGpu("virtual:" + path.string(), virtual_gpu::OpenVirtualNode, wanted,
                                {.cuda = visible});
    return chosen ? chosen->uuid : chosen.error().Message();
  }
};

// GPUs a0, a1, ... by their numbers on the bus; their UUIDs are in the reverse order.
std::string ChooseAmong(bool are_amd, const std::string& wanted, const VisibleGpus& visible) {
  device::FoundDevices found;
  found.are_amd = are_amd;
  constexpr int kGpus = 8;
  for (int i = kGpus - 1; i >= 0; --i) {
    found.usable.push_back(
        {fmt::format("GPU-{}-a{}", kGpus - i, i), fmt::format("0000:0{}:00.0", i)});
  }
  const auto chosen = ChooseGpu(found, wanted, visible);
  if (!chosen) return chosen.error().Message();
  const std::string& uuid = found.usable[*chosen].uuid;
  return uuid.substr(uuid.rfind('-') + 1);
}

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

TEST(AmdGpuChoiceTest, TheVariablesOfRocmChooseOneAfterTheOther) {
  const auto choose = [](const std::string& wanted, const VisibleGpus& visible) {
    return ChooseAmong(true, wanted, visible);
  };
  EXPECT_EQ(choose("2", {}), "a2");
  EXPECT_EQ(choose("1", {.hip = "5,3"}), "a3");
  EXPECT_EQ(choose("1", {.cuda = "5,3"}), "a3");
  EXPECT_EQ(choose("1", {.cuda = "0,1", .hip = "5,3"}), "a3");
  EXPECT_EQ(choose("1", {.cuda = "6,7", .hip = ""}), "a7");
  EXPECT_EQ(choose("1", {.rocr = "4,6"}), "a6");
  EXPECT_EQ(choose("0", {.hip = "1", .rocr = "4,6"}), "a6");
  EXPECT_EQ(choose("", {.hip = "1", .rocr = "4,6"}), "a6");
  EXPECT_EQ(choose("0", {.hip = "GPU-2", .rocr = "4,6"}), "a6");
  EXPECT_EQ(choose("1", {.rocr = "GPU-1,GPU-3"}), "a5");
  EXPECT_EQ(choose("GPU-8-a0", {.rocr = "4,6"}), "a0");  // A UUID needs no variable.
  EXPECT_THAT(choose("0", {.hip = "4", .rocr = "4,6"}), HasSubstr("among the visible ones"));
  EXPECT_THAT(choose("0", {.hip = "GPU-8", .rocr = "4,6"}), HasSubstr("among the visible ones"));
  EXPECT_THAT(choose("", {.rocr = "4,6"}), HasSubstr("which of the visible GPUs \"4,6\"?"));
}

TEST(AmdGpuChoiceTest, CudaReadsOnlyItsOwnVariable) {
  EXPECT_EQ(ChooseAmong(false, "1", {.cuda = "5,3", .hip = "0,1", .rocr = "6,7"}), "a3");
  EXPECT_EQ(ChooseAmong(false, "1", {.hip = "5,3", .rocr = "6,7"}), "a1");
}

class MigGpuChoiceTest : public ::testing::Test {
 protected:
  // GPU 0 of the bus is in MIG mode and has one instance.
  MigGpuChoiceTest() {
    found_.usable = {{"GPU-b", "0000:02:00.0"}, {"GPU-c", "0000:03:00.0"}};
    found_.refused.push_back({"GPU-a (A100)", "it is in MIG mode", "GPU-a", "0000:01:00.0"});
    found_.refused.push_back({"MIG-1", "it is a MIG instance of GPU-a", "MIG-1", {}});
  }
  std::string Choose(const std::string& wanted, const char* visible = nullptr) {
    const auto chosen = ChooseGpu(found_, wanted, {.cuda = visible});
    return chosen ? found_.usable[*chosen].uuid : chosen.error().Message();
  }
  device::FoundDevices found_;
};

TEST_F(MigGpuChoiceTest, NumbersCountAGpuInMigMode) {
  EXPECT_EQ(Choose("1", "1,2"), "GPU-c");
  EXPECT_EQ(Choose("1"), "GPU-b");
}

TEST_F(MigGpuChoiceTest, AGpuInMigModeIsNamedAndNoOtherIsTaken) {
  for (const char* wanted : {"0", "GPU-a"}) {
    EXPECT_THAT(Choose(wanted), HasSubstr("GPU-a (A100) cannot be used: it is in MIG mode"));
  }
  EXPECT_THAT(Choose("", "0"), HasSubstr("it is in MIG mode"));
  EXPECT_THAT(Choose(""), HasSubstr("which of 3 GPUs?"));
}

TEST_F(MigGpuChoiceTest, AnInstanceIsNamedAndNoOtherGpuIsTaken) {
  EXPECT_THAT(Choose("MIG-1"), HasSubstr("it is a MIG instance of GPU-a"));
  EXPECT_THAT(Choose("", "MIG-1"), HasSubstr("it is a MIG instance of GPU-a"));
  // A container may show an instance alone.
  found_.refused.clear();
  for (const char* name : {"MIG-1", "MIG-GPU-a/1/0"}) {
    EXPECT_THAT(Choose(name), HasSubstr("is a MIG instance, without a clock of its own"));
    EXPECT_THAT(Choose("0", name), HasSubstr("is a MIG instance, without a clock of its own"));
  }
}

// What a choice among the GPUs of NVML costs, in calls.
class NvmlGpuChoiceTest : public testing::Test {
 protected:
  // The UUID, or what is wrong.
  std::string Choose(const std::string& wanted, const char* visible = nullptr) {
    const std::uint64_t before = fake_.node.LogEnd();
    const auto chosen =
        OpenGpu("nvml:" FAKE_NVML_LIBRARY, virtual_gpu::OpenVirtualNode, wanted, {.cuda = visible});
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
  EXPECT_EQ(Choose("6"), fake_.node.Uuid(6));
  EXPECT_LE(calls_, 55);
  EXPECT_EQ(Choose("0", "3"), fake_.node.Uuid(3));
  const std::string beginning = fake_.node.Uuid(2).substr(0, 16);
  EXPECT_EQ(Choose(beginning), fake_.node.Uuid(2));
  EXPECT_LE(calls_, 55);
}

TEST_F(NvmlGpuChoiceTest, SaysWhatIsMissing) {
  EXPECT_THAT(Choose(""), HasSubstr("which of 8 GPUs?"));
  EXPECT_THAT(Choose("8"), HasSubstr("no GPU \"8\" here: there are 7"));
  EXPECT_THAT(Choose("GPU-other"), HasSubstr("no GPU \"GPU-other\" here: there are 7"));
  EXPECT_THAT(Choose(fake_.node.Uuid(4)), HasSubstr("cannot be used: it is in MIG mode"));
  EXPECT_THAT(Choose("4"), HasSubstr("cannot be used: it is in MIG mode"));
  EXPECT_THAT(Choose("MIG-" + fake_.node.Uuid(4).substr(4)), HasSubstr("MIG instance"));
}

TEST_F(NvmlGpuChoiceTest, ALostGpuIsNotChosen) {
  fake_.node.Lose(3);
  EXPECT_THAT(Choose(fake_.node.Uuid(3)), HasSubstr("here: there are 6"));
}

}  // namespace
}  // namespace perseus::client
