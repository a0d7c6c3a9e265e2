// Tests how callers are identified. rights_table_test.cc tests the rights of each role.
#include "perseus/cluster/server/identity/rights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/watched_database.h"

namespace perseus::server {
namespace {

using Role = Identity::Role;

TEST(Identities, AgentsOfSomeJobsAttachOnlyTheseJobs) {
  const Identity agent{.role = Role::kAgent, .nodes = {"*"}, .jobs = {"team-a-*"}};
  EXPECT_TRUE(Allow(agent, Access::kNode, {.job = "team-a-7", .node = "n1"}));
  EXPECT_FALSE(Allow(agent, Access::kNode, {.job = "team-b-7", .node = "n1"}));
  EXPECT_FALSE(Allow(agent, Access::kRead, {.job = "team-b-7"}));
  EXPECT_FALSE(Allow(agent, Access::kReadFleet, {}));
}

TEST(Identities, AnAgentWithoutNodesIsNoNode) {
  const Identity agent{.role = Role::kAgent};
  EXPECT_FALSE(Allow(agent, Access::kNode, {.node = "n0"}));
  EXPECT_FALSE(agent.IsOfWholeFleet());
}

TEST(Patterns, MatchWholeTexts) {
  struct Case {
    const char* pattern;
    const char* text;
    bool matches;
  };
  for (const Case& c :
       {Case{"n0", "n0", true}, Case{"n0", "n00", false}, Case{"n*", "n", true},
        Case{"n*", "m", false}, Case{"*", "", true}, Case{"", "", true}, Case{"", "n", false},
        Case{"gpu-*-a", "gpu-17-a", true}, Case{"gpu-*-a", "gpu-17-b", false},
        Case{"*a*b", "xaxxab", true}, Case{"*a*b", "xaxxac", false}, Case{"n.", "nx", false}}) {
    EXPECT_EQ(Matches(c.pattern, c.text), c.matches) << c.pattern << " " << c.text;
  }
}

class RightsTest : public testing::Test {
 protected:
  std::string Add(Role scope, std::string job, Milliseconds expires) {
    const std::string secret = NewSecret();
    const auto added = store_->AddToken({.id = "t-" + std::string(store::Name(scope)),
                                         .hash = HashOfSecret(secret),
                                         .scope = scope,
                                         .job = std::move(job),
                                         .name = "",
                                         .created = 0,
                                         .expires = expires});
    EXPECT_TRUE(added) << added.error().Message();
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
  const auto identity = rights_.Identify(With(""), 0);
  ASSERT_TRUE(identity);
  EXPECT_EQ(identity->role, Role::kOperator);
  const Rights closed(Rights::WithoutTokens::kClosed);
  EXPECT_FALSE(closed.Identify(With(""), 0));
}

TEST_F(RightsTest, RefusesWebPagesWithoutTokens) {
  const Rights here(Rights::WithoutTokens::kOpenToOwnUser);
  for (const char* host :
       {"127.0.0.1:7410", "localhost:7410", "localhost", "[::1]:7410", "[::1]"}) {
    http::Request request;
    request.peer = "127.0.0.1";
    request.user = ::geteuid();
    request.fields["host"] = host;
    EXPECT_TRUE(here.Identify(request, 0)) << host;
    for (const char* field : {"origin", "forwarded", "x-forwarded-for", "via"}) {
      http::Request of_another = request;
      of_another.fields[field] = "https://example.org";
      EXPECT_FALSE(here.Identify(of_another, 0)) << host << field;
    }
  }
  http::Request remote;
  remote.peer = "192.0.2.7";
  remote.user = ::geteuid();
  remote.fields["host"] = "127.0.0.1";
  EXPECT_FALSE(here.Identify(remote, 0));
  http::Request rebound;
  rebound.peer = "127.0.0.1";
  rebound.user = ::geteuid();
  rebound.fields["host"] = "evil.example:7410";
  ASSERT_FALSE(here.Identify(rebound, 0));
  EXPECT_EQ(here.Identify(rebound, 0).error().status, 403);
}

TEST_F(RightsTest, RefusesOtherUsersOfTheMachineWithoutTokens) {
  const Rights here(Rights::WithoutTokens::kOpenToOwnUser);
  http::Request request;
  request.peer = "127.0.0.1";
  request.fields["host"] = "127.0.0.1:7410";
  for (const uid_t own : {::geteuid(), uid_t{0}}) {
    request.user = own;
    EXPECT_TRUE(here.Identify(request, 0)) << own;
  }
  for (const std::optional<uid_t> other :
       {std::optional<uid_t>(), std::optional(::geteuid() + 1)}) {
    request.user = other;
    const auto refused = here.Identify(request, 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().status, 403);
    EXPECT_EQ(refused.error().title, "This request comes from another user");
  }
}

TEST_F(RightsTest, ATokenHasItsScopeUntilItExpires) {
  const std::string secret = Add(Role::kJob, "mine", 1000);
  const auto identity = rights_.Identify(With("Bearer " + secret), 999);
  ASSERT_TRUE(identity) << identity.error().detail;
  EXPECT_EQ(identity->role, Role::kJob);
  EXPECT_EQ(identity->jobs, std::vector<std::string>{"mine"});
  const auto late = rights_.Identify(With("Bearer " + secret), 1000);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().status, 401);
}

TEST_F(RightsTest, RefusesWrongAndRevokedTokens) {
  const std::string secret = Add(Role::kOperator, "", 0);
  for (const std::string& wrong :
       {std::string(), std::string("Bearer "), "Bearer " + secret + "0", "Basic " + secret,
        std::string("Bearer ") + HashOfSecret(secret)}) {
    EXPECT_FALSE(rights_.Identify(With(wrong), 0)) << wrong;
  }
  store::TokenRecord other;  // With this token, the server still has a token.
  other.id = "t-other";
  other.scope = store::Scope::kOperator;
  ASSERT_TRUE(store_->AddToken(other));
  ASSERT_TRUE(*store_->DeleteToken("t-operator"));
  ASSERT_TRUE(rights_.Load(*store_));
  EXPECT_FALSE(rights_.Identify(With("Bearer " + secret), 0));
}

// The server reads the tokens again after a change by another replica, and after its own changes.
TEST_F(RightsTest, ASlowReadDoesNotBringBackWhatWasRevokedMeanwhile) {
  auto owned = std::make_unique<store::WatchedDatabase>();
  store::WatchedDatabase& database = *owned;
  store_ = std::make_unique<store::Store>(std::move(owned));
  Add(Role::kOperator, "", 0);
  const std::string secret = Add(Role::kRead, "", 0);
  std::future<void> revoking;
  std::atomic<bool> has_read = false;
  database.after_read = [&](std::string_view) {
    if (has_read.exchange(true)) return;  // Only the first read is slow.
    revoking = std::async(std::launch::async, [&] {
      EXPECT_TRUE(*store_->DeleteToken("t-read"));
      EXPECT_TRUE(rights_.Load(*store_));
    });
    // The revocation has to wait for the slow read, which runs here. Without the wait, the
    // revocation would be complete within this time.
    revoking.wait_for(std::chrono::milliseconds(200));
  };
  ASSERT_TRUE(rights_.Load(*store_));
  revoking.get();
  EXPECT_FALSE(rights_.Identify(With("Bearer " + secret), 0));
}

TEST_F(RightsTest, AStreamLastsAsLongAsItsToken) {
  ASSERT_TRUE(rights_.Load(*store_));
  const auto anonymous = rights_.Identify(With(""), 0);
  EXPECT_TRUE(rights_.TakeChange(0));
  EXPECT_FALSE(rights_.TakeChange(0));
  EXPECT_TRUE(rights_.IsValid(*anonymous, 0));
  const std::string secret = Add(Role::kRead, "", 1000);
  EXPECT_FALSE(rights_.IsValid(*anonymous, 0)) << "tokens exist now";
  const auto reader = rights_.Identify(With("Bearer " + secret), 0);
  ASSERT_TRUE(reader);
  EXPECT_TRUE(rights_.TakeChange(0));
  EXPECT_FALSE(rights_.TakeChange(999));
  EXPECT_TRUE(rights_.IsValid(*reader, 999));
  EXPECT_TRUE(rights_.TakeChange(1000)) << "it has expired";
  EXPECT_FALSE(rights_.IsValid(*reader, 1000));
  ASSERT_TRUE(*store_->DeleteToken("t-read"));
  ASSERT_TRUE(rights_.Load(*store_));
  EXPECT_TRUE(rights_.TakeChange(0));
  EXPECT_FALSE(rights_.IsValid(*reader, 0)) << "it was revoked";
}

TEST_F(RightsTest, OnlyTheNewestTwoSecretsOfATokenCount) {
  store::TokenRecord token{.id = "t-n0", .scope = store::Scope::kAgent};
  for (const std::string secret : {"first", "second", "third"}) {
    token.previous_hash = token.hash;
    token.previous_until = 1000;
    token.hash = HashOfSecret(secret);
    rights_.Put(token);
  }
  EXPECT_TRUE(rights_.Identify(With("Bearer third"), 999));
  EXPECT_TRUE(rights_.Identify(With("Bearer second"), 999));
  EXPECT_FALSE(rights_.Identify(With("Bearer first"), 999));
}

// A caller that opened a stream with the old secret has to present the new secret.
TEST_F(RightsTest, AnOldSecretEndsForStreamsToo) {
  store::TokenRecord token{
      .id = "t-n0", .hash = HashOfSecret("old"), .scope = store::Scope::kAgent};
  rights_.Put(token);
  const auto before = rights_.Identify(With("Bearer old"), 0);
  token.previous_hash = token.hash;
  token.previous_until = 1000;
  token.hash = HashOfSecret("new");
  rights_.Put(token);
  const auto after = rights_.Identify(With("Bearer new"), 0);
  EXPECT_TRUE(rights_.TakeChange(0));
  EXPECT_FALSE(rights_.TakeChange(999));
  EXPECT_TRUE(rights_.IsValid(*before, 999));
  EXPECT_TRUE(rights_.TakeChange(1000));
  EXPECT_FALSE(rights_.IsValid(*before, 1000));
  EXPECT_TRUE(rights_.IsValid(*after, 1000));
}

TEST_F(RightsTest, APersonOfAProxyIsValidWhileTheServerTrustsIt) {
  const Identity person{.expires = 1000, .is_foreign = true, .trust = "proxy 0"};
  rights_.SetTrust({"proxy 0"});
  EXPECT_TRUE(rights_.IsValid(person, 999));
  EXPECT_FALSE(rights_.IsValid(person, 1000));
  rights_.SetTrust({"proxy 1"});
  EXPECT_FALSE(rights_.IsValid(person, 999));
}

TEST_F(RightsTest, ACertificateIsTheIdentityOfTheMostSpecificToken) {
  const auto add = [&](const char* id, const char* certificate, const char* nodes) {
    store::TokenRecord token{
        .id = id, .hash = "", .scope = store::Scope::kAgent, .job = "", .name = "", .nodes = nodes};
    token.certificate = certificate;
    ASSERT_TRUE(store_->AddToken(token));
    ASSERT_TRUE(rights_.Load(*store_));
  };
  const std::string secret = Add(Role::kOperator, "", 0);
  add("t-gpu", "gpu-*", "");
  add("t-ann", "ann", "");
  http::Request request;
  EXPECT_FALSE(rights_.Identify(request, 0));
  request.certificate = "web";
  EXPECT_FALSE(rights_.Identify(request, 0)) << "no token is for it";
  add("t-any", "*", "other");
  request.certificate = "gpu-7";
  const auto node = rights_.Identify(request, 0);
  ASSERT_TRUE(node);
  EXPECT_EQ(node->token, "t-gpu");
  EXPECT_EQ(node->nodes, std::vector<std::string>{"gpu-7"}) << "the node that it names";
  request.certificate = "web";
  EXPECT_EQ(rights_.Identify(request, 0)->nodes, std::vector<std::string>{"other"});
  request.fields["authorization"] = "Bearer wrong";
  EXPECT_FALSE(rights_.Identify(request, 0)) << "a wrong token is not replaced";
  request.fields["authorization"] = "Bearer " + secret;
  EXPECT_EQ(rights_.Identify(request, 0)->token, "t-operator") << "a token takes precedence";
}

TEST(Secrets, AreUniqueAndHashedWithSha256) {
  EXPECT_NE(NewSecret(), NewSecret());
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(HashOfSecret("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace perseus::server
