#include "perseus/cluster/server/zeus/zeus_jobs.h"

#include <utility>

#include "perseus/cluster/job_planning/job_spec.h"

namespace perseus::server {
namespace {

constexpr std::size_t kMostKept = 32;

template <typename Value>
void Keep(std::map<std::string, Value>& kept, const std::string& id, const Value& value) {
  if (kept.size() >= kMostKept) kept.clear();
  kept.insert_or_assign(id, value);
}

}  // namespace

Result<ZeusDegrees> DegreesOf(const store::JobRecord& job) {
  PERSEUS_ASSIGN_OR_RETURN(const auto spec, job_planning::StoredJobSpec(job.body));
  return ZeusDegrees{.pp = static_cast<int>(spec.planned.schedule.pp_ranks.size()),
                     .dp = spec.planned.pipelines,
                     .tp = spec.planned.model.gpus_per_stage};
}

Result<ZeusDegrees> ZeusJobs::Degrees(const store::JobRecord& job) {
  {
    const MutexLock lock(mutex_);
    if (const auto known = degrees_.find(job.id); known != degrees_.end()) return known->second;
  }
  const auto degrees = DegreesOf(job);
  if (!degrees) return degrees;
  const MutexLock lock(mutex_);
  Keep(degrees_, job.id, *degrees);
  return degrees;
}

Result<std::shared_ptr<const plan_file::PlanFile>> ZeusJobs::Plan(store::Store& store,
                                                                  const std::string& id) {
  {
    const MutexLock lock(mutex_);
    if (const auto known = plans_.find(id); known != plans_.end()) return known->second;
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto record, store.FindPlanById(id));
  if (!record) return std::shared_ptr<const plan_file::PlanFile>();
  PERSEUS_ASSIGN_OR_RETURN(auto parsed, plan_file::ParsePlan(record->body, id));
  const auto plan = std::make_shared<const plan_file::PlanFile>(std::move(parsed));
  const MutexLock lock(mutex_);
  Keep(plans_, id, plan);
  return plan;
}

bool ZeusJobs::IsWaiting(const std::string& job, std::chrono::steady_clock::time_point now) const {
  const MutexLock lock(mutex_);
  const auto found = waiting_.find(job);
  return found != waiting_.end() && now < found->second;
}

void ZeusJobs::SetWaiting(const std::string& job, std::chrono::steady_clock::time_point until) {
  const MutexLock lock(mutex_);
  if (waiting_.size() >= kMostKept) waiting_.clear();
  waiting_[job] = until;
}

}  // namespace perseus::server
