// What each of a job's ranks asks for at once when clients of Zeus begin to train, found out once:
// a thousand ranks have one job and few plans.
//
// Thread safe.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::server {

// How a job's ranks are arranged, in Zeus' words.
struct ZeusDegrees {
  int pp = 1;
  int dp = 1;
  int tp = 1;
  int world_size() const { return pp * dp * tp; }
  friend bool operator==(const ZeusDegrees&, const ZeusDegrees&) = default;
};
// Lays out the job's schedule, which may be long.
Result<ZeusDegrees> DegreesOf(const store::JobRecord& job);

class ZeusJobs {
 public:
  Result<ZeusDegrees> Degrees(const store::JobRecord& job);
  // Null if there is no plan of that id.
  Result<std::shared_ptr<const plan_file::PlanFile>> Plan(store::Store& store,
                                                          const std::string& id);

  // Whether the job was just seen to lack a rank or a plan: one look at it is enough for all that
  // wait.
  bool IsWaiting(const std::string& job, std::chrono::steady_clock::time_point now) const;
  void SetWaiting(const std::string& job, std::chrono::steady_clock::time_point until);

 private:
  mutable Mutex mutex_;
  // Neither ever changes of one id. A few of them; they are read again if they are needed again.
  std::map<std::string, ZeusDegrees> degrees_ PERSEUS_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<const plan_file::PlanFile>> plans_
      PERSEUS_GUARDED_BY(mutex_);
  std::map<std::string, std::chrono::steady_clock::time_point> waiting_ PERSEUS_GUARDED_BY(mutex_);
};

}  // namespace perseus::server
