#include "perseus/cluster/server/maintenance.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "perseus/base/units.h"
#include "perseus/cluster/telemetry/node_ranks.h"

namespace perseus::server {
namespace {

constexpr int kMaxPrunedJobs = 500;  // In one check.
constexpr store::Milliseconds kWatchesKept = 3'600'000;
// Between checks of a database that does not answer.
constexpr std::chrono::milliseconds kCheckUnavailableEvery{1'000};

}  // namespace

void Maintenance::Run() {
  front_.CheckCertificates();
  front_.SetGauges();
  if (database_.health().StartCheck()) {
    boost::asio::post(database_.pool(), [this, claims = fleet_.hub().Claims()] {
      Check(claims);
      database_.health().EndCheck();
    });
  } else if (database_.health().CheckSilence(std::chrono::steady_clock::now()) ==
             DatabaseHealth::Change::kBecameUnavailable) {
    log_.error("the database does not answer; nodes keep running their last plans");
  }
  timer_.expires_after(database_.health().is_available() ? options_.maintenance_interval
                                                         : kCheckUnavailableEvery);
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) Run();
  });
}

void Maintenance::Check(const std::vector<store::NodeClaim>& claims) {
  if (!IsDatabaseAvailable()) return;
  // A default notice means: read everything again.
  if (database_.health().TakeReread()) fleet_.hub().Receive(store::Notice());
  if (auto loaded = front_.rights().Load(database_.store()); !loaded)
    database_.Failed(loaded.error());
  const store::Milliseconds now = options_.now();
  RenewClaims(claims, now);
  const auto kept =
      static_cast<store::Milliseconds>(options_.keep_ended_days * kMillisecondsPerDay);
  if (auto pruned = database_.store().Prune(now - kept, kMaxPrunedJobs); !pruned) {
    database_.Failed(pruned.error());
  }
  fleet_.watches().ForgetBefore(now - kWatchesKept);
}

bool Maintenance::IsDatabaseAvailable() {
  database_.health().PingSent(std::chrono::steady_clock::now());
  const Result<void> answer = database_.store().Ping();
  switch (database_.health().PingAnswered(answer.has_value())) {
    case DatabaseHealth::Change::kBecameUnavailable:
      log_.error("{}; nodes keep running their last plans", answer.error().message);
      break;
    case DatabaseHealth::Change::kBecameAvailable:
      log_.info("the database answers again");
      break;
    case DatabaseHealth::Change::kNone:
      break;
  }
  return answer.has_value();
}

void Maintenance::RenewClaims(const std::vector<store::NodeClaim>& claims,
                              store::Milliseconds now) {
  auto lost = database_.store().ClaimNodes(claims, now, now - telemetry::kNodeIsSilentAfter);
  if (!lost) return database_.Failed(lost.error());
  fleet_.hub().UpdateClaims(claims, *std::move(lost));
}

}  // namespace perseus::server
