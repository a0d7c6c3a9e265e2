#include "perseus/cluster/otlp/exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <deque>
#include <sstream>
#include <string>
#include <utility>

#include "perseus/cluster/http/test_server.h"
#include "perseus/cluster/otlp/raw_fields.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_certificates.h"

namespace perseus::otlp {
namespace {

using std::chrono::milliseconds;

const std::string kProtobuf = "application/x-protobuf";
// In an ExportTraceServiceRequest.
const std::vector<protozero::pbf_tag_type> kSpans = {1, 2, 2};

Span SpanNamed(const std::string& name) {
  return {.trace = std::string(32, 'a'), .span = std::string(16, 'b'), .parent = "", .name = name};
}

// A collector that answers as the test says, and then with 200.
class Collector {
 public:
  explicit Collector(http::ServerOptions options = {}) : server_(Routes(), std::move(options)) {}

  void Answer(http::Response response) {
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(response));
  }
  // How long the next answers take.
  void SetDelay(milliseconds delay) { delay_ms_ = delay.count(); }
  // Waits for `count` requests.
  std::vector<http::Request> Requests(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return requests_.size() >= count; });
    return requests_;
  }
  http::TestServer& server() { return server_; }

 private:
  http::Router Routes() {
    http::Router router;
    for (const char* path : {"/v1/traces", "/v1/metrics", "/elsewhere"}) {
      const auto take = [this](http::Call& call) -> http::asio::awaitable<http::Response> {
        boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor,
                                        milliseconds(delay_ms_));
        if (delay_ms_ > 0) co_await timer.async_wait(boost::asio::use_awaitable);
        const std::lock_guard lock(mutex_);
        requests_.push_back(call.request);
        changed_.notify_all();
        http::Response response;
        response.content_type = kProtobuf;
        if (!answers_.empty()) {
          response = std::move(answers_.front());
          answers_.pop_front();
        }
        co_return response;
      };
      router.Add("POST", path, take, {.media_type = kProtobuf});
    }
    return router;
  }

  std::atomic<std::int64_t> delay_ms_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<http::Request> requests_;
  std::deque<http::Response> answers_;
  http::TestServer server_;  // Its thread uses the members above.
};

class OtlpExporter : public testing::Test {
 protected:
  static Settings To(const std::string& origin) {
    Settings settings;
    settings.traces =
        Endpoint{.origin = origin, .path = "/v1/traces", .headers = {{"key", "hush"}}};
    settings.spans_interval = milliseconds(1);
    return settings;
  }
  std::unique_ptr<Exporter> Started(Settings settings, milliseconds at_end = milliseconds(3'000)) {
    auto started = Exporter::Start(
        std::move(settings), [](const Exporter::Counts&) { return MetricFamilies(); }, log_,
        at_end);
    if (!started) throw std::runtime_error(started.error().message);
    return *std::move(started);
  }
  using MetricFamilies = std::vector<prometheus::MetricFamily>;

  template <typename Condition>
  static bool Until(const Exporter& exporter, Condition condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < until) {
      if (condition(exporter.counts())) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  std::ostringstream text_;
  spdlog::logger log_{"test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)};
};

TEST_F(OtlpExporter, SendsSpansWithTheHeaders) {
  Collector collector;
  auto exporter = Started(To(collector.server().Url()));
  exporter->Add(SpanNamed("one"));
  const auto requests = collector.Requests(1);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].Field("content-type"), "application/x-protobuf");
  EXPECT_EQ(requests[0].Field("key"), "hush");
  EXPECT_THAT(requests[0].body, testing::HasSubstr("one"));
  EXPECT_TRUE(Until(*exporter, [](const auto& counts) { return counts.spans.exported == 1; }));
}

TEST_F(OtlpExporter, TheEndSendsWhatWaits) {
  Collector collector;
  Settings settings = To(collector.server().Url());
  settings.spans_interval = std::chrono::hours(1);
  settings.metrics = Endpoint{.origin = collector.server().Url(), .path = "/v1/metrics"};
  auto exporter = Started(settings);
  for (int i = 0; i < 700; ++i) exporter->Add(SpanNamed("one"));
  exporter.reset();
  std::size_t spans = 0;
  bool has_metrics = false;
  for (const http::Request& request : collector.Requests(3)) {
    if (request.path == "/v1/metrics") {
      has_metrics = true;
    } else {
      spans += FieldsAt(request.body, kSpans).size();
    }
  }
  EXPECT_EQ(spans, 700U);
  EXPECT_TRUE(has_metrics);
}

TEST_F(OtlpExporter, ATemporaryFailureIsTriedAgain) {
  Collector collector;
  for (const int status : {503, 429}) {
    collector.Answer({.status = status, .body = "busy", .fields = {{"Retry-After", "0"}}});
  }
  auto exporter = Started(To(collector.server().Url()));
  exporter->Add(SpanNamed("one"));
  const auto requests = collector.Requests(3);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].body, requests[2].body);
  ASSERT_TRUE(Until(*exporter, [](const auto& counts) { return counts.spans.exported == 1; }));
  EXPECT_EQ(exporter->counts().spans.failures, 2);
  exporter.reset();
  EXPECT_THAT(text_.str(), testing::HasSubstr("status 503: \"busy\""));
  EXPECT_THAT(text_.str(), testing::HasSubstr("delivered to"));
  EXPECT_THAT(text_.str(), testing::Not(testing::HasSubstr("status 429")));
  EXPECT_THAT(text_.str(), testing::Not(testing::HasSubstr("hush")));
}

