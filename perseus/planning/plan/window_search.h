// Closes most of the gap that rounding leaves between a plan and its bound.
//
// The idea. The relaxed optimum comes with prices. The flow x_i on instruction i says what a second
// is worth there. The flow x_d on dependency d says what a second of waiting on it costs. Flow is
// conserved, so the gap of ANY plan of the same length splits into parts that are never negative:
//
//     energy - bound = sum over instructions of  [e_i(option) + x_i * t_i(option) - the least of
//     it] (1)
//                    + sum over dependencies of  x_d * (time that the successor waits on d)
//                    (2)
//
// (e is the effective energy. The start and the end of the iteration count as dependencies.) So the
// certificate does not only say how good a plan is. It says where the plan is bad, and it gives a
// lower bound for every part of the plan that is decided. This makes an exact search of a small
// window cheap:
//
//   - take an instruction and some of its neighbors, up to a dozen: a window in both pp_rank and
//   time
//     (an instruction with very many predecessors or successors is a window of its own);
//   - fix the time at which everything around the window ends and starts;
//   - try all combinations of options in the window, depth first in order of time and of (1), and
//   stop
//     wherever the parts (1) and (2) so far exceed the best total.
//
// The search exchanges slack across pp_ranks, kinds and microbatches, over all useful options and
// not only those on the hull. A window of ten instructions with thirty options each has 6e14
// combinations. The search examines a few thousand of them. Rivals: optimizing pairs of neighbors
// again, and exact dynamic programming along one pp_rank (both stop at the first choice that two
// pp_ranks have to make together: a gap of 0.24 % where this search reaches 0.14 %), and beam
// search over larger windows (no better, slower).
//
// It is arbitrary whether slack lies before or after a window. So rounds alternate between
// everything as early as possible, as late as possible, and in between.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <stop_token>
#include <vector>

#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/choices.h"

namespace perseus::plan {

class WindowSearch {
 public:
  // `solution` is an optimum of `network`, the relaxation of `graph`; plans have its length. Keeps
  // a reference to `graph`. Deterministic: the same input gives the same plan. Once `stop` is
  // requested, no further windows are looked at.
  WindowSearch(const ChoiceGraph& graph, const frontier::Network& network,
               const frontier::Solution& solution, std::stop_token stop = {});

  struct Effort {
    int window = 8;              // Instructions; at most kLargestWindow.
    std::int64_t tries = 2'000;  // Options looked at per window before it is left alone.
  };
  static constexpr int kLargestWindow = 16;

  // One round: a window around every instruction. `choices` must fit the solution's length, and do
  // so afterwards; their energy never rises. Returns what was saved, in J.
  double Improve(Choices& choices, const Effort& effort);

  // Options looked at since the start.
  std::int64_t tries() const { return tries_; }

 private:
  struct Reduced {
    double energy_j = 0;  // Part (1) of the gap.
    int candidate = 0;
  };
  // An instruction of the window with what surrounds it, times counted from origin_.
  struct Member {
    int instruction = 0;
    Nanoseconds release = 0;  // No earlier start, because of predecessors outside.
    Nanoseconds due = 0;      // No later end, because of successors outside.
    // Price of waiting on those: in_price * start - in_paid, and out_paid - out_price * end.
    double in_price = 0;
    double in_paid = 0;
    double out_price = 0;
    double out_paid = 0;
    int first_link = 0;  // Predecessors inside, in links_, up to the next member's.
    Nanoseconds end = 0;
  };
  struct Link {
    int member = 0;
    Nanoseconds delay = 0;
    double price = 0;
  };
  static constexpr double kLate = -1;

  void Reschedule(const Choices& choices);
  void CollectWindow(int center, int size);
  void Surround(const Choices& choices);
  double Place(int member, const Candidate& candidate);
  double PresentLoss(const Choices& choices);
  void Search(int member, double loss);
  double ImproveWindow(int center, const Effort& effort, Choices& choices);

  std::span<const Reduced> ReducedOf(int instruction) const;
  Nanoseconds EndOf(int instruction, const Choices& choices) const;

  const ChoiceGraph& graph_;
  std::stop_token stop_;
  Nanoseconds length_;
  std::vector<double> instruction_prices_;  // J/ns
  std::vector<double> dependency_prices_;   // J/ns
  std::vector<Reduced> reduced_;            // Of each instruction, cheapest first.
  std::vector<std::size_t> first_reduced_;

  std::vector<Nanoseconds> starts_;  // A schedule of the present choices.
  int round_ = 0;
  std::mt19937_64 random_;
  std::int64_t tries_ = 0;

  // The window at hand.
  std::vector<int> window_;
  std::vector<int> fringe_;
  std::vector<int> member_of_;  // [instruction]; kOutside, kOnFringe or its place in the window.
  std::vector<Member> members_;
  std::vector<Link> links_;
  Nanoseconds origin_ = 0;
  std::vector<int> trial_;
  std::vector<int> best_;
  double best_loss_ = 0;
  std::int64_t tries_left_ = 0;
};

}  // namespace perseus::plan
