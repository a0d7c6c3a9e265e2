// Tests over sockets how people behind a proxy are identified: which rights the header fields give,
// and who may not send these fields.

#include <map>
#include <optional>

#include "perseus/base/mutex.h"
#include "tests/support/control_plane_fixture.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_certificates.h"
#include "tests/support/test_server.h"

namespace perseus::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kGrants = R"(
[[proxy.grant]]
group = "admins"
scope = "operator"
[[proxy.grant]]
group = "team-*"
scope = "member"
owner = "{group}"
[[proxy.grant]]
group = "readers"
scope = "read"
[[proxy.grant]]
user = "eve@*"
scope = "member"
owner = "{user}"
)";

class ProxyTest : public testing::Test {
 protected:
  std::string SocketPath() const { return (directory_ / "proxy.sock").string(); }
  IdentitySettings Read(const std::string& proxy, const std::string& grants = kGrants) const {
    const auto settings = ReadIdentitySettings("[proxy]\n" + proxy + grants, "identities.toml");
    EXPECT_TRUE(settings) << settings.error().Message();
    return *settings;
  }
  IdentitySettings OverSocket(const std::string& grants = kGrants) const {
    return Read("socket = \"" + SocketPath() + "\"\n", grants);
  }
  void Start(ControlPlaneOptions options) {
    options.read_identities = [this] {
      const MutexLock lock(read_mutex_);
      return read_;
    };
    plane_.emplace(std::move(options));
  }

  struct Answered {
    int status = 0;
    json body;
    std::string text;
  };
  static Answered Ask(http::RawClient client, const std::string& method, const std::string& target,
                      const std::string& fields, const std::string& body = "") {
    const std::string text =
        client.Ask(fmt::format("{} {} HTTP/1.1\r\nHost: perseus\r\nConnection: close\r\n{}"
                               "Content-Length: {}\r\n\r\n{}",
                               method, target, fields, body.size(), body));
    const std::size_t end = text.find("\r\n\r\n");
    return {std::stoi(text.substr(9, 3)),
            json::parse(end == std::string::npos ? "" : text.substr(end + 4), nullptr, false),
            text};
  }
  Answered Over(const std::string& method, const std::string& target, const std::string& fields,
                const std::string& body = "") const {
    return Ask(http::RawClient(SocketPath()), method, target, fields, body);
  }
  Answered Who(const std::string& fields) const { return Over("GET", "/v1/whoami", fields); }
  Answered OverTcp(const std::string& fields) const {
    return Ask(http::RawClient((*plane_)->port()), "GET", "/v1/whoami", fields);
  }
  static std::string As(const std::string& user, const std::string& groups) {
    return "X-Forwarded-User: " + user + "\r\nX-Forwarded-Groups: " + groups + "\r\n";
  }
  std::string MakeToken(const std::string& body) const {
    return Over("POST", "/v1/tokens", As("ann", "admins"), body).body.value("token", "");
  }

  // Sets the settings that a reload reads.
  void SetRead(const Result<IdentitySettings>& settings) {
    const MutexLock lock(read_mutex_);
    read_ = settings;
  }

  TemporaryDirectory directory_;
  Mutex read_mutex_;
  Result<IdentitySettings> read_ PERSEUS_GUARDED_BY(read_mutex_) = IdentitySettings();
  std::optional<RunningControlPlane> plane_;
};

TEST_F(ProxyTest, GroupsBecomeScopesAndOwners) {
  Start({.identities = OverSocket()});
  const json ann = Who(As("ann", "team-a,admins")).body;
  EXPECT_EQ(ann["scope"], "operator");
  EXPECT_EQ(ann["id"], "proxy:ann");
  EXPECT_EQ(ann["name"], "ann");
  const json bob = Who(As("bob", "team-a,  team-b ,,guests")).body;
  EXPECT_EQ(bob["scope"], "member");
  EXPECT_EQ(bob["owners"], (json{"team-a", "team-b"}));
  EXPECT_EQ(Who(As("carl", "readers")).body["scope"], "read");
  EXPECT_EQ(Who("x-forwarded-user: eve@example.com\r\n").body["owners"], json{"eve@example.com"});
  for (const char* groups : {"", "guests", "team-*", "admin", "xadmins", "ADMINS"}) {
    const auto refused = Who(As("dan", groups));
    EXPECT_EQ(refused.status, 403) << groups << "\n" << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("nothing is granted")) << groups;
  }
}

