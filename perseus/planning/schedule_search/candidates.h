// The generated schedules that a search starts from.
#pragma once

#include <vector>

#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {

// Every generated schedule that has as many chunks as the profile and whose instructions the
// profile has, and 1F1B with deeper warm-ups, up to the most microbatches that a pp_rank may hold.
// The name of a schedule is its origin.
std::vector<schedule::Schedule> GeneratedCandidates(const SearchJob& job, const MemoryLimit& limit);

// The first of them that exists without a limit: the reference. With recomputation, the first that
// fits the limit, if there is one.
Result<schedule::Schedule> ReferenceSchedule(const SearchJob& job, const MemoryLimit& limit = {});

bool Fits(const schedule::Schedule& schedule, const MemoryLimit& limit);

}  // namespace perseus::schedule_search
