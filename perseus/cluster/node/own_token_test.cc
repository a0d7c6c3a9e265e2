#include "perseus/cluster/node/own_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "perseus/base/file.h"
#include "tests/support/temporary_directory.h"

namespace perseus::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OwnTokenTest : public testing::Test {
 protected:
  OwnTokenTest() { WriteSecret(directory_ / "join", "join-secret"); }

  static void WriteSecret(const std::filesystem::path& path, const std::string& secret) {
    std::ofstream(path) << secret << "\n";
    ::chmod(path.c_str(), 0600);
  }
  OwnToken Make() {
    return OwnToken(
        {.node = "n0",
         .file = directory_ / "own",
         .credential = [this] { return ReadSecretFile(directory_ / "join"); }},
        [this](const std::string& target, const std::string& authorization,
               const std::string& body) {
          sent_.push_back(target + " " + authorization);
          bodies_.push_back(body);
          return answer_;
        },
        log_);
  }
  void Answer(const std::string& token) {
    answer_ = http::Response{.status = 200,
                             .body = R"({"token": ")" + token + R"(", "renew_in_s": 100})"};
  }

  const TemporaryDirectory directory_;
  std::ostringstream logged_;
  spdlog::logger log_{"test", std::make_shared<spdlog::sinks::ostream_sink_mt>(logged_)};
  std::vector<std::string> sent_;
  std::vector<std::string> bodies_;
  Result<http::Response> answer_ = FailAs(ErrorKind::kSystem, "no server");
};

TEST_F(OwnTokenTest, JoinsKeepsAndRenews) {
  OwnToken own = Make();
  ASSERT_TRUE(own.Load());
  own.Turn(0);
  EXPECT_EQ(own.token(), "");
  Answer("first");
  own.Turn(kSecond);
  EXPECT_EQ(sent_.size(), 1U) << "it waits after a failure";
  own.Turn(5 * kSecond);
  EXPECT_EQ(own.token(), "first");
  EXPECT_EQ(*ReadFile(directory_ / "own"), "first\n");
  struct stat status {};
  ASSERT_EQ(::stat((directory_ / "own").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  Answer("second");
  own.Turn(104 * kSecond);
  EXPECT_EQ(own.token(), "first");
  own.Turn(105 * kSecond);
  EXPECT_EQ(own.token(), "second");
  EXPECT_THAT(sent_, ElementsAre("/v1/nodes/n0/token join-secret", "/v1/nodes/n0/token join-secret",
                                 "/v1/nodes/n0/token Bearer first"));
}

TEST_F(OwnTokenTest, ARestartedNodeRenewsAndJoinsAgainIfItsTokenIsRefused) {
  WriteSecret(directory_ / "own", "old");
  OwnToken own = Make();
  ASSERT_TRUE(own.Load());
  EXPECT_EQ(own.token(), "old");
  answer_ = http::Response{.status = 401, .body = "{}"};
  own.Turn(0);
  EXPECT_THAT(logged_.str(), HasSubstr("joins again"));
  Answer("new");
  own.Turn(kSecond);
  EXPECT_EQ(own.token(), "new");
  EXPECT_THAT(sent_,
              ElementsAre("/v1/nodes/n0/token Bearer old", "/v1/nodes/n0/token join-secret"));
}

// The answer to a join may be lost, and the node may be restarted before it joins again.
TEST_F(OwnTokenTest, AJoinIsRepeatedWithTheSameAttemptUntilATokenArrives) {
  OwnToken own = Make();
  ASSERT_TRUE(own.Load());
  own.Turn(0);
  own.Turn(5 * kSecond);
  OwnToken restarted = Make();
  ASSERT_TRUE(restarted.Load());
  Answer("first");
  restarted.Turn(0);
  ASSERT_EQ(bodies_.size(), 3U);
  EXPECT_THAT(bodies_[0], ::testing::MatchesRegex(R"(\{"attempt":"[0-9a-f]+"\})"));
  EXPECT_EQ(bodies_[1], bodies_[0]);
  EXPECT_EQ(bodies_[2], bodies_[0]);
  // The attempt is kept, because the server may refuse the token before its first renewal, such as
  // after a restore of the database.
  EXPECT_TRUE(std::filesystem::exists(directory_ / "own.attempt"));
  restarted.Turn(100 * kSecond);
  EXPECT_EQ(bodies_[3], "") << "a renewal has no attempt";
  EXPECT_FALSE(std::filesystem::exists(directory_ / "own.attempt"));
  // Each join has a new attempt, and a damaged file is replaced.
  WriteSecret(directory_ / "own.attempt", "cut off");
  answer_ = http::Response{.status = 401, .body = "{}"};
  restarted.Turn(200 * kSecond);
  restarted.Turn(201 * kSecond);
  ASSERT_EQ(bodies_.size(), 6U);
  EXPECT_NE(bodies_[5], bodies_[0]);
  EXPECT_EQ(bodies_[5].size(), bodies_[0].size());
}

// The node joined at one replica, and reports to another replica, which has not read the token yet.
TEST_F(OwnTokenTest, ARefusalIsCheckedByARenewalAndNotJustAfterTheTokenArrived) {
  OwnToken own = Make();
  ASSERT_TRUE(own.Load());
  Answer("first");
  own.Turn(0);
  own.Refused(kSecond);
  own.Turn(kSecond);
  EXPECT_EQ(sent_.size(), 1U);
  own.Refused(11 * kSecond);
  Answer("second");
  own.Turn(11 * kSecond);
  EXPECT_EQ(own.token(), "second");
  answer_ = http::Response{.status = 401, .body = "{}"};
  own.Refused(80 * kSecond);
  own.Turn(80 * kSecond);
  Answer("third");
  own.Turn(81 * kSecond);
  EXPECT_THAT(sent_,
              ElementsAre("/v1/nodes/n0/token join-secret", "/v1/nodes/n0/token Bearer first",
                          "/v1/nodes/n0/token Bearer second", "/v1/nodes/n0/token join-secret"));
}

TEST_F(OwnTokenTest, RefusesAFileThatEverybodyCanRead) {
  WriteSecret(directory_ / "own", "old");
  ::chmod((directory_ / "own").c_str(), 0644);
  const auto loaded = Make().Load();
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().Message(), HasSubstr("chmod 0640"));
}

}  // namespace
}  // namespace perseus::node
