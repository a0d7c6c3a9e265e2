// A lower bound on the energy of every schedule in the given memory, by any search.
//
// The bound forgets the order of the instructions on a pp_rank, and keeps what every order obeys:
//   - the dependencies between stages, and between a forward and its backward;
//   - a stage runs its forwards one after another, and its backwards too. All microbatches are
//     alike, so both run in the order of the microbatches (moves.h);
//   - memory: if a pp_rank holds at most m microbatches, its forward i + m starts after its
//     backward i has ended;
//   - a pp_rank does one thing at a time, in three windows.
//
// THE WINDOWS. Let F0 ... Fn be the forwards of a pp_rank and B0 ... Bn its backwards. If all of
// some instructions run between two moments, their durations add up to no more than the time
// between the moments.
//
//     whole:   from the arrival of F0 to the departure of Bn     all
//     suffix:  from the end of B0 to the departure of Bn         B1 ... Bn,      Fm ... Fn
//     middle:  from the end of B0 to the start of Fn             B1 ... B(n-m),  Fm ... F(n-1)
//
// Memory puts these forwards after B0: Fm starts after B0 has ended. It also puts these backwards
// before Fn: B(n-m) ends before Fn starts. The order of forwards and of backwards puts all others
// into their windows. So every order obeys all three. The middle window is what limits a pp_rank
// with little memory: while the pipeline is full, its backwards have to keep up with its forwards.
//
// THE PRICES. A window adds up durations, so this is a linear program that is not a network. Each
// window w gets a price mu_w for a second of its time. A price moves the rule into the objective:
//
//     E >= min { sum of e_i(t_i) + (sum of mu_w for all w around i) * t_i
//                - sum of mu_w * (length of w) + P * T }
//
// For fixed prices, this is the planner's own problem: the prices lower the slopes of a curve, and
// -mu_w * (length of w) is one more arc with the slope mu_w. Any prices give a valid bound. The
// best ones are found by ascent: a price rises while its window has more work than time.
// (Lagrangian relaxation; Held & Karp 1970.)
//
// HOW TIGHT. Outside of these windows, the forwards and backwards of a pp_rank may overlap in the
// bound. So it is tight where memory decides, as for 1F1B, and looser where the order does. For a
// measured profile of 8 stages with 24 microbatches and one more in flight, the bound on the saving
// is 23.1 % with whole windows, 20.4 % with middle ones too, and 19.9 % with all three. Windows
// between any two instructions of a pp_rank lower it to 19.6 %, and windows from F0 to Fn do not
// lower it. (These numbers are optima of linear programs. The ascent reaches 20.0 % in place of
// 19.9 %.) With two stages, exhaustive search finds an order as good as the bound.
#pragma once

#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {

// No plan for any schedule of this job, within `limit` and `deadline`, has less energy (in joules).
// Returns nullopt if the bound does not apply: with several chunks for each pp_rank, and if the
// profile has split backwards or recomputations, which this bound does not know. After a request to
// finish, the bound is the best one so far. Fails (kUnreachable) if no schedule can meet the
// deadline.
Result<std::optional<double>> BoundOfAnyOrder(const SearchJob& job, Nanoseconds deadline,
                                              const MemoryLimit& limit,
                                              const std::stop_token& finish = {});

}  // namespace perseus::schedule_search
