// `schedule = "auto"`: a job whose schedule is searched for (schedule_search/search.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::job {

// The name that asks for a search, and the name of the schedule that it finds.
inline constexpr std::string_view kAutoSchedule = "auto";

struct AutoSchedule {
  schedule_search::Reference reference;
  schedule_search::Candidate found;
};

// How many microbatches each pp_rank may hold: one number for all pp_ranks, or one for each. Empty:
// as many as the reference holds. Fails (kInput) if the count of numbers is neither.
Result<schedule_search::MemoryLimit> LimitInFlight(const schedule_search::Reference& reference,
                                                   const std::vector<int>& max_in_flight);

// The schedule of least energy that is no slower than the reference at maximum frequency, under
// that limit. Its name is kAutoSchedule.
Result<AutoSchedule> FindAutoSchedule(const schedule_search::SearchJob& job,
                                      const std::vector<int>& max_in_flight,
                                      const schedule_search::SearchEffort& effort = {});

// What was found, in two lines: the microbatches in flight, and the iteration at maximum frequency,
// both beside those of the reference.
std::string Describe(const AutoSchedule& schedule);

}  // namespace perseus::job
