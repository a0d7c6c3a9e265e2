#include "perseus/cluster/issuers/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

namespace perseus::issuers {
namespace {

using ::testing::HasSubstr;

const char* const kIssuer =
    "[[issuer]]\nname = \"corp\"\nurl = \"https://login.example.com\"\naudience = \"perseus\"\n";
const char* const kGrant = "[[issuer.grant]]\ngroup = \"admins\"\nscope = \"operator\"\n";

std::string WhyNot(const std::string& text) {
  const auto settings = ReadSettings(text, "issuers.toml");
  return settings ? "" : settings.error().message;
}

TEST(Settings, HaveDefaults) {
  const auto settings = ReadSettings(std::string(kIssuer) + kGrant, "issuers.toml");
  ASSERT_TRUE(settings) << settings.error().message;
  const IssuerSettings& issuer = settings->issuers.at(0);
  EXPECT_EQ(issuer.user_claim, "preferred_username");
  EXPECT_EQ(issuer.groups_claim, "groups");
  EXPECT_EQ(issuer.node_claim, "kubernetes.io/node/name");
  EXPECT_EQ(issuer.leeway_s, 10);
  EXPECT_FALSE(issuer.login);
  EXPECT_FALSE(settings->munge);
  EXPECT_EQ(WhyNot(""), "");
}

TEST(Settings, AServiceAccountIsASubject) {
  const auto settings = ReadSettings(
      std::string(kIssuer) +
          "[[issuer.grant]]\nservice_account = \"ml/node\"\nscope = \"join\"\nnodes = \"{node}\"\n",
      "issuers.toml");
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->issuers.at(0).grants.at(0).subject, "system:serviceaccount:ml:node");
}

TEST(Settings, SayWhatIsWrong) {
  const std::string issuer = kIssuer;
  const std::string grant = "[[issuer.grant]]\n";
  const std::vector<std::pair<std::string, std::string>> wrong{
      {issuer, "grants nothing"},
      {issuer + kGrant + issuer + kGrant, "same name or url"},
      {"[[issuer]]\nname = \"corp\"\nurl = \"http://login.example.com\"\naudience = \"p\"\n",
       "not encrypted"},
      {"[[issuer]]\nname = \"corp\"\nurl = \"login.example.com\"\naudience = \"p\"\n",
       "not the address of an issuer"},
      {"[[issuer]]\nname = \"a b\"\nurl = \"https://x\"\naudience = \"p\"\n", "is not a name"},
      {"[[issuer]]\nname = \"corp\"\nurl = \"https://x\"\n", "has no audience"},
      {issuer + "audiences = \"p\"\n" + kGrant, "has no key"},
      {issuer + grant + "group = \"a\"\nscope = \"admin\"\n", "scope is not operator"},
      {issuer + grant + "group = \"a\"\nsubject = \"b\"\nscope = \"read\"\n", "only one"},
      {issuer + grant + "scope = \"read\"\n", "only one"},
      {issuer + grant + "group = \"a\"\nscope = \"member\"\n", "needs owner"},
      {issuer + grant + "group = \"a\"\nscope = \"join\"\n", "needs nodes"},
      {issuer + grant + "group = \"a\"\nscope = \"read\"\nnodes = [\"x\"]\n", "remove it"},
      {issuer + grant + "group = \"a\"\nscope = \"operator\"\nowner = \"x\"\n", "remove it"},
      {issuer + grant + "group = \"a\"\nscope = \"operator\"\njobs = [\"x\"]\n", "remove it"},
      {issuer + grant + "service_account = \"a\"\nscope = \"read\"\n", "NAMESPACE/NAME"},
      {issuer + "[issuer.login]\nscopes = [\"openid\"]\n" + kGrant, "has no client"},
      {issuer + "[issuer.login]\nclient = \"a\"\ntoken = \"b\"\n" + kGrant, "id_token"},
      {"[munge]\naudience = \"p\"\nusers = [\"root\"]\n", "has no nodes"},
      {"[mung]\n", "has no key"},
  };
  for (const auto& [text, why] : wrong) {
    EXPECT_THAT(WhyNot(text), ::testing::AllOf(HasSubstr("issuers.toml:"), HasSubstr(why))) << text;
  }
}

TEST(Settings, OfSeveralFilesAreOne) {
  const TemporaryDirectory directory;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string path = directory / name;
    std::ofstream(path) << text;
    return path;
  };
  const std::string one = write("one.toml", std::string(kIssuer) + kGrant);
  const std::string two =
      write("two.toml", "[munge]\naudience = \"p\"\nusers = [\"root\"]\nnodes = [\"gpu-*\"]\n");
  const auto both = ReadSettingsFiles({one, two});
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->issuers.size(), 1);
  EXPECT_TRUE(both->munge);
  EXPECT_FALSE(ReadSettingsFiles({one, one}));
  EXPECT_FALSE(ReadSettingsFiles({two, two}));
  EXPECT_FALSE(ReadSettingsFiles({directory / "missing.toml"}));
}

}  // namespace
}  // namespace perseus::issuers
