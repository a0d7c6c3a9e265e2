#include "perseus/server/planning_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "perseus/server/random_id.h"

namespace perseus {
namespace {

constexpr Milliseconds kClaim = 60'000;
// Planning becomes due by time, too, and a notice can be lost.
constexpr Milliseconds kLongestWait = 1'000;
constexpr Milliseconds kAfterFailure = 1'000;

}  // namespace

Result<std::optional<PlanningInput>> GatherPlanningInput(Store& store, const std::string& job,
                                                         Milliseconds now) {
  auto record = store.FindJob(job);
  if (!record) return Fail(record);
  if (!*record || (*record)->ended != 0) return std::optional<PlanningInput>();
  auto profile = store.FindProfile(job);
  if (!profile) return Fail(profile);
  auto stragglers = store.Stragglers(job);
  if (!stragglers) return Fail(stragglers);
  auto orders = store.NewestOrders(job);
  if (!orders) return Fail(orders);
  auto frontier = store.FindFrontier(job);
  if (!frontier) return Fail(frontier);
  return std::optional(PlanningInput{
      .job = **std::move(record),
      .profile = *std::move(profile),
      .stragglers = *std::move(stragglers),
      .orders = *std::move(orders),
      .has_frontier = frontier->has_value(),
      .now = now,
      .find_plan = [&store, job](std::string_view slug) { return store.FindPlan(job, slug); },
      .new_plan_id = [] { return "p-" + RandomHex(8); }});
}

PlanningWorkers::PlanningWorkers(Store& store, Options options)
    : store_(store), options_(std::move(options)) {
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this, i] { Run(i); });
  }
}

PlanningWorkers::~PlanningWorkers() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
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
  const std::string worker = fmt::format("{}-{}", options_.name, number);
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
    return FailAs(ErrorKind::kSystem, "a planning broke off: {} (it is tried again in a minute)",
                  exception.what());
  }
}

void PlanningWorkers::Wait(std::uint64_t seen) {
  Milliseconds wait = kLongestWait;
  if (const auto next = store_.NextPlanning(); next && *next) {
    wait = std::clamp<Milliseconds>(**next - options_.now(), 1, kLongestWait);
  }
  std::unique_lock lock(mutex_);
  woken_.wait_for(lock, std::chrono::milliseconds(wait), [&] { return ends_ || wakes_ != seen; });
}

Result<void> PlanningWorkers::DateOrders(const PlanningInput& input, PlanningOutcome& outcome) {
  if (!outcome.orders) return {};
  const auto orders = ParsePlannedOrders(*outcome.orders);
  if (!orders) return Fail(orders);
  std::optional<PlannedOrders> in_force;
  if (input.orders) {
    auto parsed = ParsePlannedOrders(input.orders->body);
    if (!parsed) return Fail(parsed);
    in_force = *std::move(parsed);
  }
  const auto job = store_.FindJob(input.job.id);
  if (!job) return Fail(job);
  if (*job) {
    outcome.orders = WithFirstStep(*orders, **job, in_force, options_.now(), options_.lead_s);
  }
  return {};
}

Result<bool> PlanningWorkers::RunOne(const std::string& worker) {
  const auto task = store_.ClaimPlanning(worker, options_.now(), kClaim);
  if (!task) return Fail(task);
  if (!*task) return false;
  const auto begin = std::chrono::steady_clock::now();
  const std::string& job = (*task)->job;
  auto input = GatherPlanningInput(store_, job, options_.now());
  if (!input) return Fail(input);
  if (!*input) return true;  // It has ended, and its planning with it.
  auto outcome = PlanJob(**input);
  if (!outcome) return Fail(outcome);
  if (auto dated = DateOrders(**input, *outcome); !dated) return Fail(dated);
  const auto kept = store_.CompletePlanning(**task, *outcome, options_.now());
  if (!kept) return Fail(kept);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  options_.planned({.job = job,
                    .status = outcome->status,
                    .problem = outcome->problem,
                    .seconds = took.count(),
                    .is_kept = *kept});
  return true;
}

}  // namespace perseus
