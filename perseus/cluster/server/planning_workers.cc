#include "perseus/cluster/server/planning_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "perseus/cluster/server/random_id.h"
#include "perseus/cluster/server/straggler_times.h"

namespace perseus::server {
namespace {

// Planning becomes due by time, too, and a notice can be lost.
constexpr store::Milliseconds kLongestWait = 1'000;
constexpr store::Milliseconds kAfterFailure = 1'000;
// A second look that was in somebody's way comes again after that.
constexpr store::Milliseconds kPutOff = 2'000;

// A planning, while it runs.
class Watched {
 public:
  Watched(PlanningWatch& watch, const store::PlanningTask& task)
      : watch_(watch), task_(task), stop_(watch.Begin(task)) {}
  ~Watched() { watch_.End(task_); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  const std::stop_token& stop() const { return stop_; }

 private:
  PlanningWatch& watch_;
  const store::PlanningTask& task_;
  const std::stop_token stop_;
};

}  // namespace

Result<std::optional<PlanningInput>> GatherPlanningInput(store::Store& store,
                                                         const std::string& job,
                                                         store::Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(auto record, store.FindJob(job));
  if (!record || record->ended != 0) return std::optional<PlanningInput>();
  PERSEUS_ASSIGN_OR_RETURN(auto profile, store.FindProfile(job));
  PERSEUS_ASSIGN_OR_RETURN(auto stragglers, store.Stragglers(job));
  PERSEUS_ASSIGN_OR_RETURN(auto assignment, store.NewestAssignment(job));
  PERSEUS_ASSIGN_OR_RETURN(auto frontier, store.FindFrontier(job));
  return std::optional(PlanningInput{
      .job = *std::move(record),
      .profile = std::move(profile),
      .stragglers = std::move(stragglers),
      .assignment = std::move(assignment),
      .has_frontier = frontier.has_value(),
      .now = now,
      .find_plan = [&store, job](std::string_view slug) { return store.FindPlan(job, slug); },
      .new_plan_id = [] { return "p-" + RandomHex(8); }});
}

PlanningWorkers::PlanningWorkers(store::Store& store, Options options)
    : store_(store), options_(std::move(options)), watch_(store, options_.threads, options_.now) {
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this, i] { Run(i); });
  }
  threads_.emplace_back([this] { KeepWatch(); });
}

PlanningWorkers::~PlanningWorkers() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  watch_.StopAll();
  woken_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PlanningWorkers::Wake() {
  {
    const std::lock_guard lock(mutex_);
    ++wakes_;
  }
  woken_.notify_all();
}

void PlanningWorkers::Run(int number) {
  const std::string worker = fmt::format("{}-{}-{}", options_.name, RandomHex(4), number);
  for (;;) {
    std::uint64_t seen = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ends_) return;
      seen = wakes_;
    }
    const Result<bool> did = RunSafely(worker);
    if (!did) {
      options_.failed(did.error());
      std::unique_lock lock(mutex_);
      woken_.wait_for(lock, std::chrono::milliseconds(kAfterFailure), [&] { return ends_; });
    } else if (!*did) {
      Wait(seen);
    }
  }
}

// One job that is too much for this machine's memory must not take all others along.
Result<bool> PlanningWorkers::RunSafely(const std::string& worker) {
  try {
    return RunOne(worker);
  } catch (const std::exception& exception) {
    return FailAs(ErrorKind::kSystem, "a planning broke off: {} (it is tried again in {} s)",
                  exception.what(), PlanningWatch::kClaim / 1000);
  }
}

void PlanningWorkers::KeepWatch() {
  for (;;) {
    std::uint64_t seen = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ends_) return;
      seen = wakes_;
    }
    if (const auto looked = watch_.Look(); !looked) options_.failed(looked.error());
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, std::chrono::milliseconds(kLongestWait),
                    [&] { return ends_ || wakes_ != seen; });
  }
}

void PlanningWorkers::Wait(std::uint64_t seen) {
  store::Milliseconds wait = kLongestWait;
  if (const auto next = store_.NextPlanning(); next && *next) {
    wait = std::clamp<store::Milliseconds>(**next - options_.now(), 1, kLongestWait);
  }
  std::unique_lock lock(mutex_);
  woken_.wait_for(lock, std::chrono::milliseconds(wait), [&] { return ends_ || wakes_ != seen; });
}

Result<void> PlanningWorkers::DateAssignment(const PlanningInput& input,
                                             store::PlanningOutcome& outcome) {
  if (!outcome.assignment) return {};
  PERSEUS_ASSIGN_OR_RETURN(const auto assignment, ParsePlannedAssignment(*outcome.assignment));
  std::optional<PlannedAssignment> in_force;
  if (input.assignment) {
    PERSEUS_ASSIGN_OR_RETURN(auto parsed, ParsePlannedAssignment(input.assignment->body));
    in_force = std::move(parsed);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto job, store_.FindJob(input.job.id));
  if (job) {
    outcome.assignment = WithFirstStep(assignment, *job, in_force, options_.now(), options_.lead_s);
  }
  return {};
}

Result<bool> PlanningWorkers::RunOne(const std::string& worker) {
  PERSEUS_ASSIGN_OR_RETURN(const auto task,
                           store_.ClaimPlanning(worker, options_.now(), PlanningWatch::kClaim));
  if (!task) return false;
  const Watched watched(watch_, *task);
  // What is awaited may have come while he took on something that is not.
  if (!task->is_awaited) Wake();
  PERSEUS_RETURN_IF_ERROR(Plan(*task, watched.stop()));
  return true;
}

Result<void> PlanningWorkers::Plan(const store::PlanningTask& task, const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  PERSEUS_ASSIGN_OR_RETURN(auto input, GatherPlanningInput(store_, task.job, options_.now()));
  if (!input) return {};  // It has ended, and its planning with it.
  input->stop = stop;
  if (const auto next = NextChange(input->stragglers, input->now); next && !task.is_awaited) {
    if (auto wanted = store_.WantPlanning(task.job, *next); !wanted) return wanted;
  }
  auto outcome = options_.plan(*input);
  if (!outcome && stop.stop_requested()) return GiveBack(task);
  if (!outcome) return Fail(outcome);
  if (auto dated = DateAssignment(*input, *outcome); !dated) return dated;
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

// At once if these workers end: there may be others.
Result<void> PlanningWorkers::GiveBack(const store::PlanningTask& task) {
  bool ends = false;
  {
    const std::lock_guard lock(mutex_);
    ends = ends_;
  }
  return store_.ReleasePlanning(task, options_.now() + (ends ? 0 : kPutOff));
}

}  // namespace perseus::server
