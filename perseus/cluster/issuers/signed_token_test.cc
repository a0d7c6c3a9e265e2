#include "perseus/cluster/issuers/signed_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "perseus/cluster/issuers/issuer_keys.h"
#include "perseus/cluster/issuers/key_set.h"
#include "tests/support/test_issuer.h"

namespace perseus::issuers {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr Milliseconds kNow = 1'800'000'000'000;

// Why the token is refused. Empty: it is accepted.
std::string WhyRefused(const TestIssuer& issuer, const std::string& text) {
  const auto keys = KeySet::Read(issuer.KeySetText());
  if (!keys) return keys.error().message;
  const auto token = ReadSignedToken(text);
  if (!token) return token.error().message;
  const auto verified = keys->Verify(*token);
  return verified ? "" : verified.error().message;
}

TEST(SignedToken, IsAcceptedWithThePublishedKey) {
  TestIssuer issuer;
  for (const auto& [id, kind] : {std::pair{"rsa", TestIssuer::Kind::kRsa},
                                 {"p256", TestIssuer::Kind::kP256},
                                 {"p384", TestIssuer::Kind::kP384}}) {
    issuer.AddKey(id, kind);
    EXPECT_EQ(WhyRefused(issuer, issuer.Token(id)), "") << id;
  }
  // Without a key id, the only key of the type counts.
  EXPECT_EQ(WhyRefused(issuer, issuer.Token("rsa", {}, {{"kid", nullptr}})), "");
  issuer.AddKey("rsa2", TestIssuer::Kind::kRsa);
  EXPECT_THAT(WhyRefused(issuer, issuer.Token("rsa", {}, {{"kid", nullptr}})), HasSubstr("no key"));
}

TEST(SignedToken, EveryForgeryIsRefused) {
  TestIssuer issuer;
  issuer.AddKey("rsa", TestIssuer::Kind::kRsa);
  issuer.AddKey("p256", TestIssuer::Kind::kP256);
  issuer.AddKey("p384", TestIssuer::Kind::kP384);
  issuer.AddKey("ed", TestIssuer::Kind::kEd25519);
  issuer.AddSecretKey("own", TestIssuer::Kind::kRsa);
  const std::string good = issuer.Token("rsa");
  const std::string other = issuer.Token("rsa", {{"sub", "admin"}});
  const auto part = [](const std::string& token, int which) {
    const std::size_t first = token.find('.');
    const std::size_t second = token.rfind('.');
    return which == 0   ? token.substr(0, first)
           : which == 1 ? token.substr(first + 1, second - first - 1)
                        : token.substr(second + 1);
  };
  const json claims = issuer.Claims({});
  const auto hmac = [&](const std::string& algorithm, const std::string& secret) {
    return TestIssuer::HmacToken({{"alg", algorithm}, {"kid", "rsa"}}, claims, secret);
  };
  const std::vector<std::pair<std::string, std::string>> forged{
      {"no signature", part(good, 0) + "." + part(good, 1) + "."},
      {"alg none", issuer.Token("rsa", {}, {{"alg", "none"}})},
      {"alg none, no signature",
       part(issuer.Token("rsa", {}, {{"alg", "none"}}), 0) + "." + part(good, 1) + "."},
      {"alg NONE", issuer.Token("rsa", {}, {{"alg", "NoNe"}})},
      {"HMAC with the public key", hmac("HS256", issuer.PublicPem("rsa"))},
      {"HMAC that says RS256", hmac("RS256", issuer.PublicPem("rsa"))},
      {"RSA key, ES256", issuer.Token("rsa", {}, {{"alg", "ES256"}})},
      {"P-256 key, RS256", issuer.Token("p256", {}, {{"alg", "RS256"}})},
      {"P-256 key, ES384", issuer.Token("p256", {}, {{"alg", "ES384"}})},
      {"P-384 key, ES256", issuer.Token("p384", {}, {{"alg", "ES256"}})},
      {"RS384 instead of RS256", issuer.Token("rsa", {}, {{"alg", "RS384"}})},
      {"EdDSA, which cjose lacks", issuer.Token("ed")},
      {"the attacker's key, the issuer's id", issuer.Token("own", {}, {{"kid", "rsa"}})},
      {"the attacker's key, its own id", issuer.Token("own")},
      {"the attacker's key in the header",
       issuer.Token("own", {},
                    {{"kid", "rsa"},
                     {"jku", "http://127.0.0.1:1/keys"},
                     {"x5u", "http://127.0.0.1:1/x"},
                     {"jwk", {{"kty", "RSA"}, {"n", "AQAB"}, {"e", "AQAB"}}}})},
      {"other claims, this signature", part(good, 0) + "." + part(other, 1) + "." + part(good, 2)},
      {"critical extension", issuer.Token("rsa", {}, {{"crit", {"b64"}}, {"b64", false}})},
      {"zero signature",
       part(issuer.Token("p256"), 0) + "." + part(good, 1) + "." + std::string(86, 'A')},
      {"short signature", good.substr(0, good.size() - 4)},
      {"long signature", good + "AAAA"},
      {"padding", good + "="},
      {"four parts", good + ".AAAA"},
      {"not base64", "e!J9." + part(good, 1) + "." + part(good, 2)},
      {"header twice",
       "eyJhbGciOiJub25lIiwiYWxnIjoiUlMyNTYifQ." + part(good, 1) + "." + part(good, 2)},
      {"huge", issuer.Token("rsa", {{"pad", std::string(9'000, 'a')}})},
      {"deep",
       issuer.Token("rsa", {{"pad", json::parse(std::string(500, '[') + std::string(500, ']'))}})},
      {"empty parts", ".."},
  };
  ASSERT_EQ(WhyRefused(issuer, good), "");
  for (const auto& [what, token] : forged) EXPECT_NE(WhyRefused(issuer, token), "") << what;
}

TEST(CheckClaims, WantsThisIssuerThisServerAndThisTime) {
  const ClaimRules rules{.issuer = "https://i", .audience = "perseus", .leeway = 10'000};
  const double now_s = 1'800'000'000;
  const json good{{"iss", "https://i"}, {"aud", {"a", "perseus"}},
                  {"sub", "u-1"},       {"exp", now_s + 60},
                  {"nbf", now_s},       {"iat", now_s}};
  const auto why = [&](const json& changes) {
    json claims = good;
    if (changes.is_object()) claims.merge_patch(changes);
    const auto checked = CheckClaims(claims, rules, kNow);
    return checked ? "" : checked.error().message;
  };
  EXPECT_EQ(why({}), "");
  EXPECT_EQ(*CheckClaims(good, rules, kNow), kNow + 70'000);
  EXPECT_EQ(why({{"aud", "perseus"}}), "");
  EXPECT_EQ(why({{"exp", now_s - 9}}), "") << "within the leeway";
  EXPECT_EQ(why({{"nbf", now_s + 9.5}}), "") << "within the leeway";
  EXPECT_EQ(why({{"nbf", nullptr}, {"iat", nullptr}}), "");
  EXPECT_THAT(why({{"exp", now_s - 10}}), HasSubstr("expired"));
  EXPECT_THAT(why({{"exp", nullptr}}), HasSubstr("never expires"));
  for (const char* bad : {"exp", "nbf", "iat"}) {
    for (const json& value : {json("1800000060"), json(-1), json(1e300), json(true)}) {
      EXPECT_THAT(why({{bad, value}}), HasSubstr("not a time")) << bad << value;
    }
  }
  EXPECT_THAT(why({{"nbf", now_s + 11}}), HasSubstr("nbf"));
  EXPECT_THAT(why({{"iat", now_s + 11}}), HasSubstr("iat"));
  for (const json& audience : {json("other"), json::array(), json({"a", 7}), json(nullptr),
                               json({{"perseus", 1}}), json("perseus ")}) {
    EXPECT_THAT(why({{"aud", audience}}), HasSubstr("aud")) << audience;
  }
  EXPECT_THAT(why({{"iss", "https://i/"}}), HasSubstr("iss"));
  for (const json& subject :
       {json(""), json(nullptr), json(7), json("a\nb"), json(std::string(300, 'a'))}) {
    EXPECT_THAT(why({{"sub", subject}}), HasSubstr("sub")) << subject;
  }
}

TEST(FindClaim, PrefersTheWholeNameAndElseFollowsThePath) {
  const json claims{{"kubernetes.io", {{"node", {{"name", "gpu-1"}}}}},
                    {"https://example.com/groups", {"a", 7, "b"}},
                    {"one", "x"}};
  EXPECT_EQ(TextClaim(claims, "kubernetes.io/node/name"), "gpu-1");
  EXPECT_EQ(TextClaim(claims, "kubernetes.io/node"), "");
  EXPECT_EQ(TextClaim(claims, "kubernetes.io/node/name/more"), "");
  EXPECT_EQ(ListClaim(claims, "https://example.com/groups"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(ListClaim(claims, "one"), (std::vector<std::string>{"x"}));
  EXPECT_EQ(ListClaim(claims, "none"), (std::vector<std::string>{}));
}

TEST(KeySet, LeavesOutWhatCannotCheckTokens) {
  TestIssuer issuer;
  issuer.AddKey("p256", TestIssuer::Kind::kP256);
  json set = json::parse(issuer.KeySetText());
  json encryption = set["keys"][0];
  encryption["use"] = "enc";
  encryption["kid"] = "enc";
  set["keys"].push_back(encryption);
  set["keys"].push_back({{"kty", "oct"}, {"k", "AAAA"}, {"kid", "oct"}});
  set["keys"].push_back({{"kty", "RSA"}, {"n", "AQAB"}, {"e", "AQAB"}, {"kid", "small"}});
  set["keys"].push_back("text");
  const auto keys = KeySet::Read(set.dump());
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->size(), 1);
  for (const char* bad : {"", "[]", "{}", R"({"keys": {}})", R"({"keys": []})", "<html>"}) {
    EXPECT_FALSE(KeySet::Read(bad)) << bad;
  }
}

}  // namespace
}  // namespace perseus::issuers
