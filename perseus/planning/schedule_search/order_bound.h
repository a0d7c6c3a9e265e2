// A lower bound on the energy of every schedule in the given memory, by any search.
//
// The bound forgets the order of the instructions on a pp_rank, and keeps what every order obeys:
//   - the dependencies between stages, and between a forward and its backward;
//   - a stage runs its forwards one after another, and its backwards too. All microbatches are
//   alike,
//     so both run in the order of the microbatches (rank_paths.h);
//   - memory: if a pp_rank holds at most m microbatches, its forward i + m starts after its
//   backward i
//     has ended
//   - time: all instructions of a pp_rank fit between its first forward and its last backward.
//
// The last rule makes this a linear program that is not a network: it adds up durations. So each
// pp_rank r gets a price mu_r for a second of its time. A price moves the rule into the objective:
//
//     E >= min { sum of e_i(t_i) + mu_r * t_i - sum of mu_r * (end_r - start_r) + P * T }
//
// For fixed prices, this is the planner's own problem: the price lowers the slopes of a curve, and
// -mu_r * (end_r - start_r) is one more arc with the slope mu_r. Any prices give a valid bound. The
// best ones are found by ascent: a price rises while its pp_rank has more work than time.
// (Lagrangian relaxation; Held & Karp 1970.)
//
// The bound lets the forwards and backwards of a pp_rank overlap, as long as they fit on average.
// So it is tight where memory decides, as for 1F1B, and loose where the order does. More windows on
// each pp_rank (4 or 12 prefixes and suffixes) did not help: for a measured profile with 24
// microbatches and one more in flight, the bound on the saving fell from 23.13 to 23.08 %.
#pragma once

#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {

// No plan for any schedule of this job, within `limit` and `deadline`, has less energy (in joules).
// Nothing if the bound does not apply: with several chunks for each pp_rank, and if the profile has
// split backwards or recomputations, which this bound does not know. After a request to
// finish, the bound is the best one so far. Fails (kUnreachable) if no schedule can meet the
// deadline.
Result<std::optional<double>> BoundOfAnyOrder(const SearchJob& job, Nanoseconds deadline,
                                              const MemoryLimit& limit,
                                              const std::stop_token& finish = {});

}  // namespace perseus::schedule_search
