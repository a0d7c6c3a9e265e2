// Options, environment, defaults, and programs built against an older perseus.h.
#include "perseus/runtime/client/settings.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace perseus::client {
namespace {

TEST(SettingsFrom, OptionsComeBeforeTheEnvironmentAndThatBeforeDefaults) {
  ::setenv("PERSEUS_GPU", "3", 1);
  ::setenv("PERSEUS_PLAN", "theirs.json", 1);
  ::unsetenv("PERSEUS_AGENT");
  perseus_options options = PERSEUS_OPTIONS_INIT;
  options.pp_rank = 2;
  options.plan = "mine.json";
  const Settings settings = SettingsFrom(&options);
  EXPECT_EQ(settings.name, (protocol::RankId{0, 2, 0}));
  EXPECT_EQ(settings.gpu, "3");
  EXPECT_EQ(settings.plan.filename(), "mine.json");
  EXPECT_EQ(settings.agent, "/run/perseus/agent.sock");
  EXPECT_EQ(settings.devices, "auto");
  EXPECT_EQ(settings.job, "training");
  EXPECT_EQ(SettingsFrom(nullptr).plan.filename(), "theirs.json");
  ::unsetenv("PERSEUS_GPU");
  ::unsetenv("PERSEUS_PLAN");
}

TEST(SettingsFrom, RelativePathsAreThoseOfTheDirectoryAtTheOpening) {
  const std::filesystem::path here = std::filesystem::current_path();
  perseus_options options = PERSEUS_OPTIONS_INIT;
  options.job_directory = "job";
  options.plan = "plan.json";
  options.agent = "agent.sock";
  options.devices = "virtual:node.toml";
  Settings settings = SettingsFrom(&options);
  EXPECT_EQ(settings.job_directory, here / "job");
  EXPECT_EQ(settings.plan, here / "plan.json");
  EXPECT_EQ(settings.agent, (here / "agent.sock").string());
  EXPECT_EQ(settings.devices, "virtual:" + (here / "node.toml").string());

  options.job_directory = "";
  options.agent = "own";
  options.devices = "nvml:libnvidia-ml.so";  // The loader looks for it.
  settings = SettingsFrom(&options);
  EXPECT_EQ(settings.job_directory, "");
  EXPECT_EQ(settings.agent, "own");
  EXPECT_EQ(settings.devices, "nvml:libnvidia-ml.so");
  options.agent = "off";
  options.devices = "off";
  EXPECT_EQ(SettingsFrom(&options).agent, "off");
  EXPECT_EQ(SettingsFrom(&options).devices, "off");

  const std::string is_long(107, 's');  // As an absolute path, it is too long for a socket.
  options.agent = is_long.c_str();
  EXPECT_EQ(SettingsFrom(&options).agent, is_long);
}

TEST(SettingsFrom, AShorterStructHasNothingBehindItsEnd) {
  perseus_options options = PERSEUS_OPTIONS_INIT;
  options.pp_rank = 2;
  options.gpu = "not read";
  options.flags = PERSEUS_QUIET;
  options.size = offsetof(perseus_options, gpu);
  const Settings settings = SettingsFrom(&options);
  EXPECT_EQ(settings.name.pp_rank, 2);
  EXPECT_EQ(settings.gpu, "");
  EXPECT_EQ(settings.warning_output, WarningOutput::kStandardError);
}

TEST(SettingsFrom, TakesTheStagesOfTheChunks) {
  perseus_options options = PERSEUS_OPTIONS_INIT;
  options.pp_rank = 3;
  EXPECT_TRUE(SettingsFrom(&options).stages.empty());
  options.stages = "3,4";
  options.pp_ranks = 4;
  Settings settings = SettingsFrom(&options);
  EXPECT_EQ(settings.stages, (std::vector<int>{3, 4}));
  EXPECT_EQ(settings.pp_ranks, 4);
  EXPECT_THAT(settings.problems, testing::IsEmpty());

  options.size = offsetof(perseus_options, stages);
  EXPECT_TRUE(SettingsFrom(&options).stages.empty());
  EXPECT_EQ(SettingsFrom(&options).pp_ranks, 0);
}

TEST(SettingsFrom, WrongStagesAreNotRecorded) {
  perseus_options options = PERSEUS_OPTIONS_INIT;
  options.pp_rank = 3;
  options.stages = "3;4";
  options.pp_ranks = 4;
  Settings settings = SettingsFrom(&options);
  EXPECT_TRUE(settings.stages.empty());
  EXPECT_THAT(settings.problems, testing::ElementsAre(testing::HasSubstr("stages is \"3;4\"")));

  options.stages = "3,4";
  options.pp_ranks = 3;
  settings = SettingsFrom(&options);
  EXPECT_EQ(settings.pp_ranks, 0);
  EXPECT_THAT(settings.problems, testing::ElementsAre(testing::HasSubstr("pp_ranks is 3")));
}

TEST(SettingsFrom, ALogsLimitIsANumberOfBytes) {
  ::setenv("PERSEUS_LOG_BYTES", "5000", 1);
  EXPECT_EQ(SettingsFrom(nullptr).most_log_bytes, 5000U);
  EXPECT_THAT(SettingsFrom(nullptr).problems, testing::IsEmpty());
  ::setenv("PERSEUS_LOG_BYTES", "5 GB", 1);
  EXPECT_EQ(SettingsFrom(nullptr).most_log_bytes, 1073741824U);
  EXPECT_THAT(SettingsFrom(nullptr).problems,
              testing::ElementsAre(testing::HasSubstr("PERSEUS_LOG_BYTES is \"5 GB\"")));
  ::unsetenv("PERSEUS_LOG_BYTES");
  EXPECT_EQ(SettingsFrom(nullptr).most_log_bytes, 1073741824U);
}

TEST(SettingsFrom, JobsThatTheAgentWouldRefuseGetTheDefaultName) {
  perseus_options options = PERSEUS_OPTIONS_INIT;
  options.job = "two\nlines";
  EXPECT_EQ(SettingsFrom(&options).job, "training");
  EXPECT_THAT(SettingsFrom(&options).problems,
              testing::ElementsAre(testing::HasSubstr("\"two\\x0Alines\"")));
  const std::string is_long(300, 'x');
  options.job = is_long.c_str();
  EXPECT_EQ(SettingsFrom(&options).job, is_long.substr(0, 200));
  EXPECT_THAT(SettingsFrom(&options).problems,
              testing::ElementsAre(testing::HasSubstr("1 to 200 bytes")));
  const std::string is_cut_in_a_character = std::string(199, 'x') + "\u4E2D";
  options.job = is_cut_in_a_character.c_str();
  EXPECT_EQ(SettingsFrom(&options).job, "training");
}

}  // namespace
}  // namespace perseus::client
