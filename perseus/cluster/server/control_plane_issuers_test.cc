// Signed tokens of trusted issuers, over sockets: what they are good for, attacks, and issuers that
// rotate keys, fail or hang. The issuer of these tests signs any claims, and is no provider; the
// test of perseus login runs a real one. The claims of Kubernetes are laid out as its documentation
// has them; no cluster runs here.
#include <atomic>
#include <future>
#include <mutex>

#include "perseus/cluster/server/control_plane_fixture.h"
#include "tests/support/test_issuer.h"

namespace perseus::server {
namespace {

using issuers::TestIssuer;
using nlohmann::json;
using ::testing::HasSubstr;
using Kind = TestIssuer::Kind;
using Mood = TestIssuer::Mood;

class IssuersTest : public testing::Test {
 protected:
  IssuersTest() { issuer_.AddKey("k1", Kind::kRsa); }
  ~IssuersTest() override {
    if (!plane_) return;
    plane_->Stop();
    thread_.join();
  }
  std::string SettingsText() const {
    return "[[issuer]]\nname = \"corp\"\nurl = \"" + issuer_.url() + R"("
audience = "perseus"
leeway_s = 0
[issuer.login]
client = "cli"
[[issuer.grant]]
group = "admins"
scope = "operator"
[[issuer.grant]]
group = "team-*"
scope = "member"
owner = "{group}"
[[issuer.grant]]
group = "readers"
scope = "read"
[[issuer.grant]]
service_account = "ml/perseus-node"
scope = "join"
nodes = ["{node}"]
[[issuer.grant]]
service_account = "ml/perseus-node"
scope = "join"
nodes = ["old-*"]
)";
  }
  void Start(const issuers::IssuerKeys::Pace& pace = {}, const std::string& more = "",
             CallerLimitOptions limits = {}) {
    auto settings = issuers::ReadSettings(SettingsText() + more, "issuers.toml");
    ASSERT_TRUE(settings) << settings.error().message;
    auto started = ControlPlane::Start({.address = "127.0.0.1:0",
                                        .database = "sqlite::memory:",
                                        .caller_limits = limits,
                                        .trusted = *std::move(settings),
                                        .read_trusted =
                                            [this] {
                                              const std::lock_guard lock(read_mutex_);
                                              return read_;
                                            },
                                        .issuer_pace = pace},
                                       log_);
    ASSERT_TRUE(started) << started.error().message;
    plane_ = *std::move(started);
    thread_ = std::thread([this] { plane_->Run(); });
  }
  http::Client ClientWith(const std::string& token) const {
    return *http::Client::Create(
        {.server = "http://127.0.0.1:" + std::to_string(plane_->port()), .token = token});
  }
  http::Response As(const std::string& token, const std::string& method, const std::string& target,
                    const std::string& body = "") const {
    http::Client client = ClientWith(token);
    auto response = client.Send({.method = method, .target = target, .body = body});
    EXPECT_TRUE(response) << response.error().message;
    return response ? *std::move(response) : http::Response{.status = 0};
  }
  int StatusOf(const std::string& token) const { return As(token, "GET", "/v1/whoami").status; }
  json Who(const json& claims) const {
    return json::parse(As(issuer_.Token("k1", claims), "GET", "/v1/whoami").body);
  }
  static json AccountClaims(const std::string& node) {
    json claims{{"sub", "system:serviceaccount:ml:perseus-node"},
                {"aud", {"perseus"}},
                {"kubernetes.io",
                 {{"namespace", "ml"},
                  {"pod", {{"name", "plans-node-x7k2p"}, {"uid", "4f0c"}}},
                  {"serviceaccount", {{"name", "perseus-node"}, {"uid", "91aa"}}}}}};
    if (!node.empty()) claims["kubernetes.io"]["node"] = {{"name", node}, {"uid", "aa11"}};
    return claims;
  }

  // What a reload reads.
  void SetRead(const Result<issuers::Settings>& settings) {
    const std::lock_guard lock(read_mutex_);
    read_ = settings;
  }
  // A token of the server itself, because those of the issuer end.
  void MakeReader() {
    const std::string admin = issuer_.Token("k1", {{"groups", {"admins"}}, {"jti", "reader"}});
    reader_ = json::parse(As(admin, "POST", "/v1/tokens", R"({"scope": "read"})").body)["token"];
  }
  int Reloads(const std::string& result) const {
    const std::string text = As(reader_, "GET", "/metrics").body;
    const std::string name =
        "perseus_server_reloads_total{result=\"" + result + "\",what=\"issuers\"} ";
    const auto at = text.find(name);
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + name.size()));
  }

  template <typename Condition>
  static bool Comes(Condition condition) {  // Within kTimeout.
    const auto until = std::chrono::steady_clock::now() + kTimeout;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  TestIssuer issuer_;
  std::mutex read_mutex_;
  Result<issuers::Settings> read_ = issuers::Settings();
  std::string reader_;
  spdlog::logger log_{"test", std::make_shared<spdlog::sinks::null_sink_mt>()};
  std::unique_ptr<ControlPlane> plane_;
  std::thread thread_;
};

