#include "perseus/planning/job/auto_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perseus/planning/plan/planner.h"
#include "perseus/planning/schedule_search/moves.h"
#include "perseus/planning/schedule_search/order_bound.h"

namespace perseus::job {

plan::Target AutoSchedule::default_target() const {
  if (reference.time <= found.candidate.time_at_maximum) return {};
  return {.kind = plan::Target::Kind::kDeadline, .value = ToSeconds(reference.time)};
}

Result<schedule_search::MemoryLimit> LimitMemory(const schedule_search::Reference& reference,
                                                 const std::vector<int>& max_in_flight,
                                                 const schedule_search::ByteMemory& memory) {
  if (!max_in_flight.empty() && !memory.available.empty()) {
    return Fail(
        "the memory is given in microbatches and in bytes (remove `max_in_flight`, or `gpu_gib`)");
  }
  if (!memory.available.empty()) {
    return schedule_search::LimitOf(memory);
  }
  schedule_search::MemoryLimit limit = schedule_search::MoreInFlight(reference, 0);
  if (max_in_flight.empty()) return limit;
  const std::size_t pp_ranks = limit.of_pp_rank.size();
  if (max_in_flight.size() != 1 && max_in_flight.size() != pp_ranks) {
    return Fail("`max_in_flight` has {} numbers for {} pp_ranks (give one number, or one for each)",
                max_in_flight.size(), pp_ranks);
  }
  for (std::size_t i = 0; i < pp_ranks; ++i) {
    limit.of_pp_rank[i] = max_in_flight.size() == 1 ? max_in_flight.front() : max_in_flight[i];
  }
  return limit;
}

Result<AutoSchedule> FindAutoSchedule(const schedule_search::SearchJob& job,
                                      const std::vector<int>& max_in_flight,
                                      const GpuMemory& memory,
                                      const schedule_search::SearchEffort& effort) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto reference, schedule_search::FindReference(job, schedule_search::LimitOf(memory.bytes)));
  PERSEUS_ASSIGN_OR_RETURN(auto limit, LimitMemory(reference, max_in_flight, memory.bytes));
  auto found = schedule_search::FindSchedule(job, reference.time, limit, effort);
  if (!found && !memory.bytes.available.empty()) {
    return Fail(found, "the memory of the GPUs");
  }
  if (!found) return Fail(found);
  PERSEUS_ASSIGN_OR_RETURN(
      auto planned,
      schedule_search::PlanBestFinalist(
          job, reference, *std::move(found), limit,
          {.effort = plan::kFirstLook, .stop = effort.stop, .finish = effort.finish}));
  planned.candidate.schedule.name = kAutoSchedule;
  return AutoSchedule{.reference = std::move(reference),
                      .found = std::move(planned),
                      .limit = std::move(limit),
                      .memory = memory,
                      .placement = job.placement,
                      .changes = job.changes};
}

Result<schedule_search::Tradeoff> CompareWithReference(const schedule_search::SearchJob& job,
                                                       const AutoSchedule& schedule) {
  using schedule_search::Candidate;
  const schedule_search::Reference& reference = schedule.reference;
  Candidate fixed{.schedule = reference.schedule,
                  .origin = reference.schedule.name,
                  .in_flight = reference.in_flight,
                  .relaxed_energy_j = 0,
                  .time_at_maximum = reference.time};
  const plan::SearchLimits first_look{.effort = plan::kFirstLook, .stop = {}, .finish = {}};
  PERSEUS_ASSIGN_OR_RETURN(
      auto planned_reference,
      schedule_search::PlanCandidate(job, reference, std::move(fixed), first_look));
  schedule_search::TradeoffRow row{schedule.found};
  PERSEUS_ASSIGN_OR_RETURN(const auto bound_j,
                           schedule_search::BoundOfAnyOrder(job, reference.time, schedule.limit));
  if (bound_j) row.most_saving = 1 - *bound_j / reference.energy_j;
  for (std::size_t i = 0; i < reference.in_flight.size(); ++i) {
    row.more = std::max(
        row.more, static_cast<int>(schedule.found.candidate.in_flight[i] - reference.in_flight[i]));
  }
  return schedule_search::Tradeoff{
      .reference = reference,
      .fixed = schedule_search::TradeoffRow{std::move(planned_reference)},
      .rows = {std::move(row)},
      .fitting = {},
      .activations = schedule.memory.bytes.activations,
      .kept = schedule.memory.bytes.kept,
      .gaps = schedule_search::DescribeGaps(job.profile)};
}

std::string Describe(const AutoSchedule& schedule) {
  const schedule_search::Reference& reference = schedule.reference;
  const std::string& source = schedule.memory.source;
  return fmt::format(
      "schedule auto: {} microbatches in flight on pp_ranks 0 to {} ({}: {})\n"
      "At maximum frequency, an iteration takes {:.6g} s with this schedule, and {:.6g} s and "
      "{:.6g} J with {}.\n{}",
      fmt::join(schedule.found.candidate.in_flight, " "),
      schedule.found.candidate.in_flight.size() - 1, reference.schedule.name,
      fmt::join(reference.in_flight, " "), ToSeconds(schedule.found.candidate.time_at_maximum),
      ToSeconds(reference.time), reference.energy_j, reference.schedule.name,
      source.empty() ? source : source + "\n");
}

}  // namespace perseus::job
