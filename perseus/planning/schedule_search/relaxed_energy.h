// Estimates the relaxed energy of schedules (search.h), to compare them. Such an estimate is called
// a judgment.
//
// A search judges hundreds of schedules that differ little. Most of them are worse than the best
// schedule so far. So the solver starts from the optimum of the best schedule. It stops as soon as
// it knows that the judged schedule is worse (frontier::ApproximateSchedule). For 8 pp_ranks and 24
// microbatches, a judgment takes a fifth of the time of an exact solution.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {

// The relaxed optimum of a schedule, stored for each instruction. So it can be the guess for
// another schedule that has the same instructions in another order.
struct RelaxedOptimum {
  struct Part {
    Nanoseconds start = 0;
    Nanoseconds end = 0;
    // The flows of its arc, of its dependency on the previous instruction of its pp_rank, and of
    // its dependency on another pp_rank.
    Microwatts flow = 0;
    Microwatts flow_of_order = 0;
    Microwatts flow_of_data = 0;
  };

  RelaxedOptimum(int stages, int all_microbatches)
      : microbatches(all_microbatches), parts(At(kKinds * stages * all_microbatches)) {}

  Part& Of(const schedule::Instruction& instruction) { return parts[Index(instruction)]; }
  const Part& Of(const schedule::Instruction& instruction) const {
    return parts[Index(instruction)];
  }

  static constexpr int kKinds = kComputationKinds;
  std::size_t Index(const schedule::Instruction& instruction) const {
    return At((instruction.stage * kKinds + static_cast<int>(instruction.kind)) * microbatches +
              instruction.microbatch);
  }

  int microbatches;
  std::vector<Part> parts;
  Microwatts price = 0;
};

// The values that the search compares.
struct Judgment {
  double relaxed_energy_j = 0;  // At most a millionth above the relaxed optimum.
  Nanoseconds time_at_maximum = 0;
  std::int64_t memory = 0;  // The sum of the peaks of all pp_ranks, in the unit of the limit.
  std::shared_ptr<const RelaxedOptimum> optimum;

  // Whether it has less energy than `other`, or the same energy (within the precision) and less
  // memory.
  bool IsBetterThan(const Judgment& other) const;
};

// Thread safety: const methods may be called from several threads.
class RelaxedEnergy {
 public:
  // Keeps references to all arguments.
  RelaxedEnergy(const SearchJob& job, Nanoseconds deadline, const MemoryLimit& limit)
      : job_(job), deadline_(deadline), limit_(limit) {}

  // Judges a schedule. Returns nullopt if the schedule deadlocks, exceeds the memory, or cannot
  // meet the deadline. If `best` is given and the energy is above the energy of `best`, the result
  // need not be exact.
  std::optional<Judgment> Judge(const schedule::Schedule& schedule,
                                const Judgment* best = nullptr) const;

 private:
  const SearchJob& job_;
  Nanoseconds deadline_;
  const MemoryLimit& limit_;
};

}  // namespace perseus::schedule_search
