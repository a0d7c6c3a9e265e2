// Plans schedules, and compares the finalists of a search by their plans.
//
// The search compares relaxed energies (relaxed_energy.h). The plan of a schedule is above that: it
// names measured options, a switch takes time or energy, and the number of clock changes may be
// limited. So of two schedules, the one with the greater relaxed energy may have the better plan,
// most of all with a switch latency or with few changes.
//
// Finalists are the searched schedule, and all generated schedules that fit the same memory
// (candidates.cc). Each gets a plan, unless its relaxed energy shows that no plan for it is better
// than the best one so far. So no generated schedule has a better plan of the same effort than the
// winner.
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
  double bubble = 0;            // The part of an iteration at maximum frequency that GPUs wait.
  double changes_per_rank = 0;  // Clock changes of a pp_rank in an iteration of the plan.
};

// Plans for the time of the reference, within the limit of clock changes of the job. Fails with
// kUnreachable if no plan is found that is as fast.
Result<PlannedCandidate> PlanCandidate(const SearchJob& job, const Reference& reference,
                                       Candidate candidate, const plan::SearchLimits& limits);

// Returns the best plan of the finalists. `searched` is the result of FindSchedule in the memory
// `limit`. If `judged` is given, generated schedules that fit that memory are no finalists, because
// an earlier call has compared them. After a request to finish, only the searched schedule gets a
// plan, unless none is found.
Result<PlannedCandidate> PlanBestFinalist(const SearchJob& job, const Reference& reference,
                                          Candidate searched, const MemoryLimit& limit,
                                          const plan::SearchLimits& limits,
                                          const MemoryLimit* judged = nullptr);

// The best plan of the generated schedules that fit the memory `limit`, but not the memory
// `judged`. Returns nullopt if no such plan has less energy than `than`, or after a request to
// finish.
Result<std::optional<PlannedCandidate>> PlanBetterGenerated(
    const SearchJob& job, const Reference& reference, const PlannedCandidate& than,
    const MemoryLimit& limit, const plan::SearchLimits& limits, const MemoryLimit& judged);

// Whether one of these generated schedules has less relaxed energy than `than`.
bool HasBetterGenerated(const SearchJob& job, const Reference& reference, const Candidate& than,
                        const MemoryLimit& limit, const MemoryLimit& judged);

}  // namespace perseus::schedule_search
