// A lower bound on the energy of every schedule within the given memory. No search can find a
// schedule with less energy.
//
// The bound ignores the order of the instructions on a pp_rank. It keeps the rules that hold for
// every order:
//   - the dependencies between stages, and between a forward and its backward;
//   - a stage runs its forwards one after another, and its backwards, too. All microbatches are
//     alike, so both run in the order of the microbatches (moves.h);
//   - memory: if a pp_rank holds at most m microbatches, its forward i + m starts after its
//     backward i has ended;
//   - a pp_rank runs one instruction at a time. The bound uses this rule in three windows.
//
// THE WINDOWS. Let F0 ... Fn be the forwards of a pp_rank and B0 ... Bn its backwards. If a set of
// instructions runs between two moments, the sum of their durations is at most the time between the
// moments.
//
//     whole:   from the arrival of F0 to the departure of Bn     all
//     suffix:  from the end of B0 to the departure of Bn         B1 ... Bn,      Fm ... Fn
//     middle:  from the end of B0 to the start of Fn             B1 ... B(n-m),  Fm ... F(n-1)
//
// Memory puts these forwards after B0: Fm starts after B0 has ended. It also puts these backwards
// before Fn: B(n-m) ends before Fn starts. The order of the forwards and the order of the backwards
// put all other listed instructions into their windows. So every order keeps all three rules. The
// middle window is the one that limits a pp_rank with little memory: while the pipeline is full,
// its backwards have to be as fast as its forwards.
//
// THE PRICES. The rule of a window limits a sum of durations. So with these rules, the problem is a
// linear program that is not a network. Each window w gets a price mu_w for a second of its time.
// The price moves the rule into the objective. Let e_i(t_i) be the effective energy of instruction
// i, T the iteration time, and P the power of all pp_ranks while they wait:
//
//     E >= min { sum of e_i(t_i) + (sum of mu_w for all w around i) * t_i
//                - sum of mu_w * (length of w) + P * T }
//
// In the second sum, w runs over the windows that contain instruction i. For fixed prices, this is
// the same problem as that of the planner: the prices lower the slopes of a curve, and -mu_w *
// (length of w) is one additional arc with the slope mu_w. Any prices give a valid bound. An ascent
// finds the best prices: a price rises while its window has more work than time. (Lagrangian
// relaxation; Held & Karp 1970.)
//
// HOW TIGHT. Outside of these windows, the forwards and backwards of a pp_rank may overlap in the
// bound. So the bound is tight where memory decides, as for 1F1B. It is looser where the order
// decides. Example: a measured profile of 8 stages with 24 microbatches and one more in flight than
// in 1F1B. The bound on the saving is 23.1 % with whole windows, 20.4 % if middle windows are
// added, and 19.9 % with all three. Additional windows between any two instructions of a pp_rank
// would lower it to 19.6 %. Additional windows from F0 to Fn do not lower it. (These numbers are
// optima of linear programs. The ascent reaches 20.0 % instead of 19.9 %.) With two stages,
// exhaustive search finds an order as good as the bound.
#pragma once

#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {

// Returns an energy in joules: no plan for any schedule of this job, within `limit` and `deadline`,
// has less. Returns nullopt if the bound does not apply: if a pp_rank has several chunks, or if the
// profile has split backwards or recomputes. After a finish request, returns the best bound so far.
// Fails (kUnreachable) if no schedule can meet the deadline.
Result<std::optional<double>> BoundOfAnyOrder(const SearchJob& job, Nanoseconds deadline,
                                              const MemoryLimit& limit,
                                              const std::stop_token& finish = {});

}  // namespace perseus::schedule_search
