#include "perseus/cluster/server/rights.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace perseus::server {
namespace {

using Scope = Principal::Scope;

struct Row {
  const char* name;
  Access access;
  const char* job;              // The requested job.
  std::array<bool, 4> allowed;  // Operator, agent, the token of job "mine", read.
};

class RightsTable : public testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(
    Rows, RightsTable,
    testing::Values(Row{"Public", Access::kPublic, "", {true, true, true, true}},
                    Row{"ReadOwn", Access::kRead, "mine", {true, true, true, true}},
                    Row{"ReadOther", Access::kRead, "other", {true, true, false, true}},
                    Row{"ReadMissing", Access::kRead, "", {true, true, false, true}},
                    Row{"ReadAll", Access::kReadAll, "", {true, true, false, true}},
                    Row{"ChangeOwn", Access::kJob, "mine", {true, false, true, false}},
                    Row{"ChangeOther", Access::kJob, "other", {true, false, false, false}},
                    Row{"Node", Access::kNode, "mine", {true, true, false, false}},
                    Row{"Operator", Access::kOperator, "", {true, false, false, false}}),
    [](const auto& row) { return std::string(row.param.name); });

TEST_P(RightsTable, AllowsTheseScopes) {
  constexpr std::array<Scope, 4> kScopes{Scope::kOperator, Scope::kAgent, Scope::kJob,
                                         Scope::kRead};
  for (std::size_t i = 0; i < kScopes.size(); ++i) {
    const Principal principal{kScopes[i], kScopes[i] == Scope::kJob ? "mine" : "", "t-1"};
    const auto may = Rights::Check(principal, GetParam().access, GetParam().job);
    EXPECT_EQ(may.has_value(), GetParam().allowed[i]) << "scope " << i;
    if (!may) {
      EXPECT_EQ(may.error().status, 403);
      EXPECT_FALSE(may.error().remedy.empty());
    }
  }
}

class RightsTest : public testing::Test {
 protected:
  std::string Add(std::string scope, std::string job, store::Milliseconds expires) {
    const std::string secret = NewSecret();
    const auto added = store_->AddToken({.id = "t-" + scope,
                                         .hash = HashOfSecret(secret),
                                         .scope = std::move(scope),
                                         .job = std::move(job),
                                         .name = "",
                                         .created = 0,
                                         .expires = expires});
    EXPECT_TRUE(added) << added.error().message;
    EXPECT_TRUE(rights_.Load(*store_));
    return secret;
  }
  static http::Request With(const std::string& authorization) {
    http::Request request;
    if (!authorization.empty()) request.fields["authorization"] = authorization;
    return request;
  }

  std::unique_ptr<store::Store> store_ = *store::OpenStore("sqlite::memory:");
  Rights rights_{Rights::WithoutTokens::kOpen};
};

TEST_F(RightsTest, WithoutTokensEveryCallerIsAnOperator) {
  ASSERT_TRUE(rights_.Load(*store_));
  const auto principal = rights_.Identify(With(""), 0);
  ASSERT_TRUE(principal);
  EXPECT_EQ(principal->scope, Scope::kOperator);
  const Rights closed(Rights::WithoutTokens::kClosed);
  EXPECT_FALSE(closed.Identify(With(""), 0));
}

TEST_F(RightsTest, RefusesWebPagesWithoutTokens) {
  const Rights here(Rights::WithoutTokens::kOpenHere);
  for (const char* host :
       {"127.0.0.1:7410", "localhost:7410", "localhost", "[::1]:7410", "[::1]"}) {
    http::Request request;
    request.peer = "127.0.0.1";
    request.fields["host"] = host;
    EXPECT_TRUE(here.Identify(request, 0)) << host;
    request.fields["origin"] = "https://example.org";
    EXPECT_FALSE(here.Identify(request, 0)) << host;
  }
  http::Request remote;
  remote.peer = "192.0.2.7";
  remote.fields["host"] = "127.0.0.1";
  EXPECT_FALSE(here.Identify(remote, 0));
  http::Request rebound;
  rebound.peer = "127.0.0.1";
  rebound.fields["host"] = "evil.example:7410";
  ASSERT_FALSE(here.Identify(rebound, 0));
  EXPECT_EQ(here.Identify(rebound, 0).error().status, 403);
}

TEST_F(RightsTest, ATokenHasItsScopeUntilItExpires) {
  const std::string secret = Add("job", "mine", 1000);
  const auto principal = rights_.Identify(With("Bearer " + secret), 999);
  ASSERT_TRUE(principal) << principal.error().detail;
  EXPECT_EQ(principal->scope, Scope::kJob);
  EXPECT_EQ(principal->job, "mine");
  const auto late = rights_.Identify(With("Bearer " + secret), 1000);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().status, 401);
}

TEST_F(RightsTest, RefusesWrongAndRevokedTokens) {
  const std::string secret = Add("operator", "", 0);
  for (const std::string& wrong :
       {std::string(), std::string("Bearer "), "Bearer " + secret + "0", "Basic " + secret,
        std::string("Bearer ") + HashOfSecret(secret)}) {
    EXPECT_FALSE(rights_.Identify(With(wrong), 0)) << wrong;
  }
  store::TokenRecord other;  // So that the server still has a token.
  other.id = "t-other";
  other.scope = "operator";
  ASSERT_TRUE(store_->AddToken(other));
  ASSERT_TRUE(*store_->DeleteToken("t-operator"));
  ASSERT_TRUE(rights_.Load(*store_));
  EXPECT_FALSE(rights_.Identify(With("Bearer " + secret), 0));
}

TEST(Secrets, AreUniqueAndHashedWithSha256) {
  EXPECT_NE(NewSecret(), NewSecret());
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(HashOfSecret("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace perseus::server
