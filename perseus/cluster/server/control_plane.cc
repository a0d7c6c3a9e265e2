#include "perseus/cluster/server/control_plane.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <system_error>

#include "perseus/base/clock.h"
#include "perseus/base/excerpt.h"
#include "perseus/base/host.h"
#include "perseus/base/host_port.h"
#include "perseus/base/mutex.h"
#include "perseus/cluster/job_planning/planning_workers.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/server/api/fleet_status.h"
#include "perseus/cluster/server/api/openapi.h"
#include "perseus/cluster/server/database_health.h"
#include "perseus/cluster/server/database_probe.h"
#include "perseus/cluster/server/events/event_hub.h"
#include "perseus/cluster/server/identity/foreign_identities.h"
#include "perseus/cluster/server/maintenance.h"
#include "perseus/cluster/server/server_clock.h"
#include "perseus/cluster/server/server_metrics.h"
#include "perseus/cluster/server/zeus/zeus_api.h"
#include "perseus/cluster/telemetry/replica_messages.h"

namespace perseus::server {
namespace {

// Each may need 70 MB of memory while it is read.
constexpr int kLargeBodies = 8;
// Most of them wait for a commit, which contains the transactions of all that wait.
constexpr int kStoreThreads = 32;
constexpr std::chrono::milliseconds kShutdownTimeout{5'000};
// A revoked token closes its streams after two intervals at most, and the time to read the tokens.
constexpr std::chrono::milliseconds kWatchTokensEvery{200};

store::Milliseconds SystemNow() { return SinceEpoch() / kMillisecond; }

// Whether only this machine can reach the server.
bool IsLocal(const ControlPlaneOptions& options) {
  const auto address = ParseHostPort(options.address);
  return address && IsLoopback(address->host);
}

// After the last token is revoked, a server that other machines can reach has no operator.
// Otherwise everybody would be an operator.
Rights::WithoutTokens WithoutTokens(const ControlPlaneOptions& options) {
  // Then the operators are people behind the proxy.
  if (options.identities.proxy) return Rights::WithoutTokens::kClosed;
  if (options.is_insecure) return Rights::WithoutTokens::kOpen;
  return IsLocal(options) ? Rights::WithoutTokens::kOpenHere : Rights::WithoutTokens::kClosed;
}

std::string ReplicaName() { return fmt::format("{}-{}", HostName(), getpid()); }

// When the files changed. For a missing file, the least possible time.
std::vector<std::filesystem::file_time_type> TimesOf(const std::optional<http::TlsFiles>& files) {
  std::vector<std::filesystem::file_time_type> times;
  if (!files) return times;
  for (const std::string& file : {files->certificate, files->key, files->client_authority}) {
    std::error_code error;
    times.push_back(std::filesystem::last_write_time(file, error));
  }
  return times;
}

// Whether to log a request at level info: a person changed something. Nodes and profilers change
// something all the time.
bool IsWorthLogging(std::string_view method, std::string_view pattern, int status) {
  if (status >= 300 || method == "GET" || method == "HEAD") return false;
  if (pattern.starts_with("/v1/tokens")) return true;
  return pattern.starts_with("/v1/jobs") && !pattern.ends_with("/measurements") &&
         !pattern.ends_with("/next-clocks") && !pattern.ends_with("/forecasts");
}

std::optional<http::UnixAddress> SocketOf(const IdentitySettings& identities) {
  return identities.proxy ? identities.proxy->socket : std::nullopt;
}

using Strand = boost::asio::strand<boost::asio::thread_pool::executor_type>;

std::vector<Strand> MakeStrands(boost::asio::thread_pool& pool) {
  std::vector<Strand> strands;
  for (int i = 0; i < kStoreThreads; ++i) strands.push_back(boost::asio::make_strand(pool));
  return strands;
}

void AddAll(Endpoints& endpoints, EventHub& hub, boost::asio::thread_pool& pool) {
  AddStatusEndpoints(endpoints);
  AddJobEndpoints(endpoints);
  AddProfileEndpoints(endpoints);
  AddPlanEndpoints(endpoints);
  AddStragglerEndpoints(endpoints);
  AddNodeEndpoints(endpoints, hub, pool);
  AddTokenEndpoints(endpoints);
  AddAuditEndpoints(endpoints);
  AddZeusEndpoints(endpoints, pool);
}

}  // namespace

class ControlPlane::Impl {
 public:
  Impl(ControlPlaneOptions options, std::unique_ptr<store::Store> store, spdlog::logger& log)
      : options_(std::move(options)),
        log_(log),
        store_(std::move(store)),
        rights_(WithoutTokens(options_)),
        reports_(
            *store_, watches_,
            {.noticed = [this](const std::string& key,
                               const telemetry::NoticeChange& change) { Noticed(key, change); },
             .guarded = [this](const std::string& key,
                               const store::GuardRecord& guard) { Guarded(key, guard); },
             .saved = [this](double energy_j) { metrics_.CountSavedEnergy(energy_j); }}),
        cuts_(*store_),
        limits_(options_.caller_limits),
        services_{*store_,
                  rights_,
                  watches_,
                  reports_,
                  cuts_,
                  limits_,
                  waiting_,
                  large_bodies_,
                  options_.now,
                  [this] {
                    metrics_.SetReady(Readiness().has_value());
                    return metrics_.Format();
                  },
                  [this] { return IsReady(); },
                  [this] { return Readiness(); },
                  std::string(OpenApiDocument()),
                  plans_on_request_,
                  ends_.get_token()},
        endpoints_(services_, pool_),
        hub_(std::make_shared<EventHub>(loop_, pool_, *store_, cuts_,
                                        [this](const Error& error) {
                                          Failed(error);
                                          health_.RequestReread();
                                        })),
        maintenance_({.loop = loop_,
                      .pool = pool_,
                      .store = *store_,
                      .health = health_,
                      .rights = rights_,
                      .watches = watches_,
                      .hub = *hub_,
                      .log = log_},
                     {.interval = options_.maintenance_interval,
                      .keep_ended_days = options_.keep_ended_days,
                      .now = options_.now,
                      .each_time =
                          [this] {
                            CheckCertificates();
                            SetGauges();
                          },
                      .failed = [this](const Error& error) { Failed(error); }}) {
    const IdentitySettings& identities = options_.identities;
    if (!identities.proxy && !identities.munge && !options_.read_identities) return;
    foreign_ = std::make_unique<ForeignIdentities>(
        identities, [this](std::set<std::string> trust) { rights_.SetTrust(std::move(trust)); });
    services_.foreign = foreign_.get();
  }

