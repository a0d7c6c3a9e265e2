// The steps by which a plan becomes faster or slower, for the descent of noise_margin.h.
//
// Two sets of moves exist. If clock changes are free, each instruction changes its option
// independently (InstructionMoves). If a change costs time or energy, or if changes are limited, a
// faster clock for one instruction would cause two more changes. So in this case, all instructions
// from one change to the next get another clock (SegmentMoves). Such a move never adds a change. It
// removes a change if the segment then has the same clock as its neighbor.
//
// TRIED
//   Additional moves of the end of a segment: 1, 4 or 16 instructions take the clock of the
//   neighbor. With these moves, the descent ends at worse plans than without them: they save 10.5
//   instead of 11.5 % (GPT-3, 12 microbatches, at most 8 changes, 3 % of noise). In other cases,
//   the moves make the saving better by at most 0.15 points.
//
// Thread safety: const methods may be called from several threads.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "perseus/planning/noise/noisy_execution.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::noise {

struct Move {
  std::vector<std::pair<int, int>> options;  // Pairs of an instruction and its new option.
  double cost_j = 0;                         // The additional effective energy. Negative: a saving.
  double time_s = 0;  // How much the mean iteration time changes, to first order. Positive.

  double price_w() const { return cost_j / time_s; }
};

class MarginMoves {
 public:
  virtual ~MarginMoves() = default;

  // `options` has an option for each instruction. `mean` is the result of an execution with these
  // options.
  virtual std::vector<Move> Faster(std::span<const int> options, const NoisyMean& mean) const = 0;
  // Returns only moves that save energy.
  virtual std::vector<Move> Slower(std::span<const int> options, const NoisyMean& mean) const = 0;
  // Used if no move makes the critical instructions faster. Returns moves that may make them begin
  // earlier.
  virtual std::vector<Move> BeforeCritical(std::span<const int> options,
                                           const NoisyMean& mean) const = 0;
};

// One instruction takes the next useful option (the next one on the Pareto front of time and
// effective energy).
class InstructionMoves : public MarginMoves {
 public:
  // Keeps a reference to the planner.
  explicit InstructionMoves(const plan::Planner& planner);

  std::vector<Move> Faster(std::span<const int> options, const NoisyMean& mean) const override;
  std::vector<Move> Slower(std::span<const int> options, const NoisyMean& mean) const override;
  // With a switch latency, an instruction begins at the clock of the previous instruction on its
  // pp_rank. So the moves for a critical instruction make this previous instruction faster.
  std::vector<Move> BeforeCritical(std::span<const int> options,
                                   const NoisyMean& mean) const override;

 private:
  // The useful options of an option set, from the fastest to the cheapest.
  struct Ladder {
    std::vector<int> options;
    std::vector<double> times_s;
    std::vector<double> costs_j;
    // [option] Its place, or the place of the slowest useful option that is at least as fast.
    std::vector<std::size_t> places;
  };

  const Ladder& LadderOf(std::size_t instruction) const;
  Move Step(std::span<const int> options, std::size_t instruction, bool is_faster,
            double criticality) const;

  const plan::Planner& planner_;
  std::vector<Ladder> ladders_;  // [option set]
};

// A segment takes the next clock. A segment is the instructions of a pp_rank from one clock change
// to the next.
class SegmentMoves : public MarginMoves {
 public:
  // Keeps a reference to the planner.
  explicit SegmentMoves(const plan::Planner& planner) : planner_(planner) {}

  std::vector<Move> Faster(std::span<const int> options, const NoisyMean& mean) const override;
  std::vector<Move> Slower(std::span<const int> options, const NoisyMean& mean) const override;
  std::vector<Move> BeforeCritical(std::span<const int>, const NoisyMean&) const override {
    return {};
  }

 private:
  class Collector;

  const plan::Planner& planner_;
};

}  // namespace perseus::noise
