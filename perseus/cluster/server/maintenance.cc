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
  options_.each_time();
  if (parts_.health.StartCheck()) {
    boost::asio::post(parts_.pool, [this, claims = parts_.hub.Claims()] {
      Check(claims);
      parts_.health.EndCheck();
    });
  } else if (parts_.health.CheckSilence(std::chrono::steady_clock::now()) ==
             DatabaseHealth::Change::kBecameUnavailable) {
    parts_.log.error("the database does not answer; nodes keep running their last plans");
  }
  timer_.expires_after(parts_.health.is_available() ? options_.interval : kCheckUnavailableEvery);
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) Run();
  });
}

void Maintenance::Check(const std::vector<store::NodeClaim>& claims) {
  if (!IsDatabaseAvailable()) return;
  // A default notice means: read everything again.
  if (parts_.health.TakeReread()) parts_.hub.Receive(store::Notice());
  if (auto loaded = parts_.rights.Load(parts_.store); !loaded) options_.failed(loaded.error());
  const store::Milliseconds now = options_.now();
  RenewClaims(claims, now);
  const auto kept =
      static_cast<store::Milliseconds>(options_.keep_ended_days * kMillisecondsPerDay);
  if (auto pruned = parts_.store.Prune(now - kept, kMaxPrunedJobs); !pruned) {
    options_.failed(pruned.error());
  }
  parts_.watches.ForgetBefore(now - kWatchesKept);
}

bool Maintenance::IsDatabaseAvailable() {
  parts_.health.PingSent(std::chrono::steady_clock::now());
  const Result<void> answer = parts_.store.Ping();
  switch (parts_.health.PingAnswered(answer.has_value())) {
    case DatabaseHealth::Change::kBecameUnavailable:
      parts_.log.error("{}; nodes keep running their last plans", answer.error().message);
      break;
    case DatabaseHealth::Change::kBecameAvailable:
      parts_.log.info("the database answers again");
      break;
    case DatabaseHealth::Change::kNone:
      break;
  }
  return answer.has_value();
}

void Maintenance::RenewClaims(const std::vector<store::NodeClaim>& claims,
                              store::Milliseconds now) {
  auto lost = parts_.store.ClaimNodes(claims, now, now - telemetry::kNodeIsSilentAfter);
  if (!lost) return options_.failed(lost.error());
  parts_.hub.UpdateClaims(claims, *std::move(lost));
}

}  // namespace perseus::server
