// Tests the access to the server: tokens, exposure to other machines, certificates, and the log.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <sstream>

#include "perseus/base/number.h"
#include "perseus/cluster/server/identity/rights.h"
#include "tests/support/control_plane_fixture.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_certificates.h"

namespace perseus::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// Sends a request from a program of another user. Returns the status of the answer, or 0.
int StatusForAnotherUser(int port, const std::string& request) {
  std::array<int, 2> answer{};
  if (::pipe(answer.data()) != 0) return 0;
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr id_t kOther = 65533;
    sockaddr_in server{};
    server.sin_family = AF_INET;
    server.sin_port = htons(static_cast<std::uint16_t>(port));
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::array<char, 12> head{};  // "HTTP/1.1 403"
    if (::setgid(kOther) != 0 || ::setuid(kOther) != 0) ::_exit(1);
    const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(connection, reinterpret_cast<sockaddr*>(&server), sizeof(server)) != 0 ||
        ::write(connection, request.data(), request.size()) < 0 ||
        ::recv(connection, head.data(), head.size(), MSG_WAITALL) < 0 ||
        ::write(answer[1], head.data(), head.size()) < 0) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  ::close(answer[1]);
  std::array<char, 12> head{};
  const ssize_t size = ::read(answer[0], head.data(), head.size());
  ::close(answer[0]);
  ::waitpid(child, nullptr, 0);
  if (size != static_cast<ssize_t>(head.size())) return 0;
  return ParseNumber<int>(std::string_view(head.data(), head.size()).substr(9)).value_or(0);
}

// Otherwise, any user of the machine could become the only operator.
TEST_F(ControlPlaneTest, AnotherUserOfTheMachineCannotCreateTheFirstToken) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string body = R"({"scope": "operator"})";
  const std::string post = fmt::format(
      "POST /v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
  EXPECT_EQ(StatusForAnotherUser(plane_->port(), post), 403);
  EXPECT_EQ(
      StatusForAnotherUser(plane_->port(), "GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n"),
      403);
  const json token = json::parse(Send("POST", "/v1/tokens", body).body);
  const std::string with_token =
      fmt::format("GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
                  token["token"].get<std::string>());
  EXPECT_EQ(StatusForAnotherUser(plane_->port(), with_token), 200);
}

TEST_F(ControlPlaneTest, TheFirstTokenIsALastingOperatorToken) {
  for (const char* other : {R"({"scope": "read"})", R"({"scope": "agent", "nodes": ["*"]})",
                            R"({"scope": "operator", "expires_in_days": 1})"}) {
    const auto refused = Send("POST", "/v1/tokens", other);
    EXPECT_EQ(refused.status, 409) << refused.body;
    EXPECT_THAT(refused.body,
                HasSubstr("first create a token of scope operator that never expires"));
  }
  EXPECT_EQ(Send("GET", "/v1/jobs").status, 200) << "everybody still has access";

  const json lasting = json::parse(Send("POST", "/v1/tokens", R"({"scope": "operator"})").body);
  auto ann = http::Client::Create({.server = url(), .token = lasting["token"]});
  const http::Client::Outgoing brief{.method = "POST",
                                     .target = "/v1/tokens",
                                     .body = R"({"scope": "operator", "expires_in_days": 1})"};
  const json expiring = json::parse(ann->Send(brief)->body);
  const auto revoke = [&ann](const json& token) {
    const std::string target = "/v1/tokens/" + token["id"].get<std::string>();
    return ann->Send({.method = "DELETE", .target = target})->status;
  };
  EXPECT_EQ(revoke(lasting), 409) << "the other token expires";
  EXPECT_EQ(revoke(expiring), 200);
}

// A server that other machines can reach keeps its last operator token, and refuses requests
// without a token.
TEST(ExposedControlPlane, RefusesRequestsWithoutTokens) {
  const TemporaryDirectory directory;
  const std::string database = "sqlite:" + (directory.path() / "perseus.db").string();
  {
    auto store = store::OpenStore(database);
    ASSERT_TRUE(store) << store.error().Message();
    ASSERT_TRUE((*store)->AddToken(
        {.id = "t-1", .hash = HashOfSecret("secret"), .scope = store::Scope::kOperator}));
    ASSERT_TRUE((*store)->AddToken({.id = "t-2",
                                    .hash = HashOfSecret("old secret"),
                                    .scope = store::Scope::kOperator,
                                    .expires = 1}));
  }
  http::TestAuthority authority(directory.path(), "authority");
  const auto files = authority.Issue("server", "perseus", "IP:127.0.0.1");
  const RunningControlPlane plane(
      {.address = "0.0.0.0:0",
       .database = database,
       .tls = http::TlsFiles{.certificate = files.certificate, .key = files.key}});
  auto client = http::Client::Create(
      {.server = plane.url(), .token = "secret", .authority = authority.file()});
  EXPECT_TRUE(client) << client.error().Message();
  EXPECT_EQ(client->Send({.target = "/v1/jobs"})->status, 200);
  EXPECT_EQ(client->Send({.method = "DELETE", .target = "/v1/tokens/t-1"})->status, 409)
      << "without it, nobody could create tokens";
  auto nobody = http::Client::Create({.server = plane.url(), .authority = authority.file()});
  EXPECT_EQ(nobody->Send({.target = "/v1/jobs"})->status, 401);
}

// The log has the changes that people make. The server uses renewed certificates without a signal.
TEST(ControlPlaneLog, HasChangesAndRenewedCertificates) {
  const TemporaryDirectory directory;
  http::TestAuthority old_authority(directory.path(), "old");
  http::TestAuthority new_authority(directory.path(), "new");
  const auto files = old_authority.Issue("server", "perseus", "IP:127.0.0.1");
  std::ostringstream logged;
  std::optional<RunningControlPlane> plane;
  plane.emplace(
      ControlPlaneOptions{.tls = http::TlsFiles{.certificate = files.certificate, .key = files.key},
                          .maintenance_interval = std::chrono::milliseconds(10)},
      std::make_shared<spdlog::sinks::ostream_sink_mt>(logged));
  const std::string url = plane->url();
  const auto answers = [&url](const http::TestAuthority& authority) {
    auto client = http::Client::Create({.server = url, .authority = authority.file()});
    return client && client->Fetch({.target = "/v1/jobs"});
  };
  EXPECT_TRUE(answers(old_authority));
  EXPECT_FALSE(answers(new_authority));
  {
    auto client = http::Client::Create({.server = url, .authority = old_authority.file()});
    EXPECT_EQ(
        client->Send({.method = "POST", .target = "/v1/jobs", .body = JobBody("run")})->status,
        201);
    EXPECT_EQ(client
                  ->Send({.method = "PUT",
                          .target = "/v1/nodes/n0/jobs/run",
                          .body = R"({"ranks": [{"dp_rank": 0, "pp_rank": 0}]})"})
                  ->status,
              200);
  }
  new_authority.Issue("server", "perseus", "IP:127.0.0.1");
  // The times have to differ, even if all files were written within the resolution of the clock.
  for (const std::string& file : {files.certificate, files.key}) {
    std::filesystem::last_write_time(
        file, std::filesystem::last_write_time(file) + std::chrono::seconds(1));
  }
  EXPECT_TRUE(Comes([&] { return answers(new_authority); }));
  plane.reset();
  EXPECT_THAT(logged.str(), HasSubstr("method=POST path=/v1/jobs status=201"));
  EXPECT_THAT(logged.str(), Not(HasSubstr("/v1/nodes")));
  EXPECT_THAT(logged.str(), HasSubstr("certificates replaced"));
}

}  // namespace
}  // namespace perseus::server
