#include "perseus/runtime/tuner/rank_memory.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "perseus/base/file.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::tuner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Part = profile::StageMemory::Part;

class ReadRankMemoryTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(directory_ / "ranks");
    ASSERT_TRUE(WriteFileAtomically(directory_ / "ranks" / name, text));
  }
  TemporaryDirectory directory_;
};

TEST_F(ReadRankMemoryTest, IsEmptyWithoutFiles) {
  EXPECT_EQ(ReadRankMemory(directory_.path())->has_value(), false);
  Write("dp0-pp0-tp0.jsonl", "{}\n");
  EXPECT_EQ(ReadRankMemory(directory_.path())->has_value(), false);
}

TEST_F(ReadRankMemoryTest, TheGreatestOfTheGpusOfAStageCounts) {
  Write(
      "dp0-pp0-tp0.memory.json",
      R"({"perseus_rank_memory":1,"activation_bytes":[100,40],"model_bytes":900,"peak_bytes":7})");
  Write("dp1-pp0-tp1.memory.json",
        R"({"perseus_rank_memory":1,"activation_bytes":[90,50],"model_bytes":950,"peak_bytes":9})");
  Write("dp0-pp1-tp0.memory.json",
        R"({"perseus_rank_memory":1,"activation_bytes":[70,60],"model_bytes":800,"peak_bytes":5})");
  const auto memory = ValueOf(ReadRankMemory(directory_.path()));
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->peak_bytes, 9);
  EXPECT_EQ(memory->stages.source, profile::MemorySource::kMeasured);
  EXPECT_THAT(memory->stages.parts, ElementsAre(Part{0, 0, 100, 950}, Part{0, 1, 50, 0},
                                                Part{1, 0, 70, 800}, Part{1, 1, 60, 0}));
}

TEST_F(ReadRankMemoryTest, RefusesOtherContents) {
  Write("dp0-pp0-tp0.memory.json",
        R"({"perseus_rank_memory":1,"activation_bytes":[],"model_bytes":1,"peak_bytes":1})");
  EXPECT_THAT(ReadRankMemory(directory_.path()).error().Message(),
              HasSubstr("dp0-pp0-tp0.memory.json"));
}

TEST_F(ReadRankMemoryTest, FollowsNoLinkInPlaceOfRanks) {
  std::filesystem::create_directory(directory_ / "elsewhere");
  std::filesystem::create_directory_symlink("elsewhere", directory_ / "ranks");
  EXPECT_THAT(ReadRankMemory(directory_.path()).error().Message(),
              HasSubstr("ranks: is a symbolic link"));
}

}  // namespace
}  // namespace perseus::tuner