TEST_F(ProxyTest, WhatCannotBeAUserIsRefused) {
  Start({.identities = OverSocket()});
  const std::string admins = "X-Forwarded-Groups: admins\r\n";
  const std::string ann = "X-Forwarded-User: ann\r\n";
  const std::map<std::string, std::pair<std::string, const char*>> cases{
      {"no user and no token", {"", "names no user"}},
      {"groups without a user", {admins, "is not a user"}},
      {"an empty user", {"X-Forwarded-User:\r\n" + admins, "is not a user"}},
      {"spaces", {"X-Forwarded-User:   \r\n" + admins, "is not a user"}},
      {"two users", {ann + "X-Forwarded-User: root\r\n" + admins, "twice"}},
      {"two users in other letters", {ann + "x-FORWARDED-user: root\r\n" + admins, "twice"}},
      {"two lists of groups", {ann + "X-Forwarded-Groups: guests\r\n" + admins, "twice"}},
      {"two users in one", {"X-Forwarded-User: ann, root\r\n" + admins, "is not a user"}},
      {"a pattern", {"X-Forwarded-User: *\r\n" + admins, "is not a user"}},
      {"Latin-1", {"X-Forwarded-User: J\xf6rg\r\n" + admins, "is not a user"}},
      {"UTF-8", {"X-Forwarded-User: J\xc3\xb6rg\r\n" + admins, "is not a user"}},
      {"quotes", {"X-Forwarded-User: a\" b=\"c\r\n" + admins, "is not a user"}},
      {"a tab", {"X-Forwarded-User: a\tb\r\n" + admins, "is not a user"}},
      {"201 letters",
       {"X-Forwarded-User: " + std::string(201, 'a') + "\r\n" + admins, "is not a user"}},
  };
  for (const auto& [what, fields_and_why] : cases) {
    const auto refused = Who(fields_and_why.first);
    EXPECT_EQ(refused.status, 401) << what << "\n" << refused.text;
    EXPECT_THAT(refused.text, HasSubstr(fields_and_why.second)) << what;
    EXPECT_FALSE(refused.body.value("remedy", "").empty()) << what;
  }
  EXPECT_EQ(
      Who("X-Forwarded-User: a\r\nX-Forwarded-Groups: " + std::string(17'000, 'a') + "\r\n").status,
      431);
  // Fields with similar names have no effect.
  EXPECT_EQ(Who(As("carl", "readers") + "X_Forwarded_User: root\r\nX_Forwarded_Groups: admins\r\n"
                                        "X-Forwarded-User-: root\r\n")
                .body["scope"],
            "read");
}

TEST_F(ProxyTest, OnlyTheProxyNamesUsers) {
  Start({.identities = OverSocket()});
  const std::string token = MakeToken(R"({"scope": "read"})");
  const std::string bearer = "Authorization: Bearer " + token + "\r\n";
  for (const std::string& fields :
       {As("ann", "admins"), As("", ""), std::string("X-Forwarded-Groups: admins\r\n"),
        std::string("x-forwarded-user: ann\r\n"), As("ann", "admins") + bearer}) {
    const auto refused = OverTcp(fields);
    EXPECT_EQ(refused.status, 401) << fields << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("count only from the proxy")) << fields;
    EXPECT_FALSE(refused.body.value("remedy", "").empty());
  }
  EXPECT_EQ(OverTcp("X_Forwarded_User: ann\r\nX_Forwarded_Groups: admins\r\n").status, 401);
  EXPECT_EQ(OverTcp("").status, 401) << "with a proxy, nobody is an operator without a token";
  EXPECT_EQ(OverTcp(bearer).body["scope"], "read");
}

TEST_F(ProxyTest, AUserAndATokenOfTheServerAreRefused) {
  Start({.identities = OverSocket()});
  const std::string bearer =
      "Authorization: Bearer " + MakeToken(R"({"scope": "operator"})") + "\r\n";
  EXPECT_EQ(Who(bearer).body["scope"], "operator") << "without a user, the token counts";
  const auto both = Who(As("carl", "readers") + bearer);
  EXPECT_EQ(both.status, 401);
  EXPECT_THAT(both.text, HasSubstr("a token of this server"));
  // A token that belongs to the proxy gives no rights here.
  EXPECT_EQ(Who(As("carl", "readers") + "Authorization: Bearer eyJh.eyJz.c2ln\r\n").body["scope"],
            "read");
  EXPECT_EQ(Who("Authorization: Bearer eyJh.eyJz.c2ln\r\n").status, 401);
}

TEST_F(ProxyTest, PagesOfOtherSitesChangeNothing) {
  Start({.identities = OverSocket()});
  const std::string body = R"({"scope": "read"})";
  const std::string origin = As("ann", "admins") + "Origin: https://evil.example\r\n";
  for (const char* site : {"", "Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n"}) {
    const auto refused = Over("POST", "/v1/tokens", origin + site, body);
    EXPECT_EQ(refused.status, 403) << site << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("page of another site"));
  }
  EXPECT_EQ(Over("POST", "/v1/tokens", origin + "Sec-Fetch-Site: same-origin\r\n", body).status,
            201);
  EXPECT_EQ(Who(origin).status, 200);
}

