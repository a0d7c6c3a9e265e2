// Finds the schedule whose plan needs the least energy, within the memory of the GPUs.
//
// WHY THE SCHEDULE MATTERS. A plan saves energy where instructions may take longer without making
// the iteration longer. In 1F1B, a pp_rank runs out of work while it waits for its first gradient,
// because it may hold only a few microbatches. It later runs at full clocks the work that it could
// have done then. With one more microbatch in flight, it does that work while it waits, and all
// later instructions get the time.
//
// THE PROBLEM. Given are the profile, the number of microbatches, a deadline, and the activations
// that each pp_rank may hold (in microbatches or bytes, schedule.h). Find the order of
// instructions on each pp_rank so that the plan that meets the deadline needs the least energy. An
// order is the interleaving of the pp_rank's forwards, backwards, wgrads and recomputes
// (moves.h).
//
// THE VALUE OF A CANDIDATE is the relaxed energy: the optimum of the planner's relaxation for the
// deadline (Planner::BoundFor). No plan for the candidate has less. Only the winner gets a plan.
//
// THE SEARCH, deterministic on any number of cores:
//   1. Start from the best generated schedule that the profile can run and that fits the memory:
//      1F1B with warm-up +0, +1, ... for all pp_ranks or twice as deep toward pp_rank 0, GPipe,
//      ZB-H1, early recomputation, interleaved schedules, ZB-V and DualPipeV. So the result is
//      never worse than any of them.
//   2. Change the warm-up: one more or one fewer microbatch in flight on a run of neighboring
//      pp_ranks. More is not always better: the second-last pp_rank loses with one more, because
//      its first backward starts later.
//   3. If the profile has dgrads and wgrads: split full backwards, and delay their wgrads by half a
//      step more or less. If it has recomputes: add or remove them.
//   4. Do the same for windows of the iteration, with windows of half the length each time.
//
// Alternatives that lost. A mixed-integer program of the order needs a binary variable for every
// pair (forward, backward) on a pp_rank: 4,608 for 8 pp_ranks and 24 microbatches. Early warm-up,
// the same further depth on every pp_rank, is one of the candidates. For two measured profiles with
// 24 microbatches, it leaves a fifth of the gain at +1, and more than a third at +2.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/few_switches/change_rate.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule_search/moves.h"

namespace perseus::schedule_search {

// The places of the chunks of a pp_rank in the pipeline (schedule.h): stages loop over the
// pp_ranks, or fold into a V. The profile does not have this information.
enum class Placement { kLoop, kV };

struct SearchJob {
  const profile::Profile& profile;
  schedule::PipelineModel model;
  plan::ExecutionModel execution;  // For a pp_rank: all GPUs of a stage together.
  int pp_ranks = 0;
  int microbatches = 0;
  // The limit of plans. The search does not use this limit, but the finalists are compared by their
  // plans (finalists.h).
  few_switches::ChangeLimit changes = {};
  Placement placement = Placement::kLoop;
};

// A schedule that the search has evaluated.
struct Candidate {
  schedule::Schedule schedule;
  std::string origin = {};  // The generated schedule that it comes from: "1f1b", "zb-h1".
  std::vector<std::int64_t> in_flight = {};  // [pp_rank] the most microbatches at a time.
  double relaxed_energy_j = 0;               // No plan for this schedule and deadline has less.
  Nanoseconds time_at_maximum = 0;           // The time of an iteration at maximum frequency.
};

// The schedule that runs without a search, at maximum frequency. All savings are relative to it,
// and its time is the deadline.
struct Reference {
  schedule::Schedule schedule;
  Nanoseconds time = 0;
  double energy_j = 0;
  std::vector<std::int64_t> in_flight;  // [pp_rank]
};

// 1F1B; or interleaved 1F1B if the profile has several chunks for each pp_rank; or the first
// generated schedule that the profile can run, if it lacks full backwards. Fails (kInput) if there
// is none. The message is that of the first schedule.
//
// If `limit` has a part that stays until a recompute, the reference is the first of these and early
// recomputation that fits: a user whose GPUs are too small for 1F1B recomputes now.
Result<Reference> FindReference(const SearchJob& job, const MemoryLimit& limit = {});

struct SearchEffort {
  // The largest number of candidates to evaluate. 0: chosen from the job's size (UsualEvaluations).
  int evaluations = 0;
  std::stop_token stop = {};  // After a request, the search fails (kSystem).
  // After a request to finish, the search ends with the best schedule so far. It always evaluates
  // the generated schedules.
  std::stop_token finish = {};
  // Called for each better schedule, and from time to time with the best one so far and the
  // completed fraction of the evaluations, by the calling thread.
  std::function<void(const Candidate&, double completed)> progress = {};
  // A schedule to start from, besides the generated ones.
  const schedule::Schedule* start = nullptr;
};

// Returns fewer evaluations for larger jobs, so that their search takes seconds, too.
int UsualEvaluations(std::int64_t instructions);

// The best schedule that keeps `limit` and meets the deadline. Of equal ones, the one with fewer
// microbatches in flight. Fails with kUnreachable if no generated schedule fits the memory and the
// deadline. The message says how much the reference needs.
Result<Candidate> FindSchedule(const SearchJob& job, Nanoseconds deadline, const MemoryLimit& limit,
                               const SearchEffort& effort = {});

// `more` microbatches more than the reference on every pp_rank, in microbatches.
MemoryLimit MoreInFlight(const Reference& reference, int more);

// ---- The generated schedules that a search starts from (candidates.cc) ----

// Every generated schedule that has as many chunks as the profile and whose instructions the
// profile has, and 1F1B with deeper warm-ups, up to the most microbatches that a pp_rank may hold.
// The name of a schedule is its origin.
std::vector<schedule::Schedule> GeneratedCandidates(const SearchJob& job, const MemoryLimit& limit);

// The first of them that exists without a limit: the reference. With recomputation, the first that
// fits the limit, if there is one.
Result<schedule::Schedule> ReferenceSchedule(const SearchJob& job, const MemoryLimit& limit = {});

bool Fits(const schedule::Schedule& schedule, const MemoryLimit& limit);

Result<plan::Planner> PlannerOf(const SearchJob& job, const schedule::Schedule& schedule);

}  // namespace perseus::schedule_search
