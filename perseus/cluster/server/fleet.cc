#include "perseus/cluster/server/fleet.h"

#include <boost/asio/post.hpp>
#include <functional>
#include <utility>

#include "perseus/base/wording.h"
#include "perseus/cluster/telemetry/replica_messages.h"

namespace perseus::server {

Fleet::Fleet(const ControlPlaneOptions& options, boost::asio::io_context& loop,
             ServerDatabase& database, ServerMetrics& metrics, spdlog::logger& log)
    : options_(options),
      database_(database),
      metrics_(metrics),
      log_(log),
      reports_(database.store(), watches_, Callbacks()),
      cuts_(database.store()),
      hub_(std::make_shared<EventHub>(loop, database.pool(), database.store(), cuts_,
                                      [&database](const Error& error) {
                                        database.Failed(error);
                                        database.RequestReread();
                                      })) {
  for (int i = 0; i < ServerDatabase::kThreads; ++i) {
    strands_.push_back(boost::asio::make_strand(database.pool()));
  }
}

void Fleet::StartPlanning() {
  auto workers = std::make_unique<job_planning::PlanningWorkers>(
      database_.store(),
      job_planning::PlanningWorkers::Options{
          .threads = options_.planning_threads,
          .name = options_.replica,
          .lead_s = options_.lead_s,
          .now = options_.now,
          .planned = [this](const job_planning::PlanningReport& report) { Planned(report); },
          .failed = [this](const Error& error) { database_.Failed(error); }});
  const MutexLock lock(workers_mutex_);
  workers_ = std::move(workers);
}

void Fleet::End() {
  std::unique_ptr<job_planning::PlanningWorkers> ending;
  {
    const MutexLock lock(workers_mutex_);
    ending = std::move(workers_);
  }
  ending.reset();
  hub_->CloseAll();
}

void Fleet::Receive(const store::Notice& notice) {
  using Kind = store::Notice::Kind;
  if (notice.kind == Kind::kSteps) return ReceiveSteps(notice.name);
  if (notice.kind == Kind::kPlanning || notice.kind == Kind::kReadAgain) {
    const MutexLock lock(workers_mutex_);
    if (workers_) workers_->Wake();
  }
  hub_->Receive(notice);
}

// Processes the messages of one job in order.
void Fleet::ReceiveSteps(std::string_view text) {
  auto message = telemetry::ParseReplicaMessage(text);
  if (!message) return database_.Failed(message.error());
  auto& strand = strands_[std::hash<std::string>()(message->job) % strands_.size()];
  boost::asio::post(strand, [this, message = *std::move(message)] {
    if (auto taken = reports_.TakeFromReplica(message, options_.now()); !taken)
      database_.Failed(taken.error());
  });
}

void Fleet::Planned(const job_planning::PlanningReport& report) {
  const std::string_view status = store::Name(report.status);
  metrics_.CountPlanning(report.is_kept ? status : "superseded", report.seconds);
  if (report.status == store::JobStatus::kFailed) {
    log_.warn("job={} planning failed: {}", report.job, report.problem);
  } else {
    log_.debug("job={} status={} kept={} seconds={:.3f}", report.job, status, report.is_kept,
               report.seconds);
  }
}

telemetry::ReportCallbacks Fleet::Callbacks() {
  return {
      .noticed =
          [this](const std::string& key, const telemetry::NoticeChange& change) {
            metrics_.CountNotice(change.is_suspended);
            log_.warn("job={} straggler {} of source {} (slowdown {}) is {}: measured {}", key,
                      change.dp_rank, store::Name(change.source),
                      FormatPercent(change.slowdown - 1),
                      change.is_suspended ? "suspended" : "reinstated",
                      FormatPercent(change.measured - 1));
          },
      .guarded =
          [this](const std::string& key, const store::GuardRecord& guard) {
            metrics_.CountGuard(guard.state);
            log_.warn(
                "job={} plan {}: steps took {:.4f} times the planned time with the plan, {:.4f} "
                "times at the default clocks (0: not measured yet); {}",
                key, store::Name(guard.state), guard.with_plan, guard.without_plan, guard.why);
          },
      .judged = [this](const telemetry::JudgedEnergy& energy) { metrics_.CountEnergy(energy); }};
}

}  // namespace perseus::server
