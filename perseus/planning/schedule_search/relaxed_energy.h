// Estimates the relaxed energy of schedules, to compare them. The estimate is called a judgment.
//
// A search judges hundreds of schedules that differ little, and most of them are worse than the
// best one so far. So the solver starts from the optimum of the best one, and stops as soon as it
// knows that a schedule is worse (frontier::ApproximateSchedule). For 8 pp_ranks and 24
// microbatches, a judgment takes a fifth of the time of an exact solution.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {

// The relaxed optimum of a schedule, in terms of its instructions. So it is a guess for a schedule
// with the same instructions in another order.
struct RelaxedOptimum {
  struct Part {
    Nanoseconds start = 0;
    Nanoseconds end = 0;
    // The flow of its arc, of its dependency on the instruction before it on its pp_rank, and of
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

  static constexpr int kKinds = static_cast<int>(InstructionKind::kRecompute) + 1;
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
  double relaxed_energy_j = 0;  // Exceeds the relaxed optimum by less than a millionth part.
  Nanoseconds time_at_maximum = 0;
  std::int64_t memory = 0;  // The sum of the peaks of all pp_ranks, in the unit of the limit.
  std::shared_ptr<const RelaxedOptimum> optimum;

  // Whether it has less energy, or as much (within the precision) with less memory.
  bool IsBetterThan(const Judgment& other) const;
};

// Thread safety: const methods may be called from several threads.
class RelaxedEnergy {
 public:
  // Keeps references to all arguments.
  RelaxedEnergy(const SearchJob& job, Nanoseconds deadline, const MemoryLimit& limit)
      : job_(job), deadline_(deadline), limit_(limit) {}

  // Judges a schedule. Returns nullopt if it deadlocks, exceeds the memory, or cannot meet the
  // deadline. If `best` is given, an energy above that of `best` need not be exact.
  std::optional<Judgment> Judge(const schedule::Schedule& schedule,
                                const Judgment* best = nullptr) const;

 private:
  const SearchJob& job_;
  Nanoseconds deadline_;
  const MemoryLimit& limit_;
};

}  // namespace perseus::schedule_search
