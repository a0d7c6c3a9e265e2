// The threads of this replica that plan jobs whose planning is due.
//
// Each thread plans one job at a time. One more thread renews the claims of these jobs
// (planning_claims.h). Thread safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/cluster/job_planning/planning.h"
#include "perseus/cluster/job_planning/planning_claims.h"
#include "perseus/cluster/store/store.h"

namespace perseus::job_planning {

struct PlanningReport {
  std::string job;
  store::JobStatus status = store::JobStatus::kPlanned;
  std::string problem;
  double seconds = 0;
  bool is_kept = false;  // False if another worker has taken over the job, or the job has ended.
};

class PlanningWorkers {
 public:
  struct Options {
    int threads = 2;
    std::string name = "worker";  // A name that is unique among replicas.
    double lead_s = 0.5;
    std::function<Milliseconds()> now;
    // Called on one of these threads after each planning that was not stopped, and for each error
    // of the store.
    std::function<void(const PlanningReport&)> planned;
    std::function<void(const Error&)> failed;
    // Tests replace this function.
    std::function<Result<store::PlanningOutcome>(const PlanningInput&)> plan = PlanJob;
  };
  PlanningWorkers(store::Store& store, Options options);
  ~PlanningWorkers();  // Stops running plannings, so that another replica can claim them.
  PlanningWorkers(const PlanningWorkers&) = delete;
  PlanningWorkers& operator=(const PlanningWorkers&) = delete;

  // Call this when planning may be due.
  void Wake();

 private:
  void Run(int number);
  void RenewClaims();
  // Plans one job, if the planning of any job is due. Returns whether a planning was due.
  Result<bool> RunOne(const std::string& worker);
  Result<bool> RunSafely(const std::string& worker);
  Result<void> Plan(const store::PlanningTask& task, const std::stop_token& stop);
  void Wait(std::uint64_t seen);

  store::Store& store_;
  Options options_;
  PlanningClaims claims_;
  Mutex mutex_;
  std::condition_variable_any woken_;
  std::uint64_t wakes_ PERSEUS_GUARDED_BY(mutex_) = 0;
  bool ends_ PERSEUS_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Reads the input of PlanJob from the store. Empty if the job does not exist or has ended. If the
// target of the job has expired, first returns the job to the target that comes then.
Result<std::optional<PlanningInput>> GatherPlanningInput(store::Store& store,
                                                         const std::string& job, Milliseconds now);

}  // namespace perseus::job_planning
