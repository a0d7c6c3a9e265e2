#include "perseus/runtime/agent/agent_report.h"

#include <gmock/gmock.h>

#include <initializer_list>
#include <optional>
#include <string>

namespace perseus::agent {
namespace {

using device::ClockLimit;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns a GPU with clocks of up to 1410 MHz. It runs at `mhz`, and a job has requested `set_mhz`.
GpuReport BusyGpu(int mhz, std::optional<int> set_mhz, std::initializer_list<ClockLimit> limits) {
  GpuReport gpu;
  gpu.info.uuid = "GPU-a";
  gpu.info.sm_clocks_mhz = {900, 1200, 1410};
  gpu.snapshot.telemetry.emplace();
  gpu.snapshot.telemetry->sm_clock_mhz = mhz;
  for (const ClockLimit limit : limits) gpu.snapshot.telemetry->limits.Add(limit);
  gpu.snapshot.is_serving = set_mhz.has_value();
  if (set_mhz) {
    gpu.snapshot.setting =
        ControlSetting{device::Control::kSmClock, device::Setting{*set_mhz, *set_mhz}};
  }
  return gpu;
}

std::string Why(const GpuReport& gpu) { return Describe(WhySlow(gpu)); }

TEST(SlowReasons, PlanIsToldApartFromFaults) {
  EXPECT_EQ(Why(BusyGpu(1410, std::nullopt, {})), "");
  EXPECT_EQ(Why(BusyGpu(1200, 1200, {ClockLimit::kSetting})), "plan");
  EXPECT_EQ(Why(BusyGpu(1200, 1200, {ClockLimit::kSetting, ClockLimit::kPowerCap})), "plan")
      << "it has the clock of its plan";
  EXPECT_EQ(Why(BusyGpu(900, 1200, {ClockLimit::kThermal})), "plan, temperature");
  EXPECT_EQ(Why(BusyGpu(1200, 1410, {ClockLimit::kPowerBrake})), "power brake");
  EXPECT_EQ(Why(BusyGpu(1200, std::nullopt, {ClockLimit::kPowerCap})), "power");
  EXPECT_EQ(Why(BusyGpu(1200, std::nullopt, {ClockLimit::kSetting})), "another program");
  EXPECT_EQ(Why(BusyGpu(1200, std::nullopt, {ClockLimit::kOther})), "unknown");
}

TEST(SlowReasons, AnIdleGpuIsNotSlow) {
  EXPECT_EQ(Why(BusyGpu(900, 1200, {ClockLimit::kIdle})), "");
  GpuReport silent = BusyGpu(900, 1200, {});
  silent.snapshot.telemetry.reset();
  EXPECT_EQ(Why(silent), "");
}

TEST(SlowReasons, TheClockFromBeforeTheLeaseIsNoPlan) {
  GpuReport gpu = BusyGpu(1200, 1200, {ClockLimit::kSetting});
  gpu.before = {{device::Control::kSmClock, device::Setting{1200, 1200}}};
  EXPECT_EQ(Why(gpu), "another program");
}

TEST(SlowReasons, AForeignLockIsNamed) {
  GpuReport gpu = BusyGpu(900, std::nullopt, {ClockLimit::kSetting});
  gpu.snapshot.foreign = ForeignClock{.setting = device::Setting{900, 900},
                                      .sm_clock_mhz = 900,
                                      .is_certain = true,
                                      .has_yielded = true};
  EXPECT_EQ(Why(gpu), "another program");
  EXPECT_EQ(DescribeForeign(gpu.snapshot),
            "another program has locked the SM clock to 900 MHz (the agent sets no clock until it "
            "is unlocked)");
  gpu.snapshot.foreign->setting.reset();
  gpu.snapshot.foreign->has_yielded = false;
  EXPECT_EQ(DescribeForeign(gpu.snapshot),
            "another program has locked the SM clock to about 900 MHz (the agent sets the clock of "
            "the job again)");
}

TEST(Metrics, AnUnknownValueIsAbsent) {
  AgentReport report;
  report.gpus = {BusyGpu(900, std::nullopt, {})};
  device::Telemetry& telemetry = *report.gpus[0].snapshot.telemetry;
  telemetry.counter = device::CounterState::kStandsStill;
  telemetry.counter_falls = 3;
  std::string text = FormatMetrics(report, "box");
  for (const char* name : {"POWER_USAGE", "TOTAL_ENERGY", "GPU_TEMP", "MEM_CLOCK"}) {
    EXPECT_THAT(text, Not(HasSubstr(name)));
  }
  const std::string labels = R"({gpu="0",UUID="GPU-a",pci_bus_id="",Hostname="box")";
  EXPECT_THAT(text,
              HasSubstr("perseus_gpu_energy_meter" + labels + ",state=\"stands_still\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("perseus_gpu_energy_meter" + labels + ",state=\"used\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("perseus_gpu_energy_falls_total" + labels + "} 3\n"));
  telemetry.power_w = 250;
  telemetry.energy_j = 2;
  text = FormatMetrics(report, "box");
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_POWER_USAGE" + labels + "} 250\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" + labels + "} 2000\n"));
  EXPECT_EQ(ListingOf(report).gpus[0].temperature_c, std::nullopt);
}

// Prometheus would rename such a label of the agent to exported_job.
TEST(AgentMetrics, NoLabelIsOneThatAScrapeSets) {
  AgentReport report;
  report.gpus = {BusyGpu(900, 1200, {})};
  report.gpus[0].lease.emplace().owner.job = "llama-7b";
  const std::string text = FormatMetrics(report, "box");
  EXPECT_THAT(text, HasSubstr(",key=\"llama-7b\"} "));
  for (const char* label : {"{job=", ",job=", "{instance=", ",instance="}) {
    EXPECT_THAT(text, Not(HasSubstr(label)));
  }
}

TEST(SlowReasons, MetricsHaveEachReason) {
  AgentReport report;
  report.gpus = {BusyGpu(900, 1200, {ClockLimit::kThermal})};
  const std::string text = FormatMetrics(report, "box");
  const std::string labels = R"({gpu="0",UUID="GPU-a",pci_bus_id="",Hostname="box",)";
  EXPECT_THAT(text, HasSubstr("perseus_gpu_slow" + labels + "reason=\"plan\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("perseus_gpu_slow" + labels + "reason=\"temperature\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("perseus_gpu_slow" + labels + "reason=\"another_program\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("perseus_gpu_overrides_total" + labels + "change=\"locked\"} 0\n"));
}

}  // namespace
}  // namespace perseus::agent
