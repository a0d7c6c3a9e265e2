// A restarted profiler keeps its measurements. It accepts no measurements of another job.
#include "perseus/runtime/profiler/profiler_state.h"

#include <gmock/gmock.h>

#include "tests/support/results.h"

namespace perseus::profiler {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Alternates forward and backward with waits. The energies differ enough to separate the two kinds.
protocol::RanStep Step(int number) {
  protocol::RanStep step;
  step.step = number;
  step.end = 2'400'000'000;
  for (int i = 0; i < 20; ++i) {
    const Nanoseconds at = Nanoseconds{i} * 113'000'000;
    step.instructions.push_back({InstructionKind::kForward, i, 0, at, 31'000'000 + i * 1000, 1400});
    step.instructions.push_back(
        {InstructionKind::kBackward, i, 0, at + 40'000'000, 57'000'000 - i * 3000, 1400});
  }
  for (int i = 0; i < 23; ++i) {
    const Nanoseconds at = Nanoseconds{i} * 100'000'000;
    step.energy.push_back({at, at + 10'000'000, 31.0 * i + (i * i) % 7});
    step.reached.push_back({at + 10'000'000, 1300 + i});
  }
  step.is_limited = true;
  step.limited_by = {"power"};
  return step;
}

ProfilerState MakeState() {
  ProfilerState state;
  state.job = "1f1b 2x20";
  state.spent = {36, 171.25};
  state.further_noise = 0.1 + 0.2;
  state.noise.Add(std::vector{Step(0).instructions, Step(1).instructions});
  GpuMeasurements gpu({.switch_latency = 3'000'000});
  gpu.Add(Step(0));
  gpu.Add(Step(1));
  state.gpus.insert({protocol::RankId{0, 1, 0}, KnownGpu{"GPU-1", "Virtual A100", std::move(gpu)}});
  return state;
}

TEST(ProfilerState, ARestartedProfilerContinuesUnchanged) {
  ProfilerState before = MakeState();
  ProfilerState after = ValueOf(ParseProfilerState(FormatProfilerState(before), "state.json"));
  EXPECT_EQ(after.job, before.job);
  EXPECT_EQ(after.spent.steps, 36);
  EXPECT_EQ(after.spent.seconds, 171.25);
  EXPECT_EQ(after.noise.state(), before.noise.state());
  EXPECT_EQ(after.noise.state().blocks, 1);
  EXPECT_EQ(after.further_noise, before.further_noise);
  EXPECT_EQ(FormatProfilerState(after), FormatProfilerState(before));
  GpuMeasurements& one = before.gpus.at({0, 1, 0}).measurements;
  GpuMeasurements& other = after.gpus.at({0, 1, 0}).measurements;
  one.Add(Step(2));
  other.Add(Step(2));
  const std::vector<MeasuredOption> expected = one.Options(1);
  const std::vector<MeasuredOption> options = other.Options(1);
  ASSERT_EQ(options.size(), expected.size());
  ASSERT_FALSE(options.empty());
  for (std::size_t i = 0; i < options.size(); ++i) {
    EXPECT_EQ(options[i].samples, 60);
    EXPECT_EQ(options[i].time_s, expected[i].time_s);
    EXPECT_EQ(options[i].power_w, expected[i].power_w);
    EXPECT_GT(options[i].power_w, 0);
    EXPECT_EQ(options[i].power_ci_w, expected[i].power_ci_w);
    EXPECT_EQ(options[i].reached_mhz, expected[i].reached_mhz);
    EXPECT_EQ(options[i].usual_mhz, expected[i].usual_mhz);
    EXPECT_LT(options[i].usual_mhz, options[i].reached_mhz);
    EXPECT_GT(options[i].reached_mhz, 1300);
  }
  EXPECT_EQ(FormatProfilerState(after), FormatProfilerState(before));
}

TEST(ProfilerState, AnotherJobsMeasurementsAreRefused) {
  const ProfilerState state = MakeState();
  EXPECT_TRUE(CheckSameJob(state, "1f1b 2x20", "s.json"));
  EXPECT_EQ(CheckSameJob(state, "gpipe 2x20", "s.json").error().Message(),
            "s.json: the measurements are of the job \"1f1b 2x20\", but this job is \"gpipe 2x20\" "
            "(remove the file to measure again)");
  protocol::RankHeader header;
  header.name = {0, 1, 0};
  header.gpu_name = "Virtual A100";
  EXPECT_TRUE(CheckSameGpu(state, header, "s.json"));
  header.gpu_name = "Virtual A40";
  EXPECT_EQ(CheckSameGpu(state, header, "s.json").error().Message(),
            "s.json: dp0-pp1-tp0 was measured on \"Virtual A100\" but runs on \"Virtual A40\" now "
            "(remove the file to measure again)");
  header.name.pp_rank = 0;  // The state has no measurements of this rank.
  EXPECT_TRUE(CheckSameGpu(state, header, "s.json"));
}

std::string Replaced(std::string_view from, std::string_view to) {
  std::string text = FormatProfilerState(MakeState());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ProfilerState, ErrorsNameTheirPlace) {
  const auto message = [](std::string_view from, std::string_view to) {
    const Result<ProfilerState> state = ParseProfilerState(Replaced(from, to), "s.json");
    return state ? std::string("accepted") : state.error().Message();
  };
  EXPECT_EQ(
      message("\"perseus_profiler\":2", "\"perseus_profiler\":1"),
      "s.json: perseus_profiler is 1 (this version reads 2; remove the file to measure again)");
  EXPECT_THAT(message("\"steps\":36", "\"steps\":-1"), StartsWith("s.json: spent.steps is not"));
  EXPECT_THAT(message("\"blocks\":1", "\"blocks\":-1"), StartsWith("s.json: noise.blocks is not"));
  EXPECT_THAT(message("\"squares\":0", "\"squares\":-0"),
              StartsWith("s.json: noise.groups[0].squares is not"));
  EXPECT_THAT(message("\"forward\"", "\"sideways\""),
              HasSubstr("gpus[0].records[0].kind \"sideways\" is no instruction kind"));
  EXPECT_THAT(message("\"parameter\":1", "\"parameter\":99"),
              HasSubstr("gpus[0].records[0].parameter is not"));
  EXPECT_THAT(message("\"parameter\":1", "\"parameter\":2"), HasSubstr("is given twice"));
  EXPECT_THAT(message("\"right\":[", "\"right\":[1,1,1,"), HasSubstr("fits[0].right has more"));
  EXPECT_THAT(message("\"gpu_name\"", "\"gpu_nome\""), HasSubstr("gpus[0] has no key"));
  EXPECT_THAT(ParseProfilerState("{", "s.json").error().Message(),
              StartsWith("s.json:1: not JSON"));
}

}  // namespace
}  // namespace perseus::profiler
