// Tests server and client with TLS.
#include "perseus/cluster/http/tls.h"

#include <gmock/gmock.h>

#include <fstream>

#include "perseus/cluster/http/client.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_certificates.h"
#include "tests/support/test_server.h"

namespace perseus::http {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class Tls : public testing::Test {
 protected:
  // Answers with the common name in the certificate of the client, and with the body.
  static Router Routes(std::vector<std::shared_ptr<Stream>>& streams) {
    Router router;
    router.Add("POST", "/",
               [](const Call& call) -> asio::awaitable<Response> {
                 Response response;
                 response.body = call.request.certificate + ":" + call.request.body;
                 co_return response;
               },
               {.body_bytes = 100'000'000});
    router.Add("GET", "/events", [&streams](const Call& call) -> asio::awaitable<Response> {
      streams.push_back(*call.open_stream());
      for (int i = 0; i < 1000; ++i) {
        streams.back()->Send(
            std::make_shared<const std::string>(fmt::format("id: {}\ndata: x\n\n", i)));
      }
      co_return Response();
    });
    return router;
  }

  void Serve(const TlsFiles& files, Limits limits = {}) {
    server_ = std::make_unique<TestServer>(Routes(streams_),
                                           ServerOptions{.limits = limits, .tls = files});
  }
  void TearDown() override {
    if (!server_) return;
    server_->OnLoop([this] { streams_.clear(); });
  }
  TlsFiles ServerFiles() {
    const auto files = authority_.Issue("server", "perseus", "DNS:localhost,IP:127.0.0.1");
    return {files.certificate, files.key};
  }
  std::string Url(const std::string& host = "127.0.0.1") const {
    return "https://" + host + ":" + std::to_string(server_->port());
  }
  Result<std::string> Post(ClientOptions options, std::string body = "hello") {
    if (options.server.starts_with("http://127.0.0.1:7410")) options.server = Url();
    options.timeout = milliseconds(10'000);
    PERSEUS_ASSIGN_OR_RETURN(auto client, Client::Create(options));
    return client.Fetch({.method = "POST", .target = "/", .body = std::move(body)});
  }

  TemporaryDirectory directory_;
  TestAuthority authority_{directory_.path(), "authority"};
  TestAuthority other_{directory_.path(), "other"};
  std::vector<std::shared_ptr<Stream>> streams_;
  std::unique_ptr<TestServer> server_;
};

TEST_F(Tls, CarriesRequestsAndAnswersOfAnySize) {
  Serve(ServerFiles());
  auto client = Client::Create({.server = Url("localhost"), .authority = authority_.file()});
  ASSERT_TRUE(client) << client.error().Message();
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{3'000'000}}) {
    const std::string body(size, 'x');
    const auto answer = client->Fetch({.method = "POST", .target = "/", .body = body});
    ASSERT_TRUE(answer) << answer.error().Message();
    EXPECT_TRUE(*answer == ":" + body) << size;
  }
  EXPECT_EQ(server_->Counts().connections, 1);
}

TEST_F(Tls, CarriesEventStreams) {
  Serve(ServerFiles());
  auto client = Client::Create({.server = Url(), .authority = authority_.file()});
  ASSERT_TRUE(client);
  int received = 0;
  const auto result = client->Listen({.target = "/events", .on_event = [&](const Event& event) {
                                        EXPECT_EQ(event.id, std::to_string(received));
                                        return ++received < 1000;
                                      }});
  EXPECT_TRUE(result);
  EXPECT_TRUE(server_->Until([](const auto& counts) { return counts.streams == 0; }));
}

TEST_F(Tls, IsRefusedForAnUnknownAuthority) {
  Serve(ServerFiles());
  const auto stranger = Post({.authority = other_.file()});
  ASSERT_FALSE(stranger);
  EXPECT_THAT(stranger.error().Message(), HasSubstr("its certificate is invalid"));
  EXPECT_THAT(stranger.error().Message(), EndsWith("(name the file of its authority: `ca`)"));
  const auto system = Post({});
  ASSERT_FALSE(system);
  EXPECT_THAT(system.error().Message(), HasSubstr("its certificate is invalid"));
  EXPECT_TRUE(Post({.authority = authority_.file()}));
}

TEST_F(Tls, IsRefusedForAnotherHost) {
  const auto files = authority_.Issue("server", "127.0.0.1", "DNS:perseus.example,IP:192.0.2.1");
  Serve({files.certificate, files.key});
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const auto answer = Post({.server = Url(host), .authority = authority_.file()});
    ASSERT_FALSE(answer) << host;
    EXPECT_THAT(answer.error().Message(), HasSubstr("mismatch"));
  }
}