TEST_F(ProxyTest, TheAuditNamesThePerson) {
  Start({.identities = OverSocket()});
  const std::string bob = As("bob", "team-a,team-b");
  json job = json::parse(JobBody("run"));
  EXPECT_EQ(Over("POST", "/v1/jobs", bob, job.dump()).status, 422) << "which of the two owners?";
  job["owner"] = "team-c";
  EXPECT_EQ(Over("POST", "/v1/jobs", bob, job.dump()).status, 403);
  job["owner"] = "team-b";
  EXPECT_EQ(Over("POST", "/v1/jobs", bob, job.dump()).status, 201);
  EXPECT_EQ(Over("GET", "/v1/jobs/run", As("eve", "team-c")).status, 403);
  const json records = Over("GET", "/v1/audit", As("ann", "admins")).body["records"];
  EXPECT_EQ(records[0]["who"], "proxy:bob");
  EXPECT_EQ(records[0]["name"], "bob");
  EXPECT_EQ(records[0]["role"], "member");
  EXPECT_EQ(records[0]["peer"], "unix");
}

TEST_F(ProxyTest, ACertificateThatIsNamedCounts) {
  http::TestAuthority authority(directory_.path(), "authority");
  const auto files = authority.Issue("server", "perseus", "IP:127.0.0.1");
  Start({.tls = http::TlsFiles{.certificate = files.certificate,
                               .key = files.key,
                               .client_authority = authority.file()},
         .identities = Read("certificates = [\"envoy\"]\n")});
  const auto send = [&](const std::string& name, const http::Client::Outgoing& request) {
    const auto own = authority.Issue("client", name, "");
    auto client = http::Client::Create({.server = plane_->url(),
                                        .authority = authority.file(),
                                        .certificate = own.certificate,
                                        .key = own.key});
    const auto answer = client->Send(request);
    EXPECT_TRUE(answer) << answer.error().Message();
    return answer ? *answer : http::Response{.status = 0};
  };
  const http::Fields ann{{"X-Forwarded-User", "ann"}, {"X-Forwarded-Groups", "admins"}};
  const auto as_ann = send("envoy", {.target = "/v1/whoami", .fields = ann});
  EXPECT_EQ(as_ann.status, 200) << as_ann.body;
  EXPECT_EQ(json::parse(as_ann.body)["id"], "proxy:ann");
  for (const char* other : {"gpu-1", "envoy2", "Envoy", "*"}) {
    const auto refused = send(other, {.target = "/v1/whoami", .fields = ann});
    EXPECT_EQ(refused.status, 401) << other;
    EXPECT_THAT(refused.body, HasSubstr("count only from the proxy")) << other;
  }
  // A token for all certificates is not valid for everybody behind the proxy.
  EXPECT_EQ(send("envoy", {.method = "POST",
                           .target = "/v1/tokens",
                           .body = R"({"scope": "agent", "certificate": "*"})",
                           .fields = ann})
                .status,
            201);
  EXPECT_EQ(send("gpu-1", {.target = "/v1/whoami"}).status, 200);
  EXPECT_EQ(send("envoy", {.target = "/v1/whoami"}).status, 401);
}

