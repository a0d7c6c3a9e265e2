// The file of `perseus support` describes a node and a server, and has no secret.
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "tests/control_plane/served_jobs.h"

namespace perseus {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class SupportTest : public Served {
 protected:
  void SetUp() override {
    Served::SetUp();
    Write("job.toml",
          "[pipeline]\nschedule = \"1f1b\"\npp_ranks = 4\nmicrobatches = 8\n"
          "[gpu]\nblocking_power_w = 84.0\n");
  }
  json Support(const std::string& flags) {
    RunWell("support -o support.json --devices virtual:1 --socket ./agent.sock " + flags);
    return json::parse(Read("support.json"));
  }
};

TEST_F(SupportTest, DescribesTheNodeWithoutAServer) {
  const json support = Support("");
  EXPECT_EQ(support["format"], "perseus-support");
  EXPECT_THAT(support["program"].get<std::string>(), HasSubstr("perseus "));
  EXPECT_FALSE(support["node"]["findings"].empty());
  EXPECT_FALSE(support.contains("server"));
}

TEST_F(SupportTest, AServerThatDoesNotAnswerIsAPartOfTheDescription) {
  const json support = Support("--server http://127.0.0.1:1");
  EXPECT_THAT(support["server"].dump(), HasSubstr("127.0.0.1:1"));
  EXPECT_FALSE(support["node"]["findings"].empty());
}

TEST_F(SupportTest, RefusesToDescribeNothing) {
  ExpectComplaint(Run("support --no-node -o support.json"), 2, "add --server");
}

TEST_F(SupportTest, DescribesJobsAndRemovesSecrets) {
  StartServer();
  const std::string server = " --server " + urls() + " ";
  const std::string token = RunWell("token create --scope operator --name ann" + server);
  Write("ann.token", token);
  ASSERT_EQ(chmod((Directory() / "ann.token").c_str(), 0600), 0);
  const std::string as_ann = server + "--token-file ann.token ";
  RunWell("job register run --job job.toml" + as_ann);
  RunWell("job target run --power-cap 900 --reason 'asked at https://ann:hunter2@wiki/x " +
          token.substr(0, token.find('\n')) + " eyJhbGciOi.eyJzdWIi.c2ln'" + as_ann);

  const json support = Support(as_ann);
  const std::string text = Read("support.json");
  const json& found = support["server"];
  EXPECT_EQ(found["jobs"].at(0).at("key"), "run");
  EXPECT_EQ(found["details_of_jobs"].at(0).at("job").at("key"), "run");
  EXPECT_THAT(found["metrics"].get<std::string>(), HasSubstr("perseus_"));
  EXPECT_THAT(found["ready"].get<std::string>(), HasSubstr("ready"));
  EXPECT_THAT(found["audit"].dump(), HasSubstr("asked at https://(removed)wiki/x"));
  EXPECT_THAT(text, Not(HasSubstr("hunter2")));
  EXPECT_THAT(text, Not(HasSubstr(token.substr(0, token.find('\n')))));
  EXPECT_THAT(text, Not(HasSubstr("eyJzdWIi")));
}

}  // namespace
}  // namespace perseus
