// Plans schedules, and compares the finalists of a search by their plans.
//
// The search compares relaxed energies (relaxed_energy.h). The energy of the plan of a schedule is
// above its relaxed energy: the plan uses measured options, a clock change takes time or energy,
// and the number of clock changes may be limited. So if one schedule has a greater relaxed energy
// than another, it may still have the better plan. This happens most often with a switch latency or
// with few changes.
//
// Finalists are the schedule that the search found, and all generated schedules within the same
// memory (candidates.cc). Each finalist gets a plan, unless its relaxed energy shows that all its
// plans are worse than the best plan so far. So with the same effort, no generated schedule has a
// better plan than the winner.
#pragma once

#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {

// A schedule and its plan for the time of the reference at maximum frequency.
struct PlannedCandidate {
  Candidate candidate;
  plan::Plan plan;
  double saving = 0;            // The plan's saving against the reference at maximum frequency.
  double bubble = 0;            // The part of an iteration at maximum frequency in which GPUs wait.
  double changes_per_rank = 0;  // Clock changes of a pp_rank in an iteration of the plan.
};

// Plans a candidate for the time of the reference, within the job's limit on clock changes. Fails
// with kUnreachable if the search finds no plan that is as fast.
Result<PlannedCandidate> PlanCandidate(const SearchJob& job, const Reference& reference,
                                       Candidate candidate, const plan::SearchLimits& limits);

// Returns the best plan of the finalists. `searched` is the result of FindSchedule within the
// memory `limit`. If `judged` is given, an earlier call has already compared the generated
// schedules within that memory, so they are no finalists. After a finish request, only `searched`
// gets a plan. If it has no plan, the other finalists follow.
Result<PlannedCandidate> PlanBestFinalist(const SearchJob& job, const Reference& reference,
                                          Candidate searched, const MemoryLimit& limit,
                                          const plan::SearchLimits& limits,
                                          const MemoryLimit* judged = nullptr);

// Considers the generated schedules within the memory `limit` that exceed the memory `judged`.
// Returns the best plan of these schedules. Returns nullopt if no such plan has less energy than
// `than`, or after a finish request.
Result<std::optional<PlannedCandidate>> PlanBetterGenerated(
    const SearchJob& job, const Reference& reference, const PlannedCandidate& than,
    const MemoryLimit& limit, const plan::SearchLimits& limits, const MemoryLimit& judged);

// Whether one of the schedules that PlanBetterGenerated considers has less relaxed energy than
// `than`.
bool HasBetterGenerated(const SearchJob& job, const Reference& reference, const Candidate& than,
                        const MemoryLimit& limit, const MemoryLimit& judged);

}  // namespace perseus::schedule_search
