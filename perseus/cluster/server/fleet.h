// The jobs and nodes of this replica: the reports of nodes, the planning of jobs, and the events
// for nodes.
//
//   notice of the store ──► planning workers
//                       ──► event streams of nodes
//                       ──► reports that other replicas pass on
//
// Threads: planning workers have their own threads. Reports run on the pool of the database. The
// reports of one job run in order. Event streams belong to the loop. Notices arrive on the thread
// of the store.
//
// Invariants: planning ends (End) before the database ends. The database sends notices until it
// ends. So Fleet outlives the store, and the loop outlives Fleet.
#pragma once

#include <spdlog/logger.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <string_view>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/job_planning/planning_workers.h"
#include "perseus/cluster/server/control_plane.h"
#include "perseus/cluster/server/events/event_hub.h"
#include "perseus/cluster/server/events/plan_cuts.h"
#include "perseus/cluster/server/server_database.h"
#include "perseus/cluster/server/server_metrics.h"
#include "perseus/cluster/telemetry/job_watch.h"
#include "perseus/cluster/telemetry/node_reports.h"

namespace perseus::server {

class Fleet {
 public:
  Fleet(const ControlPlaneOptions& options, boost::asio::io_context& loop, ServerDatabase& database,
        ServerMetrics& metrics, spdlog::logger& log);

  void StartPlanning();
  // Call this after the loop has ended. Running plannings stop, so that another replica can claim
  // them.
  void End();
  void Receive(const store::Notice& notice);  // Call it on any thread.

  telemetry::JobWatches& watches() { return watches_; }
  telemetry::NodeReports& reports() { return reports_; }
  PlanCuts& cuts() { return cuts_; }
  EventHub& hub() { return *hub_; }

 private:
  using Strand = boost::asio::strand<boost::asio::thread_pool::executor_type>;

  void ReceiveSteps(std::string_view text);
  void Planned(const job_planning::PlanningReport& report);
  telemetry::ReportCallbacks Callbacks();

  const ControlPlaneOptions& options_;
  ServerDatabase& database_;
  ServerMetrics& metrics_;
  spdlog::logger& log_;
  telemetry::JobWatches watches_;
  telemetry::NodeReports reports_;
  PlanCuts cuts_;
  const std::shared_ptr<EventHub> hub_;
  // Strands (queues that run one task after another) for the messages of other replicas. The
  // messages of one job always use the same strand.
  std::vector<Strand> strands_;
  Mutex workers_mutex_;
  std::unique_ptr<job_planning::PlanningWorkers> workers_ PERSEUS_GUARDED_BY(workers_mutex_);
};

}  // namespace perseus::server
