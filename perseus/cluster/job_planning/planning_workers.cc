#include "perseus/cluster/job_planning/planning_workers.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "perseus/base/json_text.h"
#include "perseus/base/random_id.h"
#include "perseus/cluster/job_planning/first_step.h"

namespace perseus::job_planning {
namespace {

// The longest time between two checks. A check without a notice is necessary, because planning may
// become due as time passes, and a notice can be lost.
constexpr Milliseconds kLongestWait = 1'000;
constexpr Milliseconds kAfterFailure = 1'000;

// Registers a planning with its claim while it runs.
class RunningPlanning {
 public:
  RunningPlanning(PlanningClaims& claims, const store::PlanningTask& task)
      : claims_(claims), task_(task), stop_(claims.Begin(task)) {}
  ~RunningPlanning() { claims_.End(task_); }
  RunningPlanning(const RunningPlanning&) = delete;
  RunningPlanning& operator=(const RunningPlanning&) = delete;
  const std::stop_token& stop() const { return stop_; }

 private:
  PlanningClaims& claims_;
  const store::PlanningTask& task_;
  const std::stop_token stop_;
};

// Returns whether the target of the job had expired. Replaces only this target, so several replicas
// replace it once, and a target that somebody sets in the meantime stays.
Result<bool> EndExpiredTarget(store::Store& store, const store::JobRecord& job, Milliseconds now) {
  const auto target = TargetOf(job, {});
  if (!target || target->expires == 0 || target->expires > now) return false;
  PERSEUS_RETURN_IF_ERROR(store.ReplaceTarget(job.id, job.target,
                                              JsonText(TargetJson(target->then)), now,
                                              {.reason = "the target before has expired"}));
  return true;
}

}  // namespace

Result<std::optional<PlanningInput>> GatherPlanningInput(store::Store& store,
                                                         const std::string& job, Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(auto record, store.FindJob(job));
  if (!record || record->ended != 0) return std::optional<PlanningInput>();
  PERSEUS_ASSIGN_OR_RETURN(const bool has_expired, EndExpiredTarget(store, *record, now));
  if (has_expired) {
    PERSEUS_ASSIGN_OR_RETURN(record, store.FindJob(job));
    if (!record || record->ended != 0) return std::optional<PlanningInput>();
  }
  PERSEUS_ASSIGN_OR_RETURN(auto profile, store.FindProfile(job));
  PERSEUS_ASSIGN_OR_RETURN(auto stragglers, store.ListStragglers(job));
  PERSEUS_ASSIGN_OR_RETURN(auto assignment, store.FindNewestAssignment(job));
  PERSEUS_ASSIGN_OR_RETURN(auto frontier, store.FindFrontier(job));
  PERSEUS_ASSIGN_OR_RETURN(auto guard, store.FindGuard(*record));
  return std::optional(PlanningInput{
      .job = *std::move(record),
      .profile = std::move(profile),
      .stragglers = std::move(stragglers),
      .assignment = std::move(assignment),
      .guard = std::move(guard),
      .has_frontier = frontier.has_value(),
      .now = now,
      .find_plan = [&store, job](std::string_view slug) { return store.FindPlan(job, slug); },
      .new_plan_id = [] { return "p-" + RandomHex(8); }});
}

PlanningWorkers::PlanningWorkers(store::Store& store, Options options)
    : store_(store), options_(std::move(options)), claims_(store, options_.now) {
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this, i] { Run(i); });
  }
  threads_.emplace_back([this] { RenewClaims(); });
}

PlanningWorkers::~PlanningWorkers() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  claims_.StopAll();
  woken_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PlanningWorkers::Wake() {
  {
    const MutexLock lock(mutex_);
    ++wakes_;
  }
  woken_.notify_all();
}

void PlanningWorkers::Run(int number) {
  const std::string worker = fmt::format("{}-{}-{}", options_.name, RandomHex(4), number);
  for (;;) {
    std::uint64_t seen = 0;
    {
      const MutexLock lock(mutex_);
      if (ends_) return;
      seen = wakes_;
    }
    const Result<bool> did = RunSafely(worker);
    if (!did) {
      options_.failed(did.error());
      const MutexLock lock(mutex_);
      woken_.wait_for(mutex_, std::chrono::milliseconds(kAfterFailure.count()),
                      [&]() PERSEUS_REQUIRES(mutex_) { return ends_; });
    } else if (!*did) {
      Wait(seen);
    }
  }
}

// Catches exceptions. A job that needs more memory than the machine has must not end the planning
// of all other jobs.
Result<bool> PlanningWorkers::RunSafely(const std::string& worker) {
  try {
    return RunOne(worker);
  } catch (const std::exception& exception) {
    return FailAs(ErrorKind::kSystem, "planning failed: {} (the server tries again in {} s)",
                  exception.what(), ToSeconds(PlanningClaims::kClaim));
  }
}

void PlanningWorkers::RenewClaims() {
  for (;;) {
    std::uint64_t seen = 0;
    {
      const MutexLock lock(mutex_);
      if (ends_) return;
      seen = wakes_;
    }
    if (const auto renewed = claims_.Renew(); !renewed) options_.failed(renewed.error());
    const MutexLock lock(mutex_);
    woken_.wait_for(mutex_, std::chrono::milliseconds(kLongestWait.count()),
                    [&]() PERSEUS_REQUIRES(mutex_) { return ends_ || wakes_ != seen; });
  }
}

void PlanningWorkers::Wait(std::uint64_t seen) {
  Milliseconds wait = kLongestWait;
  if (const auto next = store_.NextPlanningTime(); next && *next) {
    wait = std::clamp<Milliseconds>(**next - options_.now(), 1, kLongestWait);
  }
  const MutexLock lock(mutex_);
  woken_.wait_for(mutex_, std::chrono::milliseconds(wait.count()),
                  [&]() PERSEUS_REQUIRES(mutex_) { return ends_ || wakes_ != seen; });
}

Result<bool> PlanningWorkers::RunOne(const std::string& worker) {
  PERSEUS_ASSIGN_OR_RETURN(const auto task,
                           store_.ClaimPlanning(worker, options_.now(), PlanningClaims::kClaim));
  if (!task) return false;
  const RunningPlanning running(claims_, *task);
  PERSEUS_RETURN_IF_ERROR(Plan(*task, running.stop()));
  return true;
}

Result<void> PlanningWorkers::Plan(const store::PlanningTask& task, const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  PERSEUS_ASSIGN_OR_RETURN(auto input, GatherPlanningInput(store_, task.job, options_.now()));
  if (!input) return {};  // The job has ended.
  input->stop = stop;
  auto outcome = options_.plan(*input);
  // Another replica may plan the job immediately.
  if (!outcome && stop.stop_requested()) {
    return store_.ReleasePlanning(task, options_.now());
  }
  if (!outcome) return Fail(outcome);
  if (outcome->assignment) {
    // The job has reached a later step during the planning.
    PERSEUS_ASSIGN_OR_RETURN(const auto job, store_.FindJob(task.job));
    if (job) {
      outcome->assignment->from_step =
          FirstStep(*job, *outcome->assignment, input->assignment, options_.now(), options_.lead_s);
    }
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto kept,
                           store_.CompletePlanning(task, *outcome, options_.now()));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  options_.planned({.job = task.job,
                    .status = outcome->status,
                    .problem = outcome->problem,
                    .seconds = took.count(),
                    .is_kept = kept});
  return {};
}

}  // namespace perseus::job_planning
