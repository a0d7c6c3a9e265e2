// Threads that plan what is due, of this replica or any other's making.
//
// Each takes one job at a time; a thread beside them keeps their claims, and stops what is in the
// way of something more urgent (planning_watch.h). Thread safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "perseus/cluster/server/planning.h"
#include "perseus/cluster/server/planning_watch.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

struct PlanningReport {
  std::string job;
  std::string status;
  std::string problem;
  double seconds = 0;
  bool is_kept = false;  // False: another worker had taken it over, or the job has ended.
};

class PlanningWorkers {
 public:
  struct Options {
    int threads = 2;
    std::string name = "worker";  // Unique among replicas.
    double lead_s = 0.5;
    std::function<store::Milliseconds()> now;
    // Called on a thread of these for each planning that was not stopped, and for what the store
    // fails with.
    std::function<void(const PlanningReport&)> planned;
    std::function<void(const Error&)> failed;
    // For tests.
    std::function<Result<store::PlanningOutcome>(const PlanningInput&)> plan = PlanJob;
  };
  PlanningWorkers(store::Store& store, Options options);
  ~PlanningWorkers();  // Stops what runs, and gives it back to whoever comes next.
  PlanningWorkers(const PlanningWorkers&) = delete;
  PlanningWorkers& operator=(const PlanningWorkers&) = delete;

  // There may be something to do.
  void Wake();

 private:
  void Run(int number);
  void KeepWatch();
  // Whether there was anything.
  Result<bool> RunOne(const std::string& worker);
  Result<bool> RunSafely(const std::string& worker);
  Result<void> Plan(const store::PlanningTask& task, const std::stop_token& stop);
  Result<void> GiveBack(const store::PlanningTask& task);
  Result<void> DateAssignment(const PlanningInput& input, store::PlanningOutcome& outcome);
  void Wait(std::uint64_t seen);

  store::Store& store_;
  Options options_;
  PlanningWatch watch_;
  std::mutex mutex_;  // Of the two below, with the condition.
  std::condition_variable woken_;
  std::uint64_t wakes_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

// What PlanJob wants to know of that job; nothing if there is none.
Result<std::optional<PlanningInput>> GatherPlanningInput(store::Store& store,
                                                         const std::string& job,
                                                         store::Milliseconds now);

}  // namespace perseus::server