TEST_F(Tls, MayRequireClientCertificates) {
  TlsFiles files = ServerFiles();
  files.client_authority = authority_.file();
  Serve(files);
  const auto mine = authority_.Issue("client", "node-7", "");
  const auto strange = other_.Issue("stranger", "node-7", "");
  const auto known =
      Post({.authority = authority_.file(), .certificate = mine.certificate, .key = mine.key});
  ASSERT_TRUE(known) << known.error().Message();
  EXPECT_EQ(*known, "node-7:hello");
  const auto without = Post({.authority = authority_.file()});
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().Message(), EndsWith("(name a client certificate: `cert` and `key`)"));
  const auto stranger = Post(
      {.authority = authority_.file(), .certificate = strange.certificate, .key = strange.key});
  ASSERT_FALSE(stranger);
  EXPECT_THAT(stranger.error().Message(), EndsWith("an authority that the server trusts)"));
}

TEST_F(Tls, ReportsThatTheServerNeedsHttpOrHttps) {
  Serve(ServerFiles());
  const auto plain = Post({.server = "http://127.0.0.1:" + std::to_string(server_->port())});
  ASSERT_FALSE(plain);
  EXPECT_THAT(plain.error().Message(), HasSubstr("write https://"));
  server_.reset();
  server_ = std::make_unique<TestServer>(Routes(streams_), ServerOptions());
  const auto secure = Post({.server = Url(), .authority = authority_.file()});
  ASSERT_FALSE(secure);
  EXPECT_THAT(secure.error().Message(), EndsWith("(if the server uses plain HTTP, write http://)"));
}

TEST_F(Tls, ReloadsItsFilesForNewConnections) {
  const TlsFiles files = ServerFiles();
  Serve(files);
  auto kept = Client::Create({.server = Url(), .authority = authority_.file()});
  ASSERT_TRUE(kept->Fetch({.method = "POST", .target = "/"}));
  other_.Issue("server", "perseus", "IP:127.0.0.1");
  ASSERT_TRUE(Post({.authority = authority_.file()}));  // Only after ReloadTls().
  const auto reloaded = server_->OnLoop([this] { return server_->server().ReloadTls(); });
  ASSERT_TRUE(reloaded) << reloaded.error().Message();
  EXPECT_TRUE(Post({.authority = other_.file()}));
  EXPECT_FALSE(Post({.authority = authority_.file()}));
  EXPECT_TRUE(kept->Fetch({.method = "POST", .target = "/"}));
  // Unusable files change nothing.
  std::ofstream(files.key) << "nonsense";
  EXPECT_FALSE(server_->OnLoop([this] { return server_->server().ReloadTls(); }));
  EXPECT_TRUE(Post({.authority = other_.file()}));
}

TEST_F(Tls, EndsIfTheHandshakeDoesNotComplete) {
  Serve(ServerFiles(), {.request_time = milliseconds(50)});
  RawClient silent(server_->port());
  EXPECT_TRUE(silent.IsClosedByServer());
  RawClient plain(server_->port());
  plain.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  plain.ReadAll();
  EXPECT_TRUE(server_->Until([](const auto& counts) { return counts.connections == 0; }));
}

TEST_F(Tls, NamesTheUnusableFile) {
  const TlsFiles good = ServerFiles();
  const auto other = authority_.Issue("other-server", "perseus", "");
  const std::string text = directory_ / "text";
  std::ofstream(text) << "nonsense";
  struct Row {
    TlsFiles files;
    std::string named;
  };
  for (const Row& row : {Row{{"/nowhere.pem", good.key}, "/nowhere.pem"},
                         Row{{good.certificate, "/nowhere.key"}, "/nowhere.key"},
                         Row{{text, good.key}, text + " is not a certificate"},
                         Row{{good.certificate, text}, text + " is not the key"},
                         Row{{good.certificate, other.key}, other.key + " is not the key"},
                         Row{{good.certificate, good.key, text},
                             text + " is not the certificate of an authority"}}) {
    const auto context = ServerTls(row.files);
    ASSERT_FALSE(context) << row.named;
    EXPECT_EQ(context.error().kind, ErrorKind::kInput);
    EXPECT_THAT(context.error().Message(), HasSubstr(row.named));
  }
  EXPECT_TRUE(ServerTls(good));
}

}  // namespace
}  // namespace perseus::http
