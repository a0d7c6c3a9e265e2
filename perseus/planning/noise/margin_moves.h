// The steps by which a plan becomes faster or slower, for the descent of noise_margin.h.
//
// There are two sets of them. Where clock changes are free, each instruction gets another option by
// itself (InstructionMoves). Where a change costs time or energy, or where changes are limited, a
// faster clock for one instruction would be two changes more. So in this case, all instructions
// from one change to the next get another clock (SegmentMoves). This never adds a change, and saves
// one if the segment then has the same clock as its neighbor.
//
// TRIED
//   Further moves of a segment's end: 1, 4 or 16 instructions take the clock of the neighbor. With
//   them, the descent ends at worse plans: 10.5 in place of 11.5 % (GPT-3, 12 microbatches, at most
//   8 changes, 3 % of noise), and it is no better elsewhere by more than 0.15 points.
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
  std::vector<std::pair<int, int>> options;  // Instructions, and the options that they get.
  double cost_j = 0;                         // In effective energy. Negative: a gain.
  double time_s = 0;  // The change of the mean iteration time, to first order. Positive.

  double price_w() const { return cost_j / time_s; }
};

class MarginMoves {
 public:
  virtual ~MarginMoves() = default;

  // `options` has an option for each instruction, and `mean` is of these options.
  virtual std::vector<Move> Faster(std::span<const int> options, const NoisyMean& mean) const = 0;
  // Returns only moves that save energy.
  virtual std::vector<Move> Slower(std::span<const int> options, const NoisyMean& mean) const = 0;
  // If no move makes the critical instructions faster: what may make them begin earlier.
  virtual std::vector<Move> BeforeCritical(std::span<const int> options,
                                           const NoisyMean& mean) const = 0;
};

// One instruction takes the next useful option: the next one on the Pareto front of time and
// effective energy.
class InstructionMoves : public MarginMoves {
 public:
  // Keeps a reference to the planner.
  explicit InstructionMoves(const plan::Planner& planner);

  std::vector<Move> Faster(std::span<const int> options, const NoisyMean& mean) const override;
  std::vector<Move> Slower(std::span<const int> options, const NoisyMean& mean) const override;
  // With a switch latency, an instruction begins at the clock of the previous instruction on its
  // pp_rank. So these moves make the previous instruction faster.
  std::vector<Move> BeforeCritical(std::span<const int> options,
                                   const NoisyMean& mean) const override;

 private:
  // The useful options of an option set, from the fastest to the cheapest.
  struct Ladder {
    std::vector<int> options;
    std::vector<double> times_s;
    std::vector<double> costs_j;
    // [option] its place, or that of the slowest useful option that is no slower.
    std::vector<std::size_t> places;
  };

  const Ladder& LadderOf(std::size_t instruction) const;
  Move Step(std::span<const int> options, std::size_t instruction, bool is_faster,
            double criticality) const;

  const plan::Planner& planner_;
  std::vector<Ladder> ladders_;  // [option set]
};

// A segment, the instructions of a pp_rank from one clock change to the next, takes the next clock.
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
