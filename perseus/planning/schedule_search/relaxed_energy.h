// Judges schedules by their relaxed energy.
#pragma once

#include <optional>

#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {

// What the search compares.
struct Judgment {
  double relaxed_energy_j = 0;
  Nanoseconds time_at_maximum = 0;
  std::int64_t memory = 0;  // The sum of the peaks of all pp_ranks, in the unit of the limit.

  // Less energy, or as much (within rounding) with less memory.
  bool IsBetterThan(const Judgment& other) const;
};

// Thread safety: const methods may be called from several threads.
class RelaxedEnergy {
 public:
  // Keeps references to all arguments.
  RelaxedEnergy(const SearchJob& job, Nanoseconds deadline, const MemoryLimit& limit)
      : job_(job), deadline_(deadline), limit_(limit) {}

  // Nothing if the schedule deadlocks, exceeds the memory, or cannot meet the deadline.
  std::optional<Judgment> Judge(const schedule::Schedule& schedule) const;

 private:
  const SearchJob& job_;
  Nanoseconds deadline_;
  const MemoryLimit& limit_;
};

}  // namespace perseus::schedule_search
