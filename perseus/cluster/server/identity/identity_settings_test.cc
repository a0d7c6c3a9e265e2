#include "perseus/cluster/server/identity/identity_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kProxy = "[proxy]\nsocket = \"/run/perseus-server/proxy.sock\"\n";
const char* const kGrant = "[[proxy.grant]]\ngroup = \"admins\"\nscope = \"operator\"\n";

std::string WhyNot(const std::string& text) {
  const auto settings = ReadIdentitySettings(text, "identities.toml");
  return settings ? "" : settings.error().Message();
}

TEST(IdentitySettings, HaveDefaults) {
  const auto settings = ReadIdentitySettings(std::string(kProxy) + kGrant, "identities.toml");
  ASSERT_TRUE(settings) << settings.error().Message();
  EXPECT_EQ(settings->proxy->user_header, "x-forwarded-user");
  EXPECT_EQ(settings->proxy->groups_header, "x-forwarded-groups");
  EXPECT_EQ(settings->proxy->socket,
            (http::UnixAddress{.path = "/run/perseus-server/proxy.sock", .group = ""}));
  EXPECT_FALSE(settings->munge);
  EXPECT_EQ(WhyNot(""), "");
}

TEST(IdentitySettings, HaveOtherHeadersAndCertificates) {
  const auto settings = ReadIdentitySettings(
      std::string("[proxy]\ncertificates = [\"envoy\", \"nginx\"]\nuser_header = \"X-Email\"\n"
                  "groups_header = \"X-Teams\"\n") +
          kGrant,
      "identities.toml");
  ASSERT_TRUE(settings) << settings.error().Message();
  EXPECT_THAT(settings->proxy->certificates, ElementsAre("envoy", "nginx"));
  EXPECT_EQ(settings->proxy->user_header, "x-email");
  EXPECT_EQ(settings->proxy->groups_header, "x-teams");
  EXPECT_FALSE(settings->proxy->socket);
}

TEST(IdentitySettings, SayWhatIsWrong) {
  const std::string proxy = kProxy;
  const std::string grant = proxy + "[[proxy.grant]]\n";
  const std::vector<std::pair<std::string, std::string>> wrong{
      {proxy, "grants nothing"},
      {std::string("[proxy]\n") + kGrant, "does not say who the proxy is"},
      {std::string("[proxy]\nsocket_group = \"a\"\n") + kGrant, "needs socket"},
      {std::string("[proxy]\ncertificates = [\"*\"]\n") + kGrant, "has a pattern"},
      {proxy + "user_header = \"X_User\"\n" + kGrant, "is not the name of a header"},
      {proxy + "groups_header = \"X-Forwarded-User\"\n" + kGrant, "are the same"},
      {proxy + "users = \"a\"\n" + kGrant, "has no key"},
      {grant + "group = \"a\"\nscope = \"admin\"\n", "scope is not operator"},
      {grant + "group = \"a\"\nscope = \"agent\"\n", "scope is not operator"},
      {grant + "group = \"a\"\nuser = \"b\"\nscope = \"read\"\n", "only one"},
      {grant + "scope = \"read\"\n", "only one"},
      {grant + "group = \"a\"\nscope = \"member\"\n", "needs owner"},
      {grant + "group = \"a\"\nscope = \"operator\"\nowner = \"x\"\n", "remove it"},
      {grant + "group = \"a\"\nscope = \"operator\"\njobs = [\"x\"]\n", "remove it"},
      {"[munge]\naudience = \"p\"\nusers = [\"root\"]\n", "has no nodes"},
      {"[mung]\n", "has no key"},
  };
  for (const auto& [text, why] : wrong) {
    EXPECT_THAT(WhyNot(text), AllOf(HasSubstr("identities.toml:"), HasSubstr(why))) << text;
  }
}

// Version 0.1 accepted such settings.
TEST(IdentitySettings, SayWhatReplacesAnIssuer) {
  const std::string text =
      "[munge]\naudience = \"p\"\nusers = [\"root\"]\nnodes = [\"gpu-*\"]\n"
      "[[issuer]]\nname = \"corp\"\nurl = \"https://login.example.com\"\naudience = \"perseus\"\n"
      "[[issuer.grant]]\ngroup = \"admins\"\nscope = \"operator\"\n";
  EXPECT_THAT(WhyNot(text), AllOf(HasSubstr("identities.toml:5: "), HasSubstr("[proxy]"),
                                  HasSubstr("use a join token")));
}

TEST(IdentitySettings, AreInAFile) { EXPECT_FALSE(ReadIdentityFile("/nonexistent/i.toml")); }

}  // namespace
}  // namespace perseus::server
