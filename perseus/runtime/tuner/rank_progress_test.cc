#include "perseus/runtime/tuner/rank_progress.h"

#include <gtest/gtest.h>

#include <string>

#include "perseus/base/file.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

class ReadProgressTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(directory_ / "ranks");
    ASSERT_TRUE(WriteFileAtomically(directory_ / "ranks" / name, text));
  }
  Progress Read(const std::set<int>& dp_ranks, std::filesystem::file_time_type since =
                                                   std::filesystem::file_time_type::min()) const {
    return ValueOf(ReadProgress(directory_.path(), dp_ranks, since));
  }
  TemporaryDirectory directory_;
};

TEST_F(ReadProgressTest, AddsUpPipelinesAndTakesOneOfTheRanksThatShareSamples) {
  Write("dp0-pp0-tp0.progress", R"({"perseus_progress":1,"steps":10,"samples":80,"tokens":0})");
  Write("dp0-pp0-tp1.progress", R"({"perseus_progress":1,"steps":10,"samples":80,"tokens":100})");
  Write("dp1-pp0-tp0.progress", R"({"perseus_progress":1,"steps":5,"samples":20,"tokens":60})");
  EXPECT_DOUBLE_EQ(Read({0, 1}).samples, 8 + 4);
  EXPECT_DOUBLE_EQ(Read({0, 1}).tokens, 10 + 12);
}

TEST_F(ReadProgressTest, IsUnknownIfAPipelineDidNotSayIt) {
  EXPECT_EQ(Read({0}).samples, 0);
  Write("dp0-pp0-tp0.progress", R"({"perseus_progress":1,"steps":10,"samples":80,"tokens":9})");
  EXPECT_EQ(Read({0, 1}).samples, 0);
  EXPECT_EQ(Read({0}, std::filesystem::file_time_type::max()).samples, 0);
}

TEST_F(ReadProgressTest, OtherContentDoesNotCount) {
  for (const char* text : {"", "[]", R"({"perseus_progress":2,"steps":1,"samples":1,"tokens":1})",
                           R"({"perseus_progress":1,"steps":0,"samples":1,"tokens":1})",
                           R"({"perseus_progress":1,"steps":1,"samples":-1,"tokens":1})"}) {
    Write("dp0-pp0-tp0.progress", text);
    EXPECT_EQ(Read({0}).samples, 0) << text;
  }
}

}  // namespace
}  // namespace perseus::tuner