TEST_F(IssuersTest, GroupsBecomeScopesAndOwners) {
  ASSERT_NO_FATAL_FAILURE(Start());
  json who = Who({{"groups", {"team-a", "admins"}}, {"preferred_username", "ann"}});
  EXPECT_EQ(who["scope"], "operator");
  EXPECT_EQ(who["id"], "corp:u-1");
  EXPECT_EQ(who["name"], "ann");
  who = Who({{"groups", {"team-a", "x", "team-b", "readers"}}});
  EXPECT_EQ(who["scope"], "member");
  EXPECT_EQ(who["owners"], (json{"team-a", "team-b"}));
  EXPECT_EQ(who["name"], "u-1");
  EXPECT_EQ(Who({{"groups", "readers"}})["scope"], "read");
  // A group that cannot own a job gives nothing, and not everything.
  EXPECT_EQ(StatusOf(issuer_.Token("k1", {{"groups", {"team-*"}}})), 403);
  EXPECT_EQ(StatusOf(issuer_.Token("k1", {{"groups", {"team-a\n"}}})), 403);
  EXPECT_EQ(StatusOf(issuer_.Token("k1", {{"groups", json::array()}})), 403);
  EXPECT_EQ(StatusOf(issuer_.Token("k1")), 403);
  EXPECT_EQ(StatusOf(""), 401) << "with an issuer, nobody is an operator without a token";
}

TEST_F(IssuersTest, AMemberOfTwoTeamsNamesTheOwnerAndTheAuditNamesThePerson) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const std::string bob = issuer_.Token(
      "k1", {{"groups", {"team-a", "team-b"}}, {"preferred_username", "bob"}, {"sub", "u-7"}});
  EXPECT_EQ(As(bob, "POST", "/v1/jobs", JobBody("run")).status, 422);
  json job = json::parse(JobBody("run"));
  job["owner"] = "team-c";
  EXPECT_EQ(As(bob, "POST", "/v1/jobs", job.dump()).status, 403);
  job["owner"] = "team-b";
  EXPECT_EQ(As(bob, "POST", "/v1/jobs", job.dump()).status, 201);
  const std::string other = issuer_.Token("k1", {{"groups", {"team-a"}}});
  EXPECT_EQ(As(other, "GET", "/v1/jobs/run").status, 403);
  const std::string admin = issuer_.Token("k1", {{"groups", {"admins"}}});
  const json records = json::parse(As(admin, "GET", "/v1/audit").body)["records"];
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records[0]["who"], "corp:u-7");
  EXPECT_EQ(records[0]["name"], "bob");
  EXPECT_EQ(records[0]["role"], "member");
  // An operator of the issuer may create any token first.
  EXPECT_EQ(As(admin, "POST", "/v1/tokens", R"({"scope": "read"})").status, 201);
}