TEST_F(ProxyTest, CertificatesNeedAnAuthority) {
  EXPECT_THAT([&] { Start({.identities = Read("certificates = [\"envoy\"]\n")}); },
              testing::ThrowsMessage<std::runtime_error>(HasSubstr("give `client_ca`")));
}

// Opens the stream of node n0 as ann, and reads until the server closes it.
class AnnsStream {
 public:
  explicit AnnsStream(const std::string& socket, const std::string& fields) : client_(socket) {
    client_.Send("GET /v1/nodes/n0/events HTTP/1.1\r\nHost: perseus\r\n" + fields + "\r\n");
    head_ = client_.ReadUntil("\r\n\r\n");
  }
  bool IsOpen() const { return head_.starts_with("HTTP/1.1 200"); }
  void AwaitEnd() { client_.ReadAll(); }  // Heartbeats arrive until the end.

 private:
  http::RawClient client_;
  std::string head_;
};

TEST_F(ProxyTest, AReloadClosesStreamsOfWhatIsGone) {
  SetRead(OverSocket());
  Start({.identities = OverSocket()});
  const std::string ann = As("ann", "admins");
  AnnsStream first(SocketPath(), ann);
  ASSERT_TRUE(first.IsOpen());
  const auto reloads = [&](const std::string& result) {
    const std::string text = Over("GET", "/metrics", ann).text;
    const std::string name =
        "perseus_server_reloads_total{result=\"" + result + "\",what=\"identities\"} ";
    const auto at = text.find(name);
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + name.size()));
  };
  (*plane_)->Reload();
  // Another socket, certificates without an authority and a wrong file change nothing.
  SetRead(Read("socket = \"/run/other\"\n"));
  (*plane_)->Reload();
  SetRead(Read("certificates = [\"envoy\"]\n"));
  (*plane_)->Reload();
  SetRead(Fail("identities.toml:1: wrong"));
  (*plane_)->Reload();
  EXPECT_EQ(reloads("done"), 1);
  EXPECT_EQ(reloads("failed"), 3);
  // Without the grant, the stream ends.
  SetRead(OverSocket("[[proxy.grant]]\ngroup = \"readers\"\nscope = \"read\"\n"));
  (*plane_)->Reload();
  first.AwaitEnd();
  EXPECT_EQ(Who(ann).status, 403);
  SetRead(OverSocket());
  (*plane_)->Reload();
  EXPECT_TRUE(Comes([&] { return Who(ann).status == 200; }));
  // Without [proxy], the field means nothing.
  AnnsStream second(SocketPath(), ann);
  ASSERT_TRUE(second.IsOpen());
  SetRead(IdentitySettings());
  (*plane_)->Reload();
  second.AwaitEnd();
  EXPECT_EQ(Who(ann).status, 401);
  EXPECT_EQ(OverTcp("").status, 401) << "nobody is an operator without a token";
}

TEST_F(ProxyTest, AStreamOfAPersonEndsAfterAnHour) {
  std::atomic<Milliseconds> now{1'000'000'000};
  ASSERT_NO_FATAL_FAILURE(
      Start({.identities = OverSocket(), .now = [&now] { return now.load(); }}));
  AnnsStream stream(SocketPath(), As("ann", "admins"));
  ASSERT_TRUE(stream.IsOpen());
  now = now.load() + 3'600'000;
  stream.AwaitEnd();
  plane_.reset();
}

TEST_F(ProxyTest, AFloodOfRefusedRequestsIsLimited) {
  Start({.caller_limits = {.requests_per_second = 1}, .identities = OverSocket()});
  std::map<int, int> answers;
  for (int i = 0; i < 30; ++i) ++answers[Who(As("mallory", "")).status];
  EXPECT_GE(answers[429], 10);
  EXPECT_EQ(answers[403] + answers[429], 30);
  EXPECT_EQ(Who(As("ann", "admins")).status, 200) << "others behind the proxy are not limited";
}

}  // namespace
}  // namespace perseus::server
