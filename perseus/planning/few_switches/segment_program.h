// The best clocks of one pp_rank with a limited number of clock changes, found by a dynamic
// program. Every instruction has a weight for every clock.
//
// PROBLEM
//   Positions 0 .. n-1 repeat every iteration. Position p at clock c costs w[p][c]. Choose a clock
//   for each position so that the sum of the costs is least. At most N pairs of neighbors may have
//   different clocks, and (n-1, 0) is such a pair, too. Each change costs h[p] >= 0 in addition,
//   where p is the second position of the pair.
//
// IDEA
//   Without the pair (n-1, 0), the problem is easy. Let f[k][c] be the least cost of the positions
//   so far with at most k changes, where the last position has clock c:
//
//       f[k][c] <- w[p][c] + min( f[k][c], h[p] + min over c' of f[k-1][c'] )     O(n N C)
//
//   If N >= n, every pair may change. Then one row f[c] is sufficient, in O(n C):
//
//       f[c] <- w[p][c] + min( f[c], h[p] + min over c' of f[c'] )
//
//   The pair (n-1, 0) leaves two cases:
//     1. The first and the last clock differ. This is one change, so N-1 other changes remain:
//        h[0] + min over c of f[N-1][c].
//     2. The first and the last clock are the same clock c. The cost is f[N][c] from a program that
//        holds the first clock at c. This needs a program for every c. But a program that does not
//        hold the first clock gives a lower bound on the cost for each c. One forward run (last
//        clock c) and one backward run (first clock c) give two such bounds. Only the few clocks c
//        whose bound is below the best answer so far need a program of their own.
//
// NUMBERS
//   Weights are doubles that contain whole numbers. Their sums stay below 2^53, so all sums are
//   exact. (The oldest processors that we support have no fast minimum of 64-bit integers.) A clock
//   that was not measured for a position costs kForbidden, which is more than any sum.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "perseus/base/index.h"

namespace perseus::few_switches {

class SegmentProgram {
 public:
  static constexpr double kForbidden = 0x1p60;
  // The largest sum of weights for which all sums are exact.
  static constexpr double kLargestSum = 0x1p52;

  SegmentProgram(int positions, int clocks);

  int positions() const { return positions_; }
  int clocks() const { return clocks_; }
  double& weight(int position, int clock) { return weights_[At(position) * stride_ + At(clock)]; }
  double weight(int position, int clock) const {
    return weights_[At(position) * stride_ + At(clock)];
  }
  double& change_cost(int position) { return change_costs_[At(position)]; }
  double change_cost(int position) const { return change_costs_[At(position)]; }

  struct Answer {
    // kForbidden or more: every sequence has at least one unmeasured clock.
    double cost = 0;
    std::vector<int> clocks;  // [position]
    bool exists() const { return cost < kForbidden; }
  };
  // Requires positions() > 0 and changes >= 0.
  Answer Solve(int changes);
  // The cost of Solve.
  double Cost(int changes) { return Search(changes).cost; }

  static constexpr int kAny = -1;
  // Computes backward_cost for up to `changes` changes, for sequences in which the last position
  // has the clock `last`. Solve and Cost overwrite these costs.
  void ComputeBackwardCosts(int changes, int last = kAny) {
    Run(changes, last, Direction::kBackward, Keep::kAllSteps);
  }
  // The least cost of `position` and all later positions, with at most `changes` changes between
  // them, if `position` runs at `clock`. The pair (n-1, 0) is left out.
  double backward_cost(int position, int changes, int clock) const {
    const int step = positions_ - 1 - position;
    return costs_[At(step * levels_ + changes) * stride_ + At(clock)];
  }

 private:
  struct Best {
    double cost = kForbidden;
    int changes = 0;
    int held = kAny;  // The clock of both the first and the last position, or kAny.
  };
  static constexpr int kAnyNumber = -1;  // Changes without a limit: one level.
  enum class Direction { kForward, kBackward };
  enum class Keep { kLastStep, kAllSteps };

  Best Search(int changes);
  void Run(int changes, int held, Direction direction, Keep keep = Keep::kLastStep);
  std::vector<int> Trace(const Best& best);

  int positions_;
  int clocks_;
  int levels_ = 0;  // Levels of the latest Run: one for each number of changes, from 0.
  // Rows of clocks are padded with forbidden clocks, so that loops over a row need no special end.
  std::size_t stride_;
  std::vector<double> weights_;       // [position * stride + clock]
  std::vector<double> change_costs_;  // h: [position]
  std::vector<double> costs_;         // f: [(step * levels + changes) * stride + clock]
  std::vector<double> least_;         // [step * levels + changes] the least of costs_.
};

}  // namespace perseus::few_switches