TEST_F(OtlpExporter, ARefusalIsFinal) {
  Collector collector;
  // google.rpc.Status, with a code and a message.
  collector.Answer({.status = 413, .content_type = kProtobuf, .body = "\x08\x08\x12\x09too large"});
  collector.Answer({.status = 400, .body = "cannot parse"});
  collector.Answer({.status = 307, .fields = {{"Location", "/elsewhere"}}});
  // A partial success refuses one span, because it is old.
  collector.Answer({.content_type = kProtobuf, .body = "\x0a\x07\x08\x01\x12\x03old"});
  auto exporter = Started(To(collector.server().Url()));
  for (int i = 1; i <= 4; ++i) {
    exporter->Add(SpanNamed("one"));
    ASSERT_TRUE(Until(*exporter, [i](const auto& counts) { return counts.spans.refused == i; }));
  }
  EXPECT_EQ(exporter->counts().spans.exported, 0);
  EXPECT_EQ(exporter->counts().waiting, 0) << "a refused span does not wait";
  for (const http::Request& request : collector.Requests(4)) EXPECT_EQ(request.path, "/v1/traces");
  // The next ones are delivered.
  exporter->Add(SpanNamed("one"));
  EXPECT_TRUE(Until(*exporter, [](const auto& counts) { return counts.spans.exported == 1; }));
  exporter.reset();
  EXPECT_THAT(text_.str(), testing::HasSubstr("too large"));
}

TEST_F(OtlpExporter, AStrangeAnswerToASuccessIsASuccess) {
  Collector collector;
  for (const std::string& body : std::vector<std::string>{
           "{}", "", "\x0a\x7f\x08", "\xff\xff", "\x0a\x01\x08", "\x0a\x02\x0d\x01", "\x08\x01"}) {
    collector.Answer({.content_type = kProtobuf, .body = body});
  }
  collector.Answer({.body = R"({"partialSuccess": null})"});
  auto exporter = Started(To(collector.server().Url()));
  for (int i = 1; i <= 9; ++i) {
    exporter->Add(SpanNamed("one"));
    ASSERT_TRUE(Until(*exporter, [i](const auto& counts) { return counts.spans.exported == i; }));
  }
  EXPECT_EQ(exporter->counts().spans.refused, 0);
}

