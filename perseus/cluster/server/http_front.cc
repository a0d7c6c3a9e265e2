#include "perseus/cluster/server/http_front.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <set>
#include <system_error>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/host_port.h"
#include "perseus/cluster/server/api/zeus_api.h"

namespace perseus::server {
namespace {

// How many large bodies may be read at once. Each body may need 70 MB of memory while it is read.
constexpr int kLargeBodies = 8;
constexpr int kPlansOnRequest = 2;
constexpr std::chrono::milliseconds kShutdownTimeout{5'000};
// A revoked token closes its streams after at most two intervals plus the time to read the tokens.
constexpr std::chrono::milliseconds kWatchTokensEvery{200};

// Returns whether only this machine can reach the server.
bool IsLocal(const ControlPlaneOptions& options) {
  const auto address = ParseHostPort(options.address);
  return address && IsLoopback(address->host);
}

// Returns who is an operator after the last token is revoked. If other machines can reach the
// server, nobody is an operator, because otherwise everybody would be an operator.
Rights::WithoutTokens WithoutTokens(const ControlPlaneOptions& options) {
  // With a proxy, the operators are users behind the proxy.
  if (options.identities.proxy) return Rights::WithoutTokens::kClosed;
  if (options.is_insecure) return Rights::WithoutTokens::kOpen;
  return IsLocal(options) ? Rights::WithoutTokens::kOpenToOwnUser : Rights::WithoutTokens::kClosed;
}

// Returns null if no settings can ever name a proxy or munge.
std::unique_ptr<ForeignIdentities> Foreign(const ControlPlaneOptions& options, Rights& rights) {
  const IdentitySettings& identities = options.identities;
  if (!identities.proxy && !identities.munge && !options.read_identities) return nullptr;
  return std::make_unique<ForeignIdentities>(
      identities, [&rights](std::set<std::string> trust) { rights.SetTrust(std::move(trust)); });
}

// Returns when the files changed. For a missing file, returns the least possible time.
std::vector<std::filesystem::file_time_type> TimesOf(const std::optional<http::TlsFiles>& files) {
  std::vector<std::filesystem::file_time_type> times;
  if (!files) return times;
  for (const std::string& file : {files->certificate, files->key, files->client_authority}) {
    std::error_code error;
    times.push_back(std::filesystem::last_write_time(file, error));
  }
  return times;
}

// Whether to log a request at level info. This is the case if a person changed something. Requests
// of nodes and profilers are not logged, because they change something all the time.
bool IsWorthLogging(std::string_view method, std::string_view pattern, int status) {
  if (status >= 300 || method == "GET" || method == "HEAD") return false;
  if (pattern.starts_with("/v1/tokens")) return true;
  return pattern.starts_with("/v1/jobs") && !pattern.ends_with("/forecasts");
}

std::optional<http::UnixAddress> SocketOf(const IdentitySettings& identities) {
  return identities.proxy ? identities.proxy->socket : std::nullopt;
}

http::Router MakeRouter(Endpoints& endpoints, EventHub& hub, boost::asio::thread_pool& pool) {
  AddStatusEndpoints(endpoints);
  AddJobEndpoints(endpoints);
  AddPlanEndpoints(endpoints);
  AddStragglerEndpoints(endpoints);
  AddNodeEndpoints(endpoints, hub, pool);
  AddTokenEndpoints(endpoints);
  AddAuditEndpoints(endpoints);
  AddZeusEndpoints(endpoints, pool);
  return endpoints.TakeRouter();
}

}  // namespace

HttpFront::HttpFront(const ControlPlaneOptions& options, boost::asio::io_context& loop,
                     ServerDatabase& database, Fleet& fleet, ServerMetrics& metrics,
                     spdlog::logger& log)
    : options_(options),
      loop_(loop),
      database_(database),
      fleet_(fleet),
      metrics_(metrics),
      log_(log),
      rights_(WithoutTokens(options)),
      foreign_(Foreign(options, rights_)),
      limits_(options.caller_limits),
      large_bodies_(kLargeBodies),
      plans_on_request_(kPlansOnRequest),
      services_(MakeServices()),
      endpoints_(services_, database.pool()) {}

Services HttpFront::MakeServices() {
  return {.store = database_.store(),
          .rights = rights_,
          .watches = fleet_.watches(),
          .reports = fleet_.reports(),
          .cuts = fleet_.cuts(),
          .limits = limits_,
          .waiting = waiting_,
          .large_bodies = large_bodies_,
          .now = options_.now,
          .metrics =
              [this] {
                metrics_.SetReady(database_.Readiness().has_value());
                return metrics_.Format();
              },
          .is_ready = [this] { return database_.IsReady(); },
          .readiness = [this] { return database_.Readiness(); },
          .plans_on_request = plans_on_request_,
          .ends = ends_.get_token(),
          .foreign = foreign_.get()};
}

Result<void> HttpFront::Start() {
  PERSEUS_RETURN_IF_ERROR(rights_.Load(database_.store()));
  PERSEUS_RETURN_IF_ERROR(CheckProxy(options_.identities));
  PERSEUS_RETURN_IF_ERROR(CheckExposure());
  PERSEUS_RETURN_IF_ERROR(Listen());
  WatchTokens();
  return {};
}

void HttpFront::Stop() {
  tokens_timer_.cancel();
  server_->Stop(kShutdownTimeout);
  WaitForEnd(std::make_shared<boost::asio::steady_timer>(loop_, kShutdownTimeout));
}

void HttpFront::Reload() {
  if (options_.tls) boost::asio::post(loop_, [this] { ReadCertificates(); });
  if (!options_.read_identities) return;
  // Read on this thread, because reading a file may be slow.
  auto read = options_.read_identities();
  if (read) {
    if (auto good = CheckProxy(*read); !good) read = Fail(good);
  }
  metrics_.CountReload("identities", read.has_value());
  if (!read) {
    log_.error("the identities were not replaced: {}", read.error().Message());
    return;
  }
  boost::asio::post(loop_, [this, fresh = *std::move(read)]() mutable {
    if (fresh.proxy) rights_.Close();
    log_.info("identities replaced");
    foreign_->Replace(std::move(fresh));
  });
}

void HttpFront::Receive(const store::Notice& notice) {
  using Kind = store::Notice::Kind;
  if (notice.kind == Kind::kTokens || notice.kind == Kind::kReadAgain) reload_tokens_ = true;
}

void HttpFront::CheckCertificates() {
  auto times = TimesOf(options_.tls);
  if (times == tls_times_) return;
  tls_times_ = std::move(times);
  ReadCertificates();
}

void HttpFront::SetGauges() {
  const auto counts = server_->counts();
  metrics_.Set({.connections = counts.connections,
                .streams = counts.streams,
                .jobs = fleet_.watches().jobs(),
                .events = fleet_.hub().events(),
                .refused_connections = counts.refused,
                .dropped_streams = counts.dropped_streams,
                .overload_refusals = waiting_.refused()});
}

// Checks that the options of this process allow what the settings require.
Result<void> HttpFront::CheckProxy(const IdentitySettings& identities) const {
  if (!identities.proxy) return {};
  const bool has_authority = options_.tls && !options_.tls->client_authority.empty();
  if (!identities.proxy->certificates.empty() && !has_authority) {
    return Fail("certificates in [proxy] needs client certificates (give `client_ca`)");
  }
  const auto socket = SocketOf(identities);
  if (!socket || socket == SocketOf(options_.identities)) return {};
  return Fail("[proxy] has another socket than at the start (restart the server)");
}

Result<void> HttpFront::CheckExposure() const {
  PERSEUS_RETURN_IF_ERROR(ParseHostPort(options_.address));
  if (IsLocal(options_) || options_.is_insecure) return {};
  if (!options_.tls) {
    return Fail(
        "other machines can reach {}: give `tls_certificate` and `tls_key`, or `insecure` if a "
        "proxy in front of the server does TLS",
        options_.address);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto tokens, database_.store().ListTokens());
  if (!tokens.empty() || options_.identities.proxy) return {};
  return Fail(
      "other machines can reach {}, and without a token everybody is an operator: first create a "
      "token of an operator (perseus token create), or give `insecure`",
      options_.address);
}

Result<void> HttpFront::Listen() {
  http::Router router = MakeRouter(endpoints_, fleet_.hub(), database_.pool());
  routes_ = router.Routes();
  tls_times_ = TimesOf(options_.tls);
  auto server = http::Server::Listen(
      loop_,
      {.address = options_.address,
       .unix_socket = SocketOf(options_.identities),
       .limits = options_.limits,
       .tls = options_.tls,
       .finds_local_users = WithoutTokens(options_) == Rights::WithoutTokens::kOpenToOwnUser,
       .answered = [this](const http::Request& request, std::string_view pattern, int status,
                          double seconds) { Answered(request, pattern, status, seconds); },
       .failed =
           [this](const http::Request& request, std::string_view pattern, std::string_view what) {
             log_.error("trace={} method={} route=\"{}\" failed: {}", request.trace, request.method,
                        pattern, what);
           }},
      std::move(router));
  if (!server) return Fail(server);
  server_.emplace(*std::move(server));
  return {};
}

// Reads changed tokens at most once in each interval, because many tokens change at once when a
// fleet enrolls.
void HttpFront::WatchTokens() {
  if (reload_tokens_.exchange(false)) {
    boost::asio::post(database_.pool(), [this] {
      if (auto loaded = rights_.Load(database_.store()); !loaded) {
        database_.Failed(loaded.error());  // The maintenance reads the tokens again.
      }
    });
  }
  const Milliseconds now = options_.now();
  if (rights_.TakeChange(now)) {
    const auto is_valid = [&](const Identity& caller) { return rights_.IsValid(caller, now); };
    for (const std::string& node : fleet_.hub().CloseInvalid(is_valid)) {
      log_.info("node={} stream closed: its token was revoked or has expired", node);
    }
  }
  tokens_timer_.expires_after(kWatchTokensEvery);
  tokens_timer_.async_wait([this](boost::system::error_code error) {
    if (!error) WatchTokens();
  });
}

void HttpFront::ReadCertificates() {
  auto loaded = server_->ReloadTls();
  metrics_.CountReload("certificates", loaded.has_value());
  if (!loaded) {
    log_.error("the certificates were not replaced: {}", loaded.error().Message());
  } else {
    log_.info("certificates replaced");
  }
}

void HttpFront::WaitForEnd(std::shared_ptr<boost::asio::steady_timer> end) {
  if (server_->counts().connections == 0 || end->expiry() <= std::chrono::steady_clock::now()) {
    loop_.stop();
    return;
  }
  auto look = std::make_shared<boost::asio::steady_timer>(loop_, std::chrono::milliseconds(20));
  look->async_wait(
      [this, end = std::move(end), look](boost::system::error_code) { WaitForEnd(end); });
}

void HttpFront::Answered(const http::Request& request, std::string_view pattern, int status,
                         double seconds) {
  metrics_.CountRequest(request.method, pattern, status, seconds);
  if (IsWorthLogging(request.method, pattern, status)) {
    log_.info("trace={} peer={} identity=\"{}\" method={} path={} status={}", request.trace,
              request.peer, request.identity, request.method,
              IsPrintable(request.path) ? request.path : Excerpt(request.path), status);
    return;
  }
  const auto level = status >= 500 ? spdlog::level::warn : spdlog::level::debug;
  if (!log_.should_log(level)) return;
  log_.log(level,
           "trace={} peer={} identity=\"{}\" method={} route=\"{}\" status={} "
           "seconds={:.6f}",
           request.trace, request.peer, request.identity, request.method, pattern, status, seconds);
}

}  // namespace perseus::server
