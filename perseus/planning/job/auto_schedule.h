// `schedule = "auto"`: a job whose schedule is searched for (schedule_search/search.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/job/gpu_memory.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule_search/search.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::job {

// The name that asks for a search, and the name of the schedule that it finds.
inline constexpr std::string_view kAutoSchedule = "auto";

struct AutoSchedule {
  schedule_search::Reference reference;
  schedule_search::PlannedCandidate found;  // With a first plan for the time of the reference.
  schedule_search::MemoryLimit limit;
  GpuMemory memory;  // As far as it is known.
  schedule_search::Placement placement = schedule_search::Placement::kLoop;
  few_switches::ChangeLimit changes = {};        // The limit of the plans that decided the choice.
  std::optional<profile::Profile> profile = {};  // From the job with this schedule.

  // The target if the user asks for none: no slowdown compared with the reference, which the user
  // runs now. The found schedule may be faster at maximum frequency. Then the target is the time of
  // the reference.
  plan::Target default_target() const;
};

// The memory of a search. If `max_in_flight` is not empty, it is in microbatches: one number for
// all pp_ranks, or one for each. Otherwise, the limit is the available bytes of `memory`. If these
// are unknown too, the limit is what the reference holds. Fails (kInput) if `max_in_flight` has
// another count of numbers, or if `max_in_flight` and bytes are both given.
Result<schedule_search::MemoryLimit> LimitMemory(const schedule_search::Reference& reference,
                                                 const std::vector<int>& max_in_flight,
                                                 const schedule_search::ByteMemory& memory);

// Among the finalists (schedule_search/finalists.h) that fit the memory, returns the best one that
// is no slower than the reference at maximum frequency. Its name becomes kAutoSchedule.
Result<AutoSchedule> FindAutoSchedule(const schedule_search::SearchJob& job,
                                      const std::vector<int>& max_in_flight,
                                      const GpuMemory& memory,
                                      const schedule_search::SearchEffort& effort = {});

// Returns the reference and the found schedule, each with its first plan. The found schedule is the
// only row, and the bound is that of the limit. `job` is that of FindAutoSchedule.
Result<schedule_search::Tradeoff> CompareWithReference(const schedule_search::SearchJob& job,
                                                       const AutoSchedule& schedule);

// Describes in lines what was found: the microbatches in flight, and the iteration at maximum
// frequency, both beside those of the reference; and the source of the numbers of bytes.
std::string Describe(const AutoSchedule& schedule);

}  // namespace perseus::job