// Adding spans never waits, and all of them arrive in the end.
TEST_F(OtlpExporter, ASlowCollectorGetsEverySpanOnce) {
  Collector collector;
  collector.SetDelay(milliseconds(100));
  auto exporter = Started(To(collector.server().Url()));
  for (int i = 0; i < 2'000; ++i) exporter->Add(SpanNamed("one"));
  EXPECT_GT(exporter->counts().waiting, 0) << "the collector has not answered yet";
  ASSERT_TRUE(Until(*exporter, [](const auto& counts) { return counts.spans.exported == 2'000; }));
  EXPECT_EQ(exporter->counts().queue_full, 0);
  std::size_t spans = 0;
  for (const http::Request& request : collector.Requests(1)) {
    spans += FieldsAt(request.body, kSpans).size();
  }
  EXPECT_EQ(spans, 2'000U);
}

// The collector took the request and answered too late: it may get the spans twice, but not more.
TEST_F(OtlpExporter, AnAnswerAfterTheTimeoutIsNoAnswer) {
  Collector collector;
  collector.SetDelay(milliseconds(2'000));
  Settings settings = To(collector.server().Url());
  settings.timeout = milliseconds(200);
  auto exporter = Started(settings);
  exporter->Add(SpanNamed("one"));
  ASSERT_TRUE(Until(*exporter, [](const auto& counts) { return counts.spans.failures > 0; }));
  EXPECT_EQ(exporter->counts().spans.exported, 0);
  collector.SetDelay(milliseconds(0));
  ASSERT_TRUE(Until(*exporter, [](const auto& counts) { return counts.spans.exported == 1; }));
}

TEST_F(OtlpExporter, ADeadCollectorCostsSpansOnly) {
  int port = 0;
  { port = Collector().server().port(); }
  Settings settings = To("http://127.0.0.1:" + std::to_string(port));
  settings.most_spans = 10;
  auto exporter = Started(settings);
  exporter->Add(SpanNamed("one"));
  ASSERT_TRUE(Until(*exporter, [](const auto& counts) { return counts.spans.failures > 0; }));
  for (int i = 0; i < 100; ++i) exporter->Add(SpanNamed("one"));
  EXPECT_EQ(exporter->counts().queue_full, 90);
  EXPECT_EQ(exporter->counts().waiting, 10);
  exporter.reset();
  EXPECT_THAT(text_.str(), testing::HasSubstr("11 spans were not delivered"));
}

TEST_F(OtlpExporter, AHangingCollectorDoesNotHoldUpTheEnd) {
  // It accepts connections, and never answers.
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  Settings settings = To("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  settings.timeout = std::chrono::hours(1);
  auto exporter = Started(settings, milliseconds(50));
  exporter->Add(SpanNamed("one"));
  ASSERT_TRUE(Until(*exporter, [](const auto& counts) { return counts.waiting == 0; }));
  exporter->Add(SpanNamed("two"));
  EXPECT_EQ(exporter->counts().waiting, 1);
  exporter.reset();  // Without the bound, the test would take an hour.
}

TEST_F(OtlpExporter, TlsTrustsTheGivenAuthority) {
  const TemporaryDirectory directory;
  http::TestAuthority authority(directory.path(), "authority");
  const auto files = authority.Issue("server", "server", "IP:127.0.0.1");
  Collector collector({.tls = http::TlsFiles{files.certificate, files.key}});
  const std::string url = "https://127.0.0.1:" + std::to_string(collector.server().port());
  Settings settings = To(url);
  settings.authority = "no-such.pem";
  EXPECT_FALSE(Exporter::Start(
      settings, [](const Exporter::Counts&) { return MetricFamilies(); }, log_));
  settings.authority = authority.file();
  auto exporter = Started(settings);
  exporter->Add(SpanNamed("one"));
  EXPECT_EQ(collector.Requests(1).size(), 1U);
}

}  // namespace
}  // namespace perseus::otlp