  ~Impl() {
    ends_.request_stop();
    std::unique_ptr<job_planning::PlanningWorkers> ending;
    {
      const MutexLock lock(workers_mutex_);
      ending = std::move(workers_);
    }
    ending.reset();
    probe_.reset();
    foreign_.reset();
    pool_.join();
    // Ends the thread that passes notices to the hub.
    store_.reset();
    hub_->CloseAll();
  }

  Result<void> Start() {
    PERSEUS_RETURN_IF_ERROR(rights_.Load(*store_));
    PERSEUS_RETURN_IF_ERROR(CheckProxy(options_.identities));
    PERSEUS_RETURN_IF_ERROR(CheckExposure());
    PERSEUS_RETURN_IF_ERROR(StartServer());
    PERSEUS_RETURN_IF_ERROR(
        store_->Listen([this](const store::Notice& notice) { Receive(notice); }));
    StartPlanning();
    probe_.emplace(*store_, options_.now, [this] { AfterProbe(); });
    maintenance_.Run();
    WatchTokens();
    return {};
  }

  void Run() {
    const auto keeps_running = boost::asio::make_work_guard(loop_);
    loop_.run();
  }

  void Stop() {
    boost::asio::post(loop_, [this] {
      maintenance_.Stop();
      tokens_timer_.cancel();
      server_->Stop(kShutdownTimeout);
      auto end = std::make_shared<boost::asio::steady_timer>(loop_, kShutdownTimeout);
      WaitForEnd(std::move(end));
    });
  }

