#include "perseus/runtime/agent/doctor.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "perseus/base/file.h"
#include "perseus/runtime/agent/saved_state_file.h"
#include "tests/support/fake_device.h"
#include "tests/support/temporary_directory.h"

namespace perseus::agent {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using Level = Finding::Level;

class DoctorTest : public testing::Test {
 protected:
  DoctorTest() {
    scene_.root = root_;
    scene_.socket = scene_.root / "agent.sock";
    scene_.state = scene_.root / "agent.json";
    Write("proc/self/status", "Name:\tperseus\nCapEff:\t000001ffffffffff\n");
  }

  void Write(const std::filesystem::path& path, const std::string& text) const {
    ASSERT_TRUE(WriteFileAtomically(scene_.root / path, text));
  }
  Finding About(const std::string& what) const {
    for (const Finding& finding : ExamineNode(scene_)) {
      if (finding.what == what) return finding;
    }
    return {Level::kProblem, what, "not examined", ""};
  }
  static Finding AboutGpu(FakeGpu& gpu) {
    device::DeviceList list;
    list.devices.push_back(gpu.Open());
    return ExamineDevices(std::move(list)).at(0);
  }

  TemporaryDirectory root_;
  DoctorScene scene_;
};

TEST_F(DoctorTest, ReportsWhetherItMaySetClocks) {
  EXPECT_EQ(About("rights").level, Level::kGood);
  Write("proc/self/status", "CapEff:\t0000000000000000\n");
  EXPECT_EQ(About("rights").level, Level::kNote);
  EXPECT_THAT(About("rights").remedy, HasSubstr("sudo"));
  Write(".dockerenv", "");
  EXPECT_THAT(About("rights").remedy, HasSubstr("--cap-add SYS_ADMIN"));
}

TEST_F(DoctorTest, NamesOtherProgramsThatSetClocks) {
  EXPECT_EQ(About("other tools").level, Level::kGood);
  Write("proc/4242/comm", "nv-hostengine\n");
  EXPECT_EQ(About("other tools").level, Level::kNote);
  EXPECT_THAT(About("other tools").detail, HasSubstr("process 4242"));
}

TEST_F(DoctorTest, AMissingAgentIsNoProblem) {
  EXPECT_EQ(About("agent").level, Level::kNote);
  EXPECT_THAT(About("agent").remedy, HasSubstr("systemctl restart perseus-agent"));
}

TEST_F(DoctorTest, ChecksTheDirectoryOfTheState) {
  EXPECT_EQ(About("state").level, Level::kGood);
  scene_.state = scene_.root / "nowhere" / "agent.json";
  EXPECT_EQ(About("state").level, Level::kNote);
}

TEST_F(DoctorTest, ReportsTheContentOfTheState) {
  SavedState state;
  state.boot_id = "boot";
  Write("agent.json", FormatSavedState(state));
  EXPECT_EQ(About("state").level, Level::kGood);
  SavedGpu gpu;
  gpu.uuid = "GPU-a";
  gpu.lease = "7";
  gpu.owner = {{1, 1}, 0, "job"};
  gpu.controls[device::Control::kSmClock] = {{true, std::nullopt}, /*is_changed=*/true};
  state.gpus["GPU-a"] = gpu;
  Write("agent.json", FormatSavedState(state));
  EXPECT_EQ(About("state").level, Level::kProblem);
  EXPECT_THAT(About("state").remedy, HasSubstr("perseus gpu restore"));
  Write("agent.json", "{");
  EXPECT_EQ(About("state").level, Level::kProblem);
}

TEST_F(DoctorTest, DescribesAHealthyGpu) {
  FakeGpu gpu("GPU-a");
  const Finding finding = AboutGpu(gpu);
  EXPECT_EQ(finding.level, Level::kGood);
  EXPECT_EQ(finding.what, "GPU-a");
  EXPECT_THAT(finding.detail, HasSubstr("6 SM clocks from 900 to 1410 MHz"));
}

TEST_F(DoctorTest, SaysWhyAnEnergyCounterIsNotUsed) {
  FakeGpu gpu("GPU-a");
  gpu.SetCounter(device::CounterState::kOfModule, 0);
  EXPECT_EQ(AboutGpu(gpu).level, Level::kNote);
  EXPECT_THAT(AboutGpu(gpu).detail, HasSubstr("250 W, 50 C, 1410 MHz now; its energy counter is "
                                              "that of a whole module (GPU, CPU and memory)"));
}

TEST_F(DoctorTest, AForeignLockIsAProblemIfTheDriverCannotReportIt) {
  FakeGpu gpu("GPU-a");
  gpu.Set(device::Control::kSmClock, device::Setting{1000, 1000});
  EXPECT_EQ(AboutGpu(gpu).level, Level::kNote);
  EXPECT_THAT(AboutGpu(gpu).detail, HasSubstr("locked to 1000 MHz"));
  gpu.HideSmClock("the SM clock stands at 1000 of 1410 MHz");
  EXPECT_EQ(AboutGpu(gpu).level, Level::kProblem);
  EXPECT_THAT(AboutGpu(gpu).remedy, HasSubstr("nvidia-smi -i GPU-a -rgc"));
}

TEST_F(DoctorTest, ReportsHeatPowerAndAMissingDriver) {
  FakeGpu gpu("GPU-a");
  device::ClockLimits limits;
  limits.Add(device::ClockLimit::kThermal);
  limits.Add(device::ClockLimit::kIdle);
  gpu.SetLimits(limits);
  EXPECT_THAT(AboutGpu(gpu).detail, HasSubstr("clock limited by: too hot"));
  gpu.Set(device::Control::kPowerLimit, device::Setting{250'000, 250'000});
  EXPECT_THAT(AboutGpu(gpu).detail, HasSubstr("power limit 250 W, not the default 400 W"));
  gpu.Break(device::DeviceErrorKind::kGone, "the driver is gone");
  EXPECT_EQ(AboutGpu(gpu).level, Level::kProblem);
  EXPECT_THAT(AboutGpu(gpu).detail, HasSubstr("the driver is gone"));
}

TEST_F(DoctorTest, NoDriverAndMigPartsAreProblems) {
  EXPECT_THAT(ExamineDevices(FailAs(ErrorKind::kSystem, "no libnvidia-ml.so.1")),
              Contains(Field(&Finding::detail, HasSubstr("no libnvidia-ml"))));
  device::DeviceList list;
  list.refused.push_back({"GPU-m", "MIG mode is on (nvidia-smi -mig 0)"});
  const auto findings = ExamineDevices(std::move(list));
  EXPECT_EQ(findings.at(0).level, Level::kProblem);
  EXPECT_THAT(findings.at(0).detail, HasSubstr("nvidia-smi -mig 0"));
}

}  // namespace
}  // namespace perseus::agent
