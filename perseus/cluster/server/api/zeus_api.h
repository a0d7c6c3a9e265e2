// The endpoints that Zeus's pipeline frequency optimizer calls (docs/how-to/zeus-clients.md).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "perseus/base/mutex.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::server {

// The degrees of parallelism of a job, as Zeus names them.
struct ZeusDegrees {
  int pp = 1;
  int dp = 1;
  int tp = 1;
  int world_size() const { return pp * dp * tp; }
  friend bool operator==(const ZeusDegrees&, const ZeusDegrees&) = default;
};

// Caches jobs and plans for the requests of Zeus. When a job begins, all its ranks send the same
// requests at once. A thousand ranks share one job and few plans.
//
// Thread safe.
class ZeusJobs {
 public:
  Result<ZeusDegrees> Degrees(const store::JobRecord& job);
  // Returns null if no plan has this id.
  Result<std::shared_ptr<const plan_file::PlanFile>> Plan(store::Store& store,
                                                          const std::string& id);

  // Returns whether the job lacked a rank or a plan at the last read. Because this fact is stored,
  // one read serves all waiting requests.
  bool IsWaiting(const std::string& job, std::chrono::steady_clock::time_point now) const;
  void SetWaiting(const std::string& job, std::chrono::steady_clock::time_point until);

 private:
  mutable Mutex mutex_;
  // The values for an id never change. The cache keeps only a few ids, and reads others again.
  std::map<std::string, ZeusDegrees> degrees_ PERSEUS_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<const plan_file::PlanFile>> plans_
      PERSEUS_GUARDED_BY(mutex_);
  std::map<std::string, std::chrono::steady_clock::time_point> waiting_ PERSEUS_GUARDED_BY(mutex_);
};

void AddZeusEndpoints(Endpoints& endpoints, boost::asio::thread_pool& pool);

}  // namespace perseus::server