TEST_F(IssuersTest, ForgedTokensAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Start());
  issuer_.AddSecretKey("own", Kind::kRsa);
  const json admins{{"groups", {"admins"}}};
  const auto with = [&](json changes) {
    changes["groups"] = {"admins"};
    return issuer_.Token("k1", changes);
  };
  const auto now = static_cast<std::int64_t>(issuer_.Claims({})["iat"]);
  ASSERT_EQ(StatusOf(with({})), 200);
  const std::vector<std::pair<std::string, std::string>> forged{
      {"alg none", issuer_.Token("k1", admins, {{"alg", "none"}})},
      {"HMAC with the public key",
       TestIssuer::HmacToken({{"alg", "HS256"}, {"kid", "k1"}}, issuer_.Claims(admins),
                             issuer_.PublicPem("k1"))},
      {"the attacker's key", issuer_.Token("own", admins, {{"kid", "k1"}})},
      {"an unknown key", issuer_.Token("own", admins)},
      {"expired", with({{"exp", now - 1}})},
      {"no expiry", with({{"exp", nullptr}})},
      {"not yet", with({{"nbf", now + 300}})},
      {"another audience", with({{"aud", "other"}})},
      {"another issuer", with({{"iss", "https://evil.example.com"}})},
      {"no subject", with({{"sub", nullptr}})},
      {"9 kB", with({{"pad", std::string(9'000, 'a')}})},
      {"garbage", "a.b.c"},
      {"empty parts", ".."},
  };
  for (const auto& [what, token] : forged) {
    EXPECT_EQ(StatusOf(token), 401) << what << ": " << As(token, "GET", "/v1/whoami").body;
  }
}

TEST_F(IssuersTest, ManyUnknownKeysCauseOneRequestToTheIssuer) {
  ASSERT_NO_FATAL_FAILURE(
      Start({.apart = std::chrono::hours(1), .least_apart = std::chrono::hours(1)}));
  const std::string good = issuer_.Token("k1", {{"groups", {"readers"}}});
  ASSERT_EQ(StatusOf(good), 200);
  issuer_.AddSecretKey("own", Kind::kP256);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(StatusOf(issuer_.Token("own", {}, {{"kid", "no-" + std::to_string(i)}})), 401);
  }
  EXPECT_EQ(issuer_.reads(), 1) << "the hour since the first reading is not over";
  EXPECT_EQ(StatusOf(good), 200);
}

TEST_F(IssuersTest, AFloodOfNewTokensIsLimited) {
  ASSERT_NO_FATAL_FAILURE(Start({}, "", {.requests_per_second = 0.2}));
  issuer_.AddSecretKey("own", Kind::kP256);
  const std::string good = issuer_.Token("k1", {{"groups", {"readers"}}});
  ASSERT_EQ(StatusOf(good), 200);
  std::map<int, int> answers;
  // Two at once, and then one every 5 s.
  for (int i = 0; i < 30; ++i) ++answers[StatusOf(issuer_.Token("own"))];
  EXPECT_GE(answers[429], 10);
  EXPECT_EQ(answers[401] + answers[429], 30);
  EXPECT_EQ(StatusOf(good), 200) << "a known token needs no check";
}

TEST_F(IssuersTest, RotatedKeysAreFound) {
  ASSERT_NO_FATAL_FAILURE(
      Start({.apart = std::chrono::minutes(10), .least_apart = std::chrono::milliseconds(0)}));
  const std::string old = issuer_.Token("k1", {{"groups", {"readers"}}});
  ASSERT_EQ(StatusOf(old), 200);
  issuer_.RemoveKey("k1");
  issuer_.AddKey("k2", Kind::kP256);
  EXPECT_EQ(StatusOf(issuer_.Token("k2", {{"groups", {"readers"}}})), 200);
  // The old key is gone, and the result of its check with it.
  EXPECT_TRUE(Comes([&] { return StatusOf(old) == 401; }));
}

TEST_F(IssuersTest, WithoutTheIssuerTheLastKeysStayInForce) {
  ASSERT_NO_FATAL_FAILURE(Start({.apart = std::chrono::milliseconds(20),
                                 .least_apart = std::chrono::milliseconds(1),
                                 .first_pause = std::chrono::milliseconds(5)}));
  ASSERT_EQ(StatusOf(issuer_.Token("k1", {{"groups", {"readers"}}})), 200);
  issuer_.SetMood(Mood::kFails);
  const int before = issuer_.reads();
  ASSERT_TRUE(Comes([&] { return issuer_.reads() >= before + 3; }));
  EXPECT_EQ(StatusOf(issuer_.Token("k1", {{"groups", {"readers"}}, {"jti", "new"}})), 200);
}

TEST_F(IssuersTest, AnIssuerThatWasNeverReachedIsSaid) {
  issuer_.SetMood(Mood::kFails);
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto answer = As(issuer_.Token("k1"), "GET", "/v1/whoami");
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr("keys of issuer corp"));
}

// Requests of others are answered while requests with unknown keys wait for a silent issuer.
TEST_F(IssuersTest, AnIssuerThatHangsDelaysNobodyElse) {
  ASSERT_NO_FATAL_FAILURE(
      Start({.apart = std::chrono::minutes(10), .least_apart = std::chrono::milliseconds(0)}));
  const std::string good = issuer_.Token("k1", {{"groups", {"readers"}}});
  ASSERT_EQ(StatusOf(good), 200);
  issuer_.SetMood(Mood::kHangs);
  issuer_.AddSecretKey("own", Kind::kP256);
  std::atomic<int> waiting = 0;
  std::vector<std::future<int>> stuck;
  for (int i = 0; i < 8; ++i) {
    stuck.push_back(std::async(std::launch::async, [&, i] {
      ++waiting;
      const int status = StatusOf(issuer_.Token("own", {}, {{"kid", "no-" + std::to_string(i)}}));
      --waiting;
      return status;
    }));
  }
  ASSERT_TRUE(Comes([&] { return waiting == 8; }));
  int answered = 0;
  while (waiting == 8 && answered < 100) {
    EXPECT_EQ(StatusOf(good), 200);
    EXPECT_EQ(
        StatusOf(issuer_.Token("k1", {{"groups", {"readers"}}, {"jti", std::to_string(answered)}})),
        200);
    ++answered;
  }
  EXPECT_GE(answered, 1) << "while all eight were waiting";
  for (auto& one : stuck) EXPECT_EQ(one.get(), 401);
}

TEST_F(IssuersTest, TheEndOfATokenClosesItsStream) {
  ASSERT_NO_FATAL_FAILURE(Start());
  bool opened = false;
  Result<void> listened;
  // On a busy machine, a short lifetime may end before the stream is open.
  for (const int lifetime_s : {2, 8, 30}) {
    const auto now = static_cast<std::int64_t>(issuer_.Claims({})["iat"]);
    const std::string brief =
        issuer_.Token("k1", {{"groups", {"admins"}}, {"exp", now + lifetime_s}});
    http::Client client = ClientWith(brief);
    const auto until = std::chrono::steady_clock::now() + kTimeout;
    listened = client.Listen(
        {.target = "/v1/nodes/n0/events",
         .on_event = [](const http::Event&) { return true; },
         .on_change =
             [&](std::string_view what) { opened = opened || what.starts_with("connected"); },
         .should_end = [&] { return std::chrono::steady_clock::now() > until; }});
    if (opened) break;
  }
  EXPECT_TRUE(opened);
  ASSERT_FALSE(listened) << "the stream stayed open";
  EXPECT_THAT(listened.error().message, HasSubstr("it has expired"));
}

// Reads a node's stream until the server closes it. `opened` counts connections.
std::future<std::string> ReadStream(http::Client client, const std::string& node,
                                    std::atomic<int>& opened) {
  return std::async(std::launch::async, [client = std::move(client), node, &opened]() mutable {
    const auto until = std::chrono::steady_clock::now() + kTimeout;
    const auto listened = client.Listen(
        {.target = "/v1/nodes/" + node + "/events",
         .on_event = [](const http::Event&) { return true; },
         .on_change =
             [&](std::string_view what) { opened += what.starts_with("connected") ? 1 : 0; },
         .should_end = [&] { return std::chrono::steady_clock::now() > until; }});
    return listened ? std::string("still open") : listened.error().message;
  });
}

TEST_F(IssuersTest, AWithdrawnKeyClosesItsStreams) {
  read_ = issuers::ReadSettings(SettingsText(), "issuers.toml");
  ASSERT_NO_FATAL_FAILURE(
      Start({.apart = std::chrono::minutes(10), .least_apart = std::chrono::milliseconds(100)}));
  issuer_.AddKey("k2", Kind::kP256);
  const json admins{{"groups", {"admins"}}};
  const std::string old = issuer_.Token("k1", admins);
  ASSERT_EQ(StatusOf(old), 200);
  std::atomic<int> opened = 0;
  auto ended = ReadStream(ClientWith(old), "n0", opened);
  ASSERT_TRUE(Comes([&] { return opened == 1; }));
  issuer_.RemoveKey("k1");
  plane_->Reload();  // Keys are read every ten minutes, and when the operator asks for it.
  EXPECT_THAT(ended.get(), HasSubstr("its issuer has no key"));
  EXPECT_EQ(StatusOf(issuer_.Token("k2", admins)), 200);
}

TEST_F(IssuersTest, ReloadedSettingsCloseStreamsOfWhatIsGone) {
  read_ = issuers::ReadSettings(SettingsText(), "issuers.toml");
  ASSERT_NO_FATAL_FAILURE(Start({.least_apart = std::chrono::hours(1)}));
  MakeReader();
  const std::string token = issuer_.Token("k1", {{"groups", {"admins"}}});
  ASSERT_EQ(StatusOf(token), 200);
  std::atomic<int> opened = 0;
  auto ended = ReadStream(ClientWith(token), "n0", opened);
  ASSERT_TRUE(Comes([&] { return opened == 1; }));
  // The same settings change nothing, however often they are read.
  const int reads = issuer_.reads();
  for (int i = 0; i < 100; ++i) plane_->Reload();
  EXPECT_EQ(StatusOf(token), 200);
  EXPECT_TRUE(Comes([&] { return Reloads("done") == 100; }));
  EXPECT_LE(issuer_.reads(), reads + 1) << "the keys are read at most once in an hour";
  // Another grant closes the stream, and its client opens it again.
  auto more = *issuers::ReadSettings(SettingsText(), "issuers.toml");
  more.issuers[0].grants.push_back({.group = "guests", .scope = "read"});
  SetRead(more);
  plane_->Reload();
  EXPECT_TRUE(Comes([&] { return opened == 2; }));
  EXPECT_EQ(StatusOf(issuer_.Token("k1", {{"groups", {"guests"}}})), 200);
  // A wrong file keeps what was there.
  SetRead(Fail("issuers.toml:1: wrong"));
  plane_->Reload();
  auto no_authority = more;
  no_authority.issuers[0].authority = "/nonexistent/ca.pem";
  SetRead(no_authority);
  plane_->Reload();
  EXPECT_EQ(Reloads("failed"), 2);
  EXPECT_EQ(StatusOf(token), 200);
  // Without the grant of operators, and then without the issuer.
  auto less = more;
  less.issuers[0].grants.erase(less.issuers[0].grants.begin());
  SetRead(less);
  plane_->Reload();
  EXPECT_THAT(ended.get(), HasSubstr("nothing is granted"));
  EXPECT_EQ(opened, 2);
  EXPECT_EQ(StatusOf(token), 403);
  SetRead(issuers::Settings());
  plane_->Reload();
  EXPECT_TRUE(Comes([&] { return StatusOf(token) == 401; }));
  EXPECT_EQ(StatusOf(""), 401) << "nobody is an operator without a token";
  SetRead(more);
  plane_->Reload();
  EXPECT_TRUE(Comes([&] { return StatusOf(token) == 200; }));
}

TEST_F(IssuersTest, AReloadDoesNotWaitForAnIssuerThatHangs) {
  issuer_.SetMood(Mood::kHangs);
  read_ = issuers::ReadSettings(SettingsText(), "issuers.toml");
  ASSERT_NO_FATAL_FAILURE(Start());
  auto waiting = std::async(std::launch::async, [&] { return StatusOf(issuer_.Token("k1")); });
  SetRead(issuers::Settings());
  plane_->Reload();
  EXPECT_EQ(waiting.get(), 401) << "and not 503 after a wait for the keys";
}

TEST_F(IssuersTest, AServiceAccountJoinsAsItsNode) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const std::string account = issuer_.Token("k1", AccountClaims("gpu-17"));
  EXPECT_EQ(As(account, "GET", "/v1/jobs").status, 403) << "it is good for nothing else";
  EXPECT_EQ(As(account, "POST", "/v1/nodes/gpu-18/token").status, 403);
  const auto joined = As(account, "POST", "/v1/nodes/gpu-17/token");
  ASSERT_EQ(joined.status, 201) << joined.body;
  const json token = json::parse(joined.body);
  EXPECT_EQ(token["nodes"], json::array({"gpu-17"}));
  EXPECT_EQ(token["issued_by"], "corp:system:serviceaccount:ml:perseus-node");
  EXPECT_EQ(As(token["token"], "POST", "/v1/nodes/gpu-17/token").status, 200) << "it is renewed";
  EXPECT_EQ(As(account, "POST", "/v1/nodes/gpu-17/token").status, 201) << "a restarted pod";
  // Another account of the cluster, and a node name that is a pattern.
  json other = AccountClaims("gpu-17");
  other["sub"] = "system:serviceaccount:ml:default";
  EXPECT_EQ(As(issuer_.Token("k1", other), "POST", "/v1/nodes/gpu-17/token").status, 403);
  EXPECT_EQ(As(issuer_.Token("k1", AccountClaims("*")), "POST", "/v1/nodes/gpu-1/token").status,
            403);
  // Before Kubernetes 1.30, the token does not name the node: each name gets a token once.
  const std::string old = issuer_.Token("k1", AccountClaims(""));
  EXPECT_EQ(As(old, "POST", "/v1/nodes/old-1/token").status, 201);
  EXPECT_EQ(As(old, "POST", "/v1/nodes/old-1/token").status, 409);
  EXPECT_EQ(As(old, "POST", "/v1/nodes/gpu-17/token").status, 403);
}

TEST_F(IssuersTest, TheServerSaysHowToLogIn) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const json login = json::parse(As("", "GET", "/v1/login").body);
  EXPECT_EQ(login["issuer"], issuer_.url());
  EXPECT_EQ(login["client_id"], "cli");
  EXPECT_EQ(login["token"], "id_token");
}

}  // namespace
}  // namespace perseus::server
