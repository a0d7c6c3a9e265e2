// The server's database: the store, the threads that use the store, and the probe that checks
// whether the database answers.
//
// Threads: requests and the work of the other parts use the store on `pool`. The probe has its own
// thread (database_probe.h). The store also has its own thread, for notices.
//
// Invariant: End ends the probe and the pool, and then closes the store with its thread. So nothing
// uses a closed store, and after End no task of the pool runs and no notice arrives.
//
// Thread safe, except Start and End.
#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "perseus/base/result.h"
#include "perseus/cluster/server/api/fleet_status.h"
#include "perseus/cluster/server/control_plane.h"
#include "perseus/cluster/server/database_probe.h"
#include "perseus/cluster/server/identity/answer.h"
#include "perseus/cluster/server/server_metrics.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

class ServerDatabase {
 public:
  // The number is high, because most of these threads wait for a commit. One commit contains the
  // transactions of all waiting threads.
  static constexpr int kThreads = 32;

  ServerDatabase(const ControlPlaneOptions& options, std::unique_ptr<store::Store> store,
                 ServerMetrics& metrics, spdlog::logger& log)
      : options_(options), store_(std::move(store)), metrics_(metrics), log_(log) {}

  void StartProbe();
  void End();

  store::Store& store() const { return *store_; }
  boost::asio::thread_pool& pool() { return pool_; }

  // Returns why nodes and requests cannot use the database, or an empty text if they can.
  std::string Outage() const { return probe_ ? probe_->Outage() : ""; }
  // Requests that the jobs of all event streams are read again. Call it if reading failed when a
  // notice arrived.
  void RequestReread() { needs_reread_ = true; }
  // Returns whether RequestReread was called, and clears this request.
  bool TakeReread() { return needs_reread_.exchange(false); }
  Answer<void> IsReady() const;  // 503 unless nodes and requests can use the database.
  // 503 unless the database answers without delay and accepts changes. For load balancers.
  Answer<void> Readiness() const;
  void Failed(const Error& error);  // Counts and logs an error of the store.

 private:
  void AfterProbe();
  void LogNeeds(const FleetStatus& fleet);

  const ControlPlaneOptions& options_;
  std::unique_ptr<store::Store> store_;
  ServerMetrics& metrics_;
  spdlog::logger& log_;
  boost::asio::thread_pool pool_{kThreads};
  std::atomic<bool> needs_reread_ = false;
  // The key of each job that needs a person, and the reason. Only for the thread of the probe.
  std::set<std::pair<std::string, std::string>> needs_;
  std::optional<DatabaseProbe> probe_;
};

}  // namespace perseus::server
