#include "perseus/cluster/job_planning/other_schedules.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::job_planning {
namespace {

TEST(CompareSchedules, SaysWhatOneMoreMicrobatchInFlightSaves) {
  synthetic::SyntheticProfileSpec spec;
  spec.stages = 4;
  const store::ProfileRecord profile{
      .version = 3, .csv = profile::FormatProfile(*synthetic::SynthesizeProfile(spec))};
  store::JobRecord job;
  job.key = "run";
  job.body = R"({"key": "run", "gpu": {"blocking_power_w": 84},
                 "schedule": {"kind": "1f1b", "pp_ranks": 4, "microbatches": 8}})";
  const auto text = CompareSchedules(job, profile, {});
  ASSERT_TRUE(text) << text.error().message;
  const auto json = nlohmann::json::parse(*text);
  EXPECT_EQ(json["profile_version"], 3);
  EXPECT_EQ(json["running"]["in_flight"], (std::vector<int>{4, 3, 2, 1}));
  ASSERT_EQ(json["others"].size(), 3U);
  const auto& more = json["others"][1];
  EXPECT_EQ(more["in_flight"][0], 5);
  EXPECT_GT(more["saving"].get<double>(), json["running"]["saving"].get<double>() + 0.02);
  EXPECT_LE(more["saving"].get<double>(), more["most_saving"].get<double>());
  EXPECT_THAT(
      json["conclusion"].get<std::string>(),
      testing::AllOf(testing::HasSubstr("A next run with +1 (5 4 3 1 microbatches in flight, "
                                        "now 4 3 2 1) saves another "),
                     testing::HasSubstr("A next run with +2 "),
                     testing::HasSubstr("This run keeps its schedule.")));
  const auto schedule = schedule::ParseSchedule(more["csv"].get<std::string>(), "csv");
  ASSERT_TRUE(schedule) << schedule.error().message;
  // The job that runs it has nothing to gain with this memory.
  job.body =
      nlohmann::json{
          {"key", "run"}, {"gpu", {{"blocking_power_w", 84}}}, {"schedule", {{"csv", more["csv"]}}}}
          .dump();
  const auto again = nlohmann::json::parse(*CompareSchedules(job, profile, {}));
  EXPECT_NEAR(again["running"]["saving"].get<double>(), more["saving"].get<double>(), 1e-9);
  // One microbatch after the other takes longer, so its energy says nothing.
  std::string rank;
  for (int i = 0; i < 8; ++i)
    rank += fmt::format("{}{}F{},{}B{}", i > 0 ? "," : "", "S", i, "S", i);
  std::string csv;
  for (const char stage : {'0', '1', '2', '3'}) {
    std::string line = rank + "\n";
    std::ranges::replace(line, 'S', stage);
    csv += line;
  }
  job.body =
      nlohmann::json{
          {"key", "run"}, {"gpu", {{"blocking_power_w", 84}}}, {"schedule", {{"csv", csv}}}}
          .dump();
  const auto slow = nlohmann::json::parse(*CompareSchedules(job, profile, {}));
  EXPECT_TRUE(slow["running"].is_null());
  EXPECT_THAT(slow["conclusion"].get<std::string>(),
              testing::HasSubstr("The schedule of the job takes longer than 1f1b"));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(CompareSchedules(job, profile, stop.get_token()).error().kind, ErrorKind::kSystem);
}

// The newest profile may lack instructions of the schedule. This is no slower schedule.
TEST(CompareSchedules, SaysWhyTheScheduleOfTheJobHasNoPlan) {
  synthetic::SyntheticProfileSpec spec;
  spec.stages = 2;
  const store::ProfileRecord profile{
      .version = 1, .csv = profile::FormatProfile(*synthetic::SynthesizeProfile(spec))};
  store::JobRecord job;
  job.key = "run";
  job.body = R"({"key": "run", "gpu": {"blocking_power_w": 84},
                 "schedule": {"kind": "zb-h1", "pp_ranks": 2, "microbatches": 4}})";
  const auto compared = CompareSchedules(job, profile, {});
  ASSERT_FALSE(compared) << *compared;
  EXPECT_EQ(compared.error().kind, ErrorKind::kInput);
  EXPECT_THAT(compared.error().message,
              testing::AllOf(testing::StartsWith("the schedule of the job: "),
                             testing::HasSubstr("backward_input")));
}

}  // namespace
}  // namespace perseus::job_planning