  void Reload() {
    if (options_.tls) boost::asio::post(loop_, [this] { ReadCertificates(); });
    if (!options_.read_identities) return;
    // On this thread, because a file may be slow.
    auto read = options_.read_identities();
    if (read) {
      if (auto good = CheckProxy(*read); !good) read = Fail(good);
    }
    metrics_.CountReload("identities", read.has_value());
    if (!read) {
      log_.error("the identities were not replaced: {}", read.error().message);
      return;
    }
    boost::asio::post(loop_, [this, fresh = *std::move(read)]() mutable {
      if (fresh.proxy) rights_.Close();
      log_.info("identities replaced");
      foreign_->Replace(std::move(fresh));
    });
  }

  int port() const { return server_->port(); }
  const std::vector<std::string>& routes() const { return routes_; }

 private:
  Result<void> StartServer() {
    AddAll(endpoints_, *hub_, pool_);
    http::Router router = endpoints_.TakeRouter();
    routes_ = router.Routes();
    tls_times_ = TimesOf(options_.tls);
    auto server = http::Server::Listen(
        loop_,
        {.address = options_.address,
         .unix_socket = SocketOf(options_.identities),
         .limits = options_.limits,
         .tls = options_.tls,
         .answered = [this](const http::Request& request, std::string_view pattern, int status,
                            double seconds) { Answered(request, pattern, status, seconds); },
         .failed =
             [this](const http::Request& request, std::string_view pattern, std::string_view what) {
               log_.error("trace={} method={} route=\"{}\" failed: {}", request.trace,
                          request.method, pattern, what);
             }},
        std::move(router));
    if (!server) return Fail(server);
    server_.emplace(*std::move(server));
    return {};
  }

  // Many tokens may change at once, when a fleet enrolls: they are read once in each interval.
  void WatchTokens() {
    if (reload_tokens_.exchange(false)) {
      boost::asio::post(pool_, [this] {
        if (auto loaded = rights_.Load(*store_); !loaded) {
          Failed(loaded.error());  // Maintenance reads them again.
        }
      });
    }
    const store::Milliseconds now = options_.now();
    if (rights_.TakeChange(now)) {
      const auto is_valid = [&](const Identity& caller) { return rights_.IsValid(caller, now); };
      for (const std::string& node : hub_->CloseInvalid(is_valid)) {
        log_.info("node={} stream closed: its token was revoked or has expired", node);
      }
    }
    tokens_timer_.expires_after(kWatchTokensEvery);
    tokens_timer_.async_wait([this](boost::system::error_code error) {
      if (!error) WatchTokens();
    });
  }

  void StartPlanning() {
    auto workers = std::make_unique<job_planning::PlanningWorkers>(
        *store_,
        job_planning::PlanningWorkers::Options{
            .threads = options_.planning_threads,
            .name = options_.replica,
            .lead_s = options_.lead_s,
            .now = options_.now,
            .planned = [this](const job_planning::PlanningReport& report) { Planned(report); },
            .failed = [this](const Error& error) { Failed(error); }});
    const MutexLock lock(workers_mutex_);
    workers_ = std::move(workers);
  }

  void ReadCertificates() {
    auto loaded = server_->ReloadTls();
    metrics_.CountReload("certificates", loaded.has_value());
    if (!loaded) {
      log_.error("the certificates were not replaced: {}", loaded.error().message);
    } else {
      log_.info("certificates replaced");
    }
  }

  // Finds certificates that were renewed without a signal, as in a Kubernetes Secret. If only one
  // of two files has changed yet, the change of the other one is found later.
  void CheckCertificates() {
    auto times = TimesOf(options_.tls);
    if (times == tls_times_) return;
    tls_times_ = std::move(times);
    ReadCertificates();
  }

  // Ends the loop when no connection is left, or after the timeout.
  void WaitForEnd(std::shared_ptr<boost::asio::steady_timer> end) {
    if (server_->counts().connections == 0 || end->expiry() <= std::chrono::steady_clock::now()) {
      loop_.stop();
      return;
    }
    auto look = std::make_shared<boost::asio::steady_timer>(loop_, std::chrono::milliseconds(20));
    look->async_wait(
        [this, end = std::move(end), look](boost::system::error_code) { WaitForEnd(end); });
  }

