// `schedule = "auto"`: a search chooses the schedule of the job (schedule_search/search.h).
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

// The name that requests a search. It is also the name of the schedule that the search finds.
inline constexpr std::string_view kAutoSchedule = "auto";

struct AutoSchedule {
  schedule_search::Reference reference;
  schedule_search::PlannedCandidate found;  // With a first plan for the time of the reference.
  schedule_search::MemoryLimit limit;
  GpuMemory memory;  // As far as it is known.
  schedule_search::Placement placement = schedule_search::Placement::kLoop;
  few_switches::ChangeLimit changes = {};        // The limit of the plans that decided.
  std::optional<profile::Profile> profile = {};  // The profile of the job.

  // The target if the user asks for none: no slowdown compared with the reference, which the user
  // runs now. If the found schedule is faster at maximum frequency, the target is the time of the
  // reference.
  plan::Target default_target() const;
};

// Returns the memory limit of a search. If `max_in_flight` is not empty, the limit is in
// microbatches: one number for all pp_ranks, or one for each. Otherwise, the limit is the available
// bytes of `memory`. If these are also unknown, the limit is the memory that the reference needs.
// Fails (kInput) if `max_in_flight` has a wrong count of numbers, or if both `max_in_flight` and
// bytes are given.
Result<schedule_search::MemoryLimit> LimitMemory(const schedule_search::Reference& reference,
                                                 const std::vector<int>& max_in_flight,
                                                 const schedule_search::ByteMemory& memory);

// Compares the finalists (schedule_search/finalists.h) within the memory. Returns the best one that
// is at least as fast as the reference at maximum frequency. Its name becomes kAutoSchedule.
Result<AutoSchedule> FindAutoSchedule(const schedule_search::SearchJob& job,
                                      const std::vector<int>& max_in_flight,
                                      const GpuMemory& memory,
                                      const schedule_search::SearchEffort& effort = {});

// Returns the reference and the found schedule, each with its first plan. The found schedule is the
// only row, with the bound for the memory limit. `job` must be the job that was given to
// FindAutoSchedule.
Result<schedule_search::Tradeoff> CompareWithReference(const schedule_search::SearchJob& job,
                                                       const AutoSchedule& schedule);

// Describes the found schedule in lines: its microbatches in flight and its iteration at maximum
// frequency, each compared with the reference; and the source of the numbers of bytes.
std::string Describe(const AutoSchedule& schedule);

}  // namespace perseus::job
