#include "perseus/cluster/node/job_directories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"

namespace perseus::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

class JobDirectoriesTest : public testing::Test {
 protected:
  void Write(const std::string& text) const {
    std::filesystem::create_directories(directory_ / "run");
    std::ofstream(directory_ / "run/server.json") << text;
  }
  JobDirectories Find() const { return FindJobDirectories(directory_.path()); }

  TemporaryDirectory directory_;
};

TEST_F(JobDirectoriesTest, FindsTheKey) {
  Write(R"({"job": "gpt3-run_7.a"})");
  EXPECT_THAT(Find().jobs, ElementsAre(Pair(directory_ / "run", "gpt3-run_7.a")));
  EXPECT_THAT(Find().troubles, IsEmpty());
}

TEST_F(JobDirectoriesTest, AKeyMeetsTheRuleOfTheServer) {
  for (const std::string key :
       {R"(a\n2026 error: forged)", R"(\u001b[31m)", "", "a b", "j-6d5c387eb8e54130"}) {
    Write(R"({"job": ")" + key + R"("})");
    EXPECT_THAT(Find().jobs, IsEmpty()) << key;
    EXPECT_THAT(Find().troubles,
                ElementsAre(Pair(directory_ / "run", HasSubstr("is not {\"job\": KEY}"))))
        << key;
  }
  Write(R"({"job": ")" + std::string(201, 'a') + R"("})");
  EXPECT_THAT(Find().jobs, IsEmpty());
}

TEST_F(JobDirectoriesTest, ATroubleQuotesNothingOfTheFile) {
  Write("secret password");
  EXPECT_THAT(Find().troubles, ElementsAre(Pair(directory_ / "run", Not(HasSubstr("secret")))));
  Write(R"({"secret": 1})");
  EXPECT_THAT(Find().troubles, ElementsAre(Pair(directory_ / "run", Not(HasSubstr("secret")))));
}

TEST_F(JobDirectoriesTest, ALinkIsRefused) {
  std::filesystem::create_directories(directory_ / "run");
  std::ofstream(directory_ / "other.json") << R"({"job": "run"})";
  std::filesystem::create_symlink(directory_ / "other.json", directory_ / "run/server.json");
  EXPECT_THAT(Find().jobs, IsEmpty());
  EXPECT_THAT(Find().troubles,
              ElementsAre(Pair(directory_ / "run", HasSubstr("server.json: is a symbolic link"))));
}

TEST_F(JobDirectoriesTest, AFileThatIsTooLongIsRefused) {
  Write(std::string(70'000, ' ') + R"({"job": "run"})");
  EXPECT_THAT(Find().jobs, IsEmpty());
  EXPECT_THAT(Find().troubles,
              ElementsAre(Pair(directory_ / "run", HasSubstr("is larger than 65536 bytes"))));
}

}  // namespace
}  // namespace perseus::node
