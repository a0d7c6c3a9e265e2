// Closes most of the gap that rounding leaves between a plan and its bound.
//
// IDEA
//   The relaxed optimum has prices. The flow x_i of instruction i is the price of a second of its
//   duration. The flow x_d of dependency d is the price of a second of waiting on d. Flow is
//   conserved. So for ANY plan of the same length, the gap is a sum of parts that are never
//   negative:
//
//     energy - bound = sum over instructions i of  r_i(option) - the least r_i of all options  (1)
//                    + sum over dependencies d of  x_d * (time that the successor waits on d)  (2)
//
//     r_i(option) = e_i(option) + x_i * t_i(option)
//
//   Here e_i is the effective energy and t_i the time of an option. The start and the end of the
//   iteration count as dependencies. So the parts show where the plan is bad. They also give a
//   lower bound for a plan of which only a part is decided. This makes an exact search of a small
//   window cheap:
//
//   - Take an instruction and some of its neighbors, up to about a dozen. This is a window in both
//     pp_rank and time. (An instruction with very many neighbors is a window of its own.)
//   - Fix the ends of all instructions before the window, and the starts of all instructions after
//     it.
//   - Try all combinations of options in the window, depth first in order of time and of (1). Stop
//     a branch when the parts (1) and (2) so far are above the best total.
//   - A member of the window without successors in the window (a leaf) needs no search. Flow is
//     conserved. So a second of its duration has the same price as a second by which it ends
//     earlier. So its best option is the slowest option that ends in time. A third of the members
//     are leaves, which makes the search of the other members a third faster.
//
// The search exchanges slack across pp_ranks, kinds and microbatches. It uses all useful options,
// and not only those on the hull. A window of ten instructions with thirty options each has 6e14
// combinations. The search examines a few thousand of them.
//
// The slack of a window may be before it or after it. So rounds alternate between schedules in
// which everything is as early as possible, as late as possible, and in between.
//
// TRIED AND WORSE
//   Repeated optimization of pairs of neighbors, and exact dynamic programming along one pp_rank.
//   Both get stuck when two pp_ranks have to change together (they leave a gap of 0.24 %, and this
//   search leaves 0.14 %). Beam search over larger windows (no better, slower). A required least
//   gain for each window, as a part of its gap (2 to 20 %; no faster for the same result).
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <stop_token>
#include <vector>

#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/plan/search/choices.h"

namespace perseus::plan {

class WindowSearch {
 public:
  // Requires that `solution` is an optimum of `network`, the relaxation of `graph`. Plans have the
  // length of `solution`. Keeps a reference to `graph`. Deterministic: the same input gives the
  // same plan. After a stop request, the search examines no further windows.
  WindowSearch(const ChoiceGraph& graph, const frontier::Network& network,
               const frontier::Solution& solution, std::stop_token stop = {});

  struct Effort {
    int window = 8;              // Instructions in a window; at most kLargestWindow.
    std::int64_t tries = 2'000;  // The maximum number of options that are tried in a window.
  };
  static constexpr int kLargestWindow = 16;

  // Runs one round: searches a window around every instruction. Requires that the schedule of
  // `choices` is no longer than the schedule of the solution. This is also true afterwards, and the
  // energy never rises. Returns the saved energy in J.
  double Improve(Choices& choices, const Effort& effort);

  // The number of options tried since the start.
  std::int64_t tries() const { return tries_; }

 private:
  // A candidate of an instruction, with part (1) of its gap. Times in a window are doubles: they
  // are whole nanoseconds below 2^53, so sums and comparisons are exact.
  struct Reduced {
    double energy_j = 0;
    double time = 0;
    int candidate = 0;
  };
  // An instruction of the window, and the limits that the instructions outside the window set.
  // Times are relative to origin_.
  struct Member {
    int instruction = 0;
    double release = 0;  // The earliest start that predecessors outside allow.
    double due = 0;      // The latest end that successors outside allow.
    // The cost (2) of the dependencies of this member is paid + in_price * start - out_price * end,
    // minus for each of its links: the link's price * (the end of the link's member + the link's
    // delay).
    double in_price = 0;
    double out_price = 0;
    double paid = 0;
    int first_link = 0;  // Where its predecessors inside the window begin in links_.
    int end_link = 0;
    int first_leaf = 0;  // Where the leaves that it completes begin in members_.
    int end_leaf = 0;
    double end = 0;
    int choice = 0;
  };
  struct Link {
    int member = 0;
    double delay = 0;
    double price = 0;
  };
  // The start of a member, and its cost (2) without the part that depends on the chosen candidate.
  struct Place {
    double start = 0;
    double base = 0;
  };

  void Reschedule(const Choices& choices);
  void CollectWindow(int center, int size);
  void OrderWindow();
  void Surround(const Choices& choices);
  Place PlaceOf(const Member& member) const;
  double CloseLeaf(Member& leaf);
  double PlaceAll(const Choices& choices);
  void Search(int member, double loss);
  double ImproveWindow(int center, const Effort& effort, Choices& choices);

  std::span<const Reduced> ReducedOf(int instruction) const;
  std::span<const Reduced> ByTime(int instruction) const;
  Nanoseconds EndOf(int instruction, const Choices& choices) const;

  const ChoiceGraph& graph_;
  std::stop_token stop_;
  Nanoseconds length_;
  std::vector<double> instruction_prices_;  // J/ns
  std::vector<double> dependency_prices_;   // J/ns
  // For each instruction: sorted by energy (least first), and sorted by time (fastest first).
  std::vector<Reduced> reduced_;
  std::vector<Reduced> by_time_;
  std::vector<std::size_t> first_reduced_;

  std::vector<Nanoseconds> starts_;  // A schedule with the present choices.
  int round_ = 0;
  std::mt19937_64 random_;
  std::int64_t tries_ = 0;

  // The present window. First come the members that the search decides, in order of time. Then come
  // the leaves.
  std::vector<int> window_;
  std::vector<int> fringe_;     // Neighbors of the window that may join it.
  std::vector<int> member_of_;  // [instruction]; kOutside, kOnFringe, or its index in window_.
  int decided_ = 0;             // The number of members that are not leaves.
  std::vector<Member> members_;
  std::vector<Link> links_;
  Nanoseconds origin_ = 0;
  std::vector<int> best_;
  double best_loss_ = 0;
  std::int64_t tries_left_ = 0;
};

}  // namespace perseus::plan
