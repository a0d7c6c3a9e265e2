#include "perseus/planning/hardware_facts/hardware_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "perseus/base/file.h"
#include "tests/support/temporary_directory.h"

namespace perseus::hardware_facts {
namespace {

using ::testing::StartsWith;

constexpr std::string_view kExample = PERSEUS_SOURCE_DIR "/examples/hardware-facts.toml";

HardwareFacts Example() {
  const auto facts = Read(kExample);
  EXPECT_TRUE(facts) << facts.error().Message();
  return facts.value_or(HardwareFacts());
}

// The least file, of eight lines. `more` begins in line 9.
std::string Least(std::string_view more = {}) {
  return "format = \"perseus-hardware-facts\"\nversion = 1\nhost = \"a\"\ngpu_name = \"G\"\n"
         "driver_version = \"1\"\nmeasured_at = \"2026-02-22T17:05:00Z\"\n"
         "perseus_version = \"0.1.0\"\ngpu_count = 8\n" +
         std::string(more);
}

std::string ErrorOf(std::string_view text) {
  const auto facts = Parse(text, "facts.toml");
  return facts ? "no error" : facts.error().Message();
}

TEST(HardwareFacts, TheExampleHasAllFields) {
  const HardwareFacts facts = Example();
  EXPECT_EQ(facts.host, "node-1");
  EXPECT_EQ(facts.gpu_name, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(facts.driver_version, "570.124.06");
  EXPECT_EQ(facts.measured_at, "2026-02-22T17:05:00Z");
  EXPECT_EQ(facts.perseus_version, "0.1.0");
  EXPECT_EQ(facts.gpu_count, 8);
  EXPECT_EQ(facts.nodes, 1);
  EXPECT_EQ(facts.max_changes_per_s, (Estimate{80, 80, 160, 35}));
  EXPECT_EQ(facts.range_lock_saves, true);
  EXPECT_THAT(facts.limits, testing::ElementsAre(StartsWith("The power limit of 400 W")));
  ASSERT_EQ(facts.switches.size(), 2);
  EXPECT_EQ(facts.switches[1], (SwitchFacts{Direction::kDown,
                                            true,
                                            true,
                                            {12.5, 12.1, 13.2, 40},
                                            21,
                                            {6.8, 6.5, 7.2, 40},
                                            Estimate{0.11, 0.09, 0.13, 40}}));
  EXPECT_EQ(facts.switches[0].direction, Direction::kUp);
  ASSERT_EQ(facts.power.size(), 2);
  EXPECT_EQ(facts.power[1],
            (PowerFacts{810, Estimate{56, 55.4, 56.7, 50}, Estimate{77.5, 76.8, 78.1, 50}, {}}));
  EXPECT_EQ(facts.energy_counter,
            (EnergyCounterFacts{{99.8, 98, 101, 30}, 0.001, {-0.012, -0.02, -0.004, 10}}));
  ASSERT_EQ(facts.interference.size(), 1);
  EXPECT_EQ(facts.interference[0],
            (InterferenceFacts{"collective", 20, 0, {0.013, 0.009, 0.018, 20}}));
}

TEST(HardwareFacts, ReadsBackWhatItWrites) {
  HardwareFacts facts = Example();
  facts.host = "a \"b\" \\c";
  facts.limits.emplace_back("50 \u00b0C");
  facts.range_lock_saves = false;
  facts.power[0].idle_w = Estimate{1.0 / 3, 1e-9, 1e4, 1};
  const auto again = Parse(Format(facts), "facts.toml");
  ASSERT_TRUE(again) << again.error().Message();
  EXPECT_EQ(*again, facts);
}

TEST(HardwareFacts, TheLeastFileHasNoMeasurement) {
  const auto facts = Parse(Least(), "facts.toml");
  ASSERT_TRUE(facts) << facts.error().Message();
  EXPECT_EQ(Parse(Format(*facts), "facts.toml").value(), *facts);
  EXPECT_EQ(SwitchLatencyForPlanning(*facts), std::nullopt);
  EXPECT_EQ(SwitchStallForPlanning(*facts), std::nullopt);
  EXPECT_EQ(BlockingPower(*facts), std::nullopt);
  EXPECT_EQ(IdlePower(*facts), std::nullopt);
  EXPECT_EQ(facts->max_changes_per_s, std::nullopt);
  EXPECT_EQ(facts->range_lock_saves, std::nullopt);
}

// Earlier versions measured host functions.
TEST(HardwareFacts, RowsOfAnEarlierVersionAreCheckedAndIgnored) {
  const std::string row = Least("[[interference]]\nkind = \"host_function\"\nchanges_per_s = 0\n");
  const auto facts =
      Parse(row + "reads_per_s = 0\nslowdown = {value = 3, low = 2, high = 4, samples = 6}",
            "facts.toml");
  ASSERT_TRUE(facts) << facts.error().Message();
  EXPECT_EQ(*facts, Parse(Least(), "facts.toml").value());
  EXPECT_THAT(ErrorOf(row), StartsWith("facts.toml:9: [[interference]] has no reads_per_s"));
}

TEST(HardwareFacts, PlansUseTheSlowestCaseAndTheLongestStall) {
  HardwareFacts facts = Example();
  EXPECT_EQ(SwitchLatencyForPlanning(facts), 12'500'000);
  EXPECT_EQ(SwitchStallForPlanning(facts), 110'000);
  facts.switches[0].stall_ms = Estimate{0.2, 0.1, 0.3, 5};
  EXPECT_EQ(SwitchStallForPlanning(facts), 200'000);
}

TEST(HardwareFacts, TheBlockingPowerIsTheMedianOverClocks) {
  HardwareFacts facts = Example();
  // Two clocks: the mean of 95 and 77.5. The interval covers both.
  EXPECT_EQ(BlockingPower(facts), (Estimate{(95 + 77.5) / 2, 76.8, 96, 100}));
  facts.power.push_back({1200, {}, Estimate{80, 79, 81, 5}, {}});
  EXPECT_EQ(BlockingPower(facts), (Estimate{80, 76.8, 96, 105}));
  facts.power[0].blocked_w.reset();
  facts.power[1].blocked_w.reset();
  EXPECT_EQ(BlockingPower(facts), (Estimate{80, 79, 81, 5}));
  EXPECT_EQ(IdlePower(facts)->value, 59);
}

TEST(HardwareFacts, EveryMistakeHasItsPlace) {
  EXPECT_THAT(ErrorOf("format = "), StartsWith("facts.toml:1: not TOML: "));
  EXPECT_EQ(ErrorOf("version = 1"),
            "facts.toml:1: the hardware facts file has no format (write format = "
            "\"perseus-hardware-facts\")");
  EXPECT_EQ(ErrorOf("format = \"perseus-plan\"\nversion = 1"),
            "facts.toml:1: this is not a hardware facts file: its format is not "
            "\"perseus-hardware-facts\" (make the file with perseus qualify)");
  EXPECT_EQ(ErrorOf("format = \"perseus-hardware-facts\"\nversion = 2\nnew_key = 1"),
            "facts.toml:2: version is not 1, the version that this program reads (measure again "
            "with its perseus qualify)");
  EXPECT_EQ(ErrorOf(Least("nods = 2")),
            "facts.toml:9: the hardware facts file has no key \"nods\" (did you mean \"nodes\"?)");
  EXPECT_EQ(ErrorOf(Least("range_lock_saves = 1")),
            "facts.toml:9: range_lock_saves is not true or false (write range_lock_saves = true)");
  EXPECT_EQ(ErrorOf(Least("limits = \"none\"")),
            "facts.toml:9: limits is not a list of sentences (write limits = [\"...\"])");
  EXPECT_EQ(ErrorOf(Least("switch = 1")),
            "facts.toml:9: switch is not a list of tables (write [[switch]] above each one)");
  EXPECT_EQ(ErrorOf(Least("switch = [1]")),
            "facts.toml:9: switch has an element that is not a table (write [[switch]] above each "
            "one)");
  EXPECT_EQ(ErrorOf(Least("[[power]]\nidle_w = 60")),
            "facts.toml:10: idle_w is not a value with its interval (write idle_w = {value = 2, "
            "low = 1.8, high = 2.3, samples = 40})");
  EXPECT_EQ(ErrorOf(Least("[[power]]\nsm_clock_mhz = 900\n"
                          "idle_w = {value = 60, low = 61, high = 62, samples = 3}")),
            "facts.toml:11: idle_w has a value of 60 outside of its interval, 61 to 62 (low <= "
            "value <= high must hold)");
  EXPECT_EQ(ErrorOf(Least("[[power]]\nsm_clock_mhz = 900\nidle_w = {value = 60, low = 60}")),
            "facts.toml:11: idle_w has no high (write high = 2)");
  EXPECT_EQ(ErrorOf(Least("[[power]]\nsm_clock_mhz = 900\n[[power]]\nsm_clock_mhz = 900")),
            "facts.toml:11: another [[power]] has the same sm_clock_mhz (keep one of them)");
  EXPECT_EQ(ErrorOf(Least("[[switch]]\ndirection = \"left\"")),
            "facts.toml:10: unknown direction \"left\" (known: up, down)");
  EXPECT_EQ(ErrorOf(Least("[[switch]]\ndirection = \"up\"\nfar = true\nall_gpus = true")),
            "facts.toml:9: [[switch]] has no latency_ms (write latency_ms = {value = 2, low = 1.8, "
            "high = 2.3, samples = 40})");
  EXPECT_EQ(ErrorOf(Least("[energy_counter]\nresolution_j = -1")),
            "facts.toml:9: [energy_counter] has no period_ms (write period_ms = {value = 2, low = "
            "1.8, high = 2.3, samples = 40})");
  EXPECT_THAT(ErrorOf(Least("[[interference]]\nkind = \"lunch\"")),
              StartsWith("facts.toml:10: unknown kind of work \"lunch\" (did you mean \"launch\""));
}

TEST(HardwareFacts, TheTimeIsUtc) {
  for (const std::string_view bad :
       {"2026-02-22T17:05:00+01:00", "2026-02-22 17:05:00Z", "2026-13-22T17:05:00Z",
        "2026-02-22T25:05:00Z", "2026-02-22"}) {
    std::string text = Least();
    text.replace(text.find("2026"), std::string_view("2026-02-22T17:05:00Z").size(), bad);
    EXPECT_EQ(ErrorOf(text), "facts.toml:6: measured_at \"" + std::string(bad) +
                                 "\" is not a time in UTC (write measured_at = "
                                 "\"2026-02-22T17:05:00Z\")");
  }
}

TEST(HardwareFacts, WritesOnlyWhatItCanRead) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "facts.toml";
  HardwareFacts facts = Example();
  ASSERT_TRUE(Write(path, facts));
  EXPECT_EQ(Read(path).value(), facts);

  facts.power[0].busy_w = Estimate{5, 6, 7, 1};
  const auto written = Write(path, facts);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().Message(), testing::HasSubstr("busy_w has a value of 5 outside"));
  EXPECT_EQ(Read(path).value(), Example());
  EXPECT_EQ(Read(directory.path() / "none").error().kind, ErrorKind::kFile);
}

}  // namespace
}  // namespace perseus::hardware_facts
