#include "perseus/cluster/server/server_database.h"

#include "perseus/cluster/server/api/fleet_status.h"
#include "perseus/cluster/server/server_clock.h"

namespace perseus::server {

void ServerDatabase::StartProbe() {
  probe_.emplace(*store_, options_.now, [this] { AfterProbe(); });
}

void ServerDatabase::End() {
  probe_.reset();
  pool_.join();
  store_.reset();
}

Answer<void> ServerDatabase::IsReady() const {
  if (Outage().empty()) return {};
  return Refuse(503, "The server cannot do this now", "the database does not answer",
                "nodes keep running their last plans; try again later");
}

Answer<void> ServerDatabase::Readiness() const {
  PERSEUS_RETURN_IF_ERROR(IsReady());
  const std::string problem = probe_ ? probe_->Problem() : std::string();
  if (problem.empty()) return {};
  return Refuse(503, "The server cannot do this now", problem,
                "nodes keep running their last plans; check the database and its disk");
}

void ServerDatabase::Failed(const Error& error) {
  metrics_.CountStoreFailure();
  log_.error("{}", error.Message());
}

// Updates metrics and compares the clocks after each attempt of the probe to make a change. Runs on
// the thread of the probe.
void ServerDatabase::AfterProbe() {
  metrics_.SetRefusedWrites(store_->failed_writes());
  if (options_.clock) {
    if (const auto database = store_->Clock(); database && *database) {
      if (const auto step = options_.clock->Compare(**database); step != 0) {
        log_.warn(
            "the clock of the database was set by {} ms; notices end as much later or "
            "sooner",
            step.count());
      }
    }
  }
  const auto fleet = ReadFleetStatus(*store_, options_.now());
  if (!fleet) return;
  metrics_.SetFleet(*fleet);
  LogNeeds(*fleet);
}

// Logs each reason why a job needs a person, once while it lasts.
void ServerDatabase::LogNeeds(const FleetStatus& fleet) {
  std::set<std::pair<std::string, std::string>> needs;
  for (const JobStatus& job : fleet.jobs) {
    for (const Need& need : job.needs) {
      needs.emplace(job.key, need.reason);
      if (!needs_.contains({job.key, std::string(need.reason)})) {
        log_.warn("job={} needs a person: {}", job.key, need.text);
      }
    }
  }
  for (const auto& [key, reason] : needs_) {
    if (!needs.contains({key, reason}))
      log_.info("job={} no longer needs a person: {}", key, reason);
  }
  needs_ = std::move(needs);
}

}  // namespace perseus::server