  // Whether this process can do what the settings say.
  Result<void> CheckProxy(const IdentitySettings& identities) const {
    if (!identities.proxy) return {};
    const bool has_authority = options_.tls && !options_.tls->client_authority.empty();
    if (!identities.proxy->certificates.empty() && !has_authority) {
      return Fail("certificates in [proxy] needs client certificates (give --client-ca)");
    }
    const auto socket = SocketOf(identities);
    if (!socket || socket == SocketOf(options_.identities)) return {};
    return Fail("[proxy] has another socket than at the start (restart the server)");
  }

  Result<void> CheckExposure() {
    PERSEUS_RETURN_IF_ERROR(ParseHostPort(options_.address));
    if (IsLocal(options_) || options_.is_insecure) return {};
    if (!options_.tls) {
      return Fail(
          "other machines can reach {}: give `tls_certificate` and `tls_key`, or `insecure` if a "
          "proxy in front of the server does TLS",
          options_.address);
    }
    PERSEUS_ASSIGN_OR_RETURN(const auto tokens, store_->ListTokens());
    if (!tokens.empty() || options_.identities.proxy) return {};
    return Fail(
        "other machines can reach {}, and without a token everybody is an operator: first create a "
        "token (perseus token create --scope operator), or give `insecure`",
        options_.address);
  }

  void Receive(const store::Notice& notice) {
    if (notice.kind == store::Notice::Kind::kSteps) {
      ReceiveSteps(notice.name);
      return;
    }
    const bool is_all = notice.kind == store::Notice::Kind::kReadAgain;
    if (notice.kind == store::Notice::Kind::kPlanning || is_all) {
      const MutexLock lock(workers_mutex_);
      if (workers_) workers_->Wake();
    }
    if (notice.kind == store::Notice::Kind::kTokens || is_all) reload_tokens_ = true;
    hub_->Receive(notice);
  }

  // The messages of one job are processed in order.
  void ReceiveSteps(std::string_view text) {
    auto message = telemetry::ParseReplicaMessage(text);
    if (!message) return Failed(message.error());
    auto& strand = strands_[std::hash<std::string>()(message->job) % strands_.size()];
    boost::asio::post(strand, [this, message = *std::move(message)] {
      if (auto taken = reports_.TakeFromReplica(message, options_.now()); !taken)
        Failed(taken.error());
    });
  }

  void Answered(const http::Request& request, std::string_view pattern, int status,
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
             request.trace, request.peer, request.identity, request.method, pattern, status,
             seconds);
  }

  void Planned(const job_planning::PlanningReport& report) {
    metrics_.CountPlanning(report.is_kept ? report.status : "superseded", report.seconds);
    if (report.status == "failed") {
      log_.warn("job={} planning failed: {}", report.job, report.problem);
    } else {
      log_.debug("job={} status={} kept={} seconds={:.3f}", report.job, report.status,
                 report.is_kept, report.seconds);
    }
  }

  void Failed(const Error& error) {
    metrics_.CountStoreFailure();
    log_.error("{}", error.message);
  }

  Answer<void> IsReady() const {
    if (health_.is_available()) return {};
    return Refuse(503, "The server cannot do this now", "the database does not answer",
                  "nodes keep running their last plans; try again later");
  }

  Answer<void> Readiness() const {
    if (auto ready = IsReady(); !ready) return ready;
    const std::string problem = probe_ ? probe_->Problem() : std::string();
    if (problem.empty()) return {};
    return Refuse(503, "The server cannot do this now", problem,
                  "nodes keep running their last plans; check the database and its disk");
  }

