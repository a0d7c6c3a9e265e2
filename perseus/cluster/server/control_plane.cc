#include "perseus/cluster/server/control_plane.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/host.h"
#include "perseus/base/units.h"
#include "perseus/cluster/server/fleet.h"
#include "perseus/cluster/server/http_front.h"
#include "perseus/cluster/server/server_clock.h"
#include "perseus/cluster/server/server_database.h"
#include "perseus/cluster/server/server_metrics.h"
#include "perseus/cluster/telemetry/node_ranks.h"

namespace perseus::server {
namespace {

Milliseconds SystemNow() { return WholeMilliseconds(SinceEpoch()); }

std::string ReplicaName() { return fmt::format("{}-{}", HostName(), getpid()); }

constexpr int kMaxPrunedJobs = 500;  // The most jobs that one check deletes.
constexpr Milliseconds kWatchesKept = 3'600'000;
// The interval between checks of a database that does not answer.
constexpr std::chrono::milliseconds kCheckUnavailableEvery{1'000};

// Does the regular work of the server every few seconds. Checks certificates and metrics. While the
// database answers, also renews the claims of connected nodes, reads the tokens again, and deletes
// old data. So this class uses all three parts of the server.
//
// Uses the store on the pool, and does everything else on the loop.
class Maintenance {
 public:
  Maintenance(const ControlPlaneOptions& options, boost::asio::io_context& loop,
              ServerDatabase& database, Fleet& fleet, HttpFront& front, spdlog::logger& log)
      : options_(options),
        database_(database),
        fleet_(fleet),
        front_(front),
        log_(log),
        timer_(loop) {}

  // Starts a check now, and another check after each interval. Call it on the loop, or before the
  // loop runs.
  void Run() {
    front_.CheckCertificates();
    front_.SetGauges();
    const std::string outage = database_.Outage();
    LogOutage(outage);
    if (outage.empty() && !is_checking_.exchange(true)) {
      boost::asio::post(database_.pool(), [this, claims = fleet_.hub().Claims()] {
        Check(claims);
        is_checking_ = false;
      });
    }
    timer_.expires_after(outage.empty() ? options_.maintenance_interval : kCheckUnavailableEvery);
    timer_.async_wait([this](boost::system::error_code error) {
      if (!error) Run();
    });
  }

  // Call it on the loop.
  void Stop() { timer_.cancel(); }

 private:
  // Notices may be lost while the database does not answer. So the state of all streams is read
  // again.
  void LogOutage(const std::string& outage) {
    if (outage.empty() == was_available_) return;
    was_available_ = outage.empty();
    if (!was_available_) return log_.error("{}; nodes keep running their last plans", outage);
    log_.info("the database answers again");
    database_.RequestReread();
  }

  void Check(const std::vector<store::NodeClaim>& claims) {
    // The default notice is kReadAgain: read everything again.
    if (database_.TakeReread()) fleet_.hub().Receive(store::Notice());
    if (auto loaded = front_.rights().Load(database_.store()); !loaded)
      database_.Failed(loaded.error());
    const Milliseconds now = options_.now();
    RenewClaims(claims, now);
    const Milliseconds kept = FromDays(options_.keep_ended_days);
    if (auto pruned = database_.store().Prune(now - kept, kMaxPrunedJobs); !pruned) {
      database_.Failed(pruned.error());
    }
    fleet_.watches().ForgetBefore(now - kWatchesKept);
  }

  void RenewClaims(const std::vector<store::NodeClaim>& claims, Milliseconds now) {
    auto lost = database_.store().ClaimNodes(claims, now, now - telemetry::kNodeIsSilentAfter);
    if (!lost) return database_.Failed(lost.error());
    fleet_.hub().UpdateClaims(claims, *std::move(lost));
  }

  const ControlPlaneOptions& options_;
  ServerDatabase& database_;
  Fleet& fleet_;
  HttpFront& front_;
  spdlog::logger& log_;
  boost::asio::steady_timer timer_;
  bool was_available_ = true;
  std::atomic<bool> is_checking_ = false;  // Only one check runs at a time.
};

}  // namespace

// Each part uses only parts above it.
class ControlPlane::Impl {
 public:
  Impl(ControlPlaneOptions options, std::unique_ptr<store::Store> store, spdlog::logger& log)
      : options_(std::move(options)),
        database_(options_, std::move(store), metrics_, log),
        fleet_(options_, loop_, database_, metrics_, log),
        front_(options_, loop_, database_, fleet_, metrics_, log),
        maintenance_(options_, loop_, database_, fleet_, front_, log) {}

  // When the destructor runs, the loop has ended. First all threads end, because they use all
  // parts.
  ~Impl() {
    front_.End();
    fleet_.End();
    database_.End();
  }

  Result<void> Start() {
    PERSEUS_RETURN_IF_ERROR(front_.Start());
    PERSEUS_RETURN_IF_ERROR(database_.store().Listen([this](const store::Notice& notice) {
      front_.Receive(notice);
      fleet_.Receive(notice);
    }));
    fleet_.StartPlanning();
    database_.StartProbe();
    maintenance_.Run();
    return {};
  }

  void Run() {
    const auto keeps_running = boost::asio::make_work_guard(loop_);
    loop_.run();
  }

  void Stop() {
    boost::asio::post(loop_, [this] {
      maintenance_.Stop();
      front_.Stop();
    });
  }

  HttpFront& front() { return front_; }

 private:
  const ControlPlaneOptions options_;
  ServerMetrics metrics_;
  boost::asio::io_context loop_{1};
  ServerDatabase database_;
  Fleet fleet_;
  HttpFront front_;
  Maintenance maintenance_;
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

int ControlPlane::port() const { return impl_->front().port(); }
void ControlPlane::Run() { impl_->Run(); }
void ControlPlane::Stop() { impl_->Stop(); }
void ControlPlane::Reload() { impl_->front().Reload(); }
const std::vector<std::string>& ControlPlane::Routes() const { return impl_->front().routes(); }

}  // namespace perseus::server
