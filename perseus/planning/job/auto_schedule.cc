#include "perseus/planning/job/auto_schedule.h"

#include <fmt/format.h>

#include <utility>

#include "perseus/base/index.h"

namespace perseus::job {

Result<schedule_search::MemoryLimit> LimitInFlight(const schedule_search::Reference& reference,
                                                   const std::vector<int>& max_in_flight) {
  schedule_search::MemoryLimit limit = schedule_search::MoreInFlight(reference, 0);
  if (max_in_flight.empty()) return limit;
  const std::size_t pp_ranks = limit.of_pp_rank.size();
  if (max_in_flight.size() != 1 && max_in_flight.size() != pp_ranks) {
    return Fail("--max-in-flight has {} numbers for {} pp_ranks (give one number, or one for each)",
                max_in_flight.size(), pp_ranks);
  }
  for (std::size_t i = 0; i < pp_ranks; ++i) {
    limit.of_pp_rank[i] = max_in_flight.size() == 1 ? max_in_flight.front() : max_in_flight[i];
  }
  return limit;
}

Result<AutoSchedule> FindAutoSchedule(const schedule_search::SearchJob& job,
                                      const std::vector<int>& max_in_flight,
                                      const schedule_search::SearchEffort& effort) {
  PERSEUS_ASSIGN_OR_RETURN(auto reference, schedule_search::FindReference(job));
  PERSEUS_ASSIGN_OR_RETURN(const auto limit, LimitInFlight(reference, max_in_flight));
  PERSEUS_ASSIGN_OR_RETURN(auto found,
                           schedule_search::FindSchedule(job, reference.time, limit, effort));
  found.schedule.name = kAutoSchedule;
  return AutoSchedule{.reference = std::move(reference), .found = std::move(found)};
}

std::string Describe(const AutoSchedule& schedule) {
  const schedule_search::Reference& reference = schedule.reference;
  return fmt::format(
      "schedule auto: {} microbatches in flight on pp_ranks 0 to {} ({}: {})\n"
      "At maximum frequency, an iteration takes {:.6g} s with this schedule, and {:.6g} s and "
      "{:.6g} J with {}.\n",
      fmt::join(schedule.found.in_flight, " "), schedule.found.in_flight.size() - 1,
      reference.schedule.name, fmt::join(reference.in_flight, " "),
      ToSeconds(schedule.found.time_at_maximum), ToSeconds(reference.time), reference.energy_j,
      reference.schedule.name);
}

}  // namespace perseus::job
