// Finds the schedule whose plan needs the least energy, within the memory of the GPUs.
//
// WHY THE SCHEDULE MATTERS. A plan saves energy if some instructions may take longer while the
// iteration does not. In 1F1B, a pp_rank may hold only a few microbatches. So it has no work while
// it waits for its first gradient, and later it runs the remaining work at full clocks. With one
// more microbatch in flight, it does a part of this work while it waits. So all later instructions
// have more time.
//
// THE PROBLEM. Given are the profile, the number of microbatches, a deadline, and the activations
// that each pp_rank may hold (in microbatches or bytes, schedule.h). Find the order of instructions
// on each pp_rank for which the plan that meets the deadline needs the least energy. An order is an
// interleaving of the forwards, backwards, wgrads and recomputes of the pp_rank (moves.h).
//
// THE VALUE OF A CANDIDATE is the relaxed energy: the optimum of the planner's relaxation for the
// deadline (Planner::BoundFor). No plan for the candidate has less energy. Only the winner gets a
// plan.
//
// THE SEARCH, deterministic on any number of cores:
//   1. Start from the best generated schedule that the profile can run and that fits the memory:
//      1F1B with warm-up +0, +1, ... (the same for all pp_ranks, or twice as deep toward pp_rank
//      0), GPipe, ZB-H1, early recomputation, interleaved schedules, ZB-V and DualPipeV. So the
//   2. Change the warm-up: one more or one less microbatch in flight on a run of neighboring
//      pp_ranks. More microbatches are not always better: with one more, the second-last pp_rank
//      gets worse, because its first backward starts later.
//   3. If the profile has dgrads and wgrads: split full backwards, and make the delay of their
//      wgrads half a step longer or shorter. If the profile has recomputes: add or remove them.
//   4. Do the same in windows of the iteration. The windows get shorter by half each time.
//
// Alternatives that lost. (a) A mixed-integer program of the order needs a binary variable for
// every pair (forward, backward) on a pp_rank: 4,608 for 8 pp_ranks and 24 microbatches. (b) Early
// warm-up without a search: every pp_rank holds equally many more microbatches than in 1F1B. It is
// one of the generated schedules. Its gain is less than the gain of the search. For two measured
// profiles with 24 microbatches, it is less by a fifth with one more microbatch, and by more than a
// third with two more.
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
  // The limit on clock changes. The search does not use this limit. But the finalists are compared
  // by their plans, which keep it (finalists.h).
  few_switches::ChangeLimit changes = {};
  Placement placement = Placement::kLoop;
};

// A schedule that the search has evaluated.
struct Candidate {
  schedule::Schedule schedule;
  std::string origin = {};  // The generated schedule that it comes from: "1f1b", "zb-h1".
  std::vector<std::int64_t> in_flight = {};  // [pp_rank] the most microbatches at a time.
  double relaxed_energy_j = 0;               // No plan for this schedule and deadline needs less.
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

// Returns 1F1B, or interleaved 1F1B if the profile has several chunks for each pp_rank. If the
// profile lacks full backwards, returns the first generated schedule that the profile can run. If
// there is none, fails (kInput). The message then says what the profile lacks for the first
// generated schedule.
//
// If `limit` has a part that stays until a recompute, the reference is the first of these schedules
// and early recomputation that fits. The reason: if the GPUs of a user are too small for 1F1B, the
// user recomputes now.
Result<Reference> FindReference(const SearchJob& job, const MemoryLimit& limit = {});

struct SearchEffort {
  // The maximum number of candidates to evaluate. 0: depends on the size of the job
  // (UsualEvaluations).
  int evaluations = 0;
  std::stop_token stop = {};  // After a request, the search fails (kSystem).
  // After a finish request, the search ends with the best schedule so far. It always evaluates the
  // generated schedules.
  std::stop_token finish = {};
  // Called for each better schedule, and also from time to time, by the calling thread. Receives
  // the best schedule so far and the completed fraction of the evaluations.
  std::function<void(const Candidate&, double completed)> progress = {};
  // An additional schedule to start from, besides the generated schedules.
  const schedule::Schedule* start = nullptr;
};

// Returns fewer evaluations for larger jobs, so that their search takes seconds, too.
int UsualEvaluations(std::int64_t instructions);

// Returns the best schedule that keeps `limit` and meets the deadline. If several schedules have
// the same energy, returns the one with fewer microbatches in flight. Fails with kUnreachable if no
// generated schedule fits the memory and the deadline. The message states how much memory the
// reference needs.
Result<Candidate> FindSchedule(const SearchJob& job, Nanoseconds deadline, const MemoryLimit& limit,
                               const SearchEffort& effort = {});

// Returns a limit in microbatches: `more` microbatches above the reference on every pp_rank.
MemoryLimit MoreInFlight(const Reference& reference, int more);

// ---- The generated schedules that a search starts from (candidates.cc) ----

// Returns every generated schedule that the profile can run: it has as many chunks as the profile,
// and the profile has all its instructions. Also returns 1F1B with deeper warm-ups, up to the
// number of microbatches that a pp_rank may hold. The name of a schedule is its origin.
std::vector<schedule::Schedule> GeneratedCandidates(const SearchJob& job, const MemoryLimit& limit);

// Returns the reference: the first of the generated schedules that exists without a limit. With
// recomputation, returns the first one that fits the limit, if one fits.
Result<schedule::Schedule> ReferenceSchedule(const SearchJob& job, const MemoryLimit& limit = {});

bool Fits(const schedule::Schedule& schedule, const MemoryLimit& limit);

Result<plan::Planner> PlannerOf(const SearchJob& job, const schedule::Schedule& schedule);

}  // namespace perseus::schedule_search