  // On the thread of the probe.
  void AfterProbe() {
    metrics_.SetRefusedWrites(store_->failed_writes());
    if (options_.clock) {
      if (const auto database = store_->Clock(); database && *database) {
        if (const auto step = options_.clock->Compare(**database); step != 0) {
          log_.warn(
              "the clock of the database was set by {} ms; notices end as much later or "
              "sooner",
              step);
        }
      }
    }
    const auto fleet = ReadFleetStatus(*store_, options_.now());
    if (fleet) metrics_.SetFleet(*fleet);
  }

  void Noticed(const std::string& key, const telemetry::NoticeChange& change) {
    metrics_.CountNotice(change.is_suspended);
    log_.warn("job={} straggler {} of source {} (slowdown {:.4g}) is {}: measured {:.4g}", key,
              change.dp_rank, change.source, change.slowdown,
              change.is_suspended ? "suspended" : "reinstated", change.measured);
  }

  void Guarded(const std::string& key, const store::GuardRecord& guard) {
    metrics_.CountGuard(guard.state);
    log_.warn(
        "job={} plan {}: steps took {:.4f} times the planned time with the plan, {:.4f} "
        "times at the default clocks (0: not measured yet); {}",
        key, guard.state, guard.with_plan, guard.without_plan, guard.why);
  }

  void SetGauges() {
    const auto counts = server_->counts();
    metrics_.Set({.connections = counts.connections,
                  .streams = counts.streams,
                  .jobs = watches_.jobs(),
                  .events = hub_->events(),
                  .refused_connections = counts.refused,
                  .dropped_streams = counts.dropped_streams,
                  .overload_refusals = waiting_.refused()});
  }

  ControlPlaneOptions options_;
  spdlog::logger& log_;
  std::unique_ptr<store::Store> store_;
  ServerMetrics metrics_;
  DatabaseHealth health_;
  std::atomic<int> plans_on_request_{0};
  std::stop_source ends_;
  Rights rights_;
  telemetry::JobWatches watches_;
  telemetry::NodeReports reports_;
  PlanCuts cuts_;
  CallerLimits limits_;
  WaitingRequests waiting_;
  LargeBodies large_bodies_{kLargeBodies};
  Services services_;
  boost::asio::io_context loop_{1};
  boost::asio::thread_pool pool_{kStoreThreads};
  // For the messages of other replicas. Those of one job always use the same strand.
  std::vector<Strand> strands_ = MakeStrands(pool_);
  boost::asio::steady_timer tokens_timer_{loop_};
  std::atomic<bool> reload_tokens_{false};
  std::unique_ptr<ForeignIdentities> foreign_;
  Endpoints endpoints_;
  std::shared_ptr<EventHub> hub_;
  std::vector<std::string> routes_;
  std::optional<http::Server> server_;
  std::vector<std::filesystem::file_time_type> tls_times_;
  Mutex workers_mutex_;
  std::unique_ptr<job_planning::PlanningWorkers> workers_ PERSEUS_GUARDED_BY(workers_mutex_);
  Maintenance maintenance_;
  std::optional<DatabaseProbe> probe_;
};

ControlPlane::ControlPlane(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlPlane::~ControlPlane() = default;

Result<std::unique_ptr<ControlPlane>> ControlPlane::Start(ControlPlaneOptions options,
                                                          spdlog::logger& log) {
  if (options.replica.empty()) options.replica = ReplicaName();
  PERSEUS_ASSIGN_OR_RETURN(auto store, store::OpenStore(options.database));
  if (!options.now) {
    PERSEUS_ASSIGN_OR_RETURN(const auto database, store->Clock());
    options.clock = std::make_shared<ServerClock>(database.value_or(SystemNow()));
    options.now = [clock = options.clock] { return clock->Now(); };
  }
  auto impl = std::make_unique<Impl>(std::move(options), std::move(store), log);
  PERSEUS_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<ControlPlane>(new ControlPlane(std::move(impl)));
}

int ControlPlane::port() const { return impl_->port(); }
void ControlPlane::Run() { impl_->Run(); }
void ControlPlane::Stop() { impl_->Stop(); }
void ControlPlane::Reload() { impl_->Reload(); }
const std::vector<std::string>& ControlPlane::Routes() const { return impl_->routes(); }

}  // namespace perseus::server
