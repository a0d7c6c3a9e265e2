// What more memory saves: for each number of additional microbatches in flight, the best schedule
// and its plan.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "perseus/planning/plan/planner.h"
#include "perseus/planning/schedule_search/finalists.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::schedule_search {

// A saving below this is not mentioned: a hundredth of a percent.
inline constexpr double kWorthSaying = 1e-4;

// A schedule with its plan that is no slower than the reference at maximum frequency.
struct TradeoffRow : PlannedCandidate {
  int more = 0;  // How many more microbatches a pp_rank may hold than in the reference.
  // No schedule in this memory saves more (order_bound.h). nullopt if the bound does not apply.
  std::optional<double> most_saving = {};
};

// The memory of GPUs, in bytes.
struct ByteMemory {
  std::vector<std::int64_t> activations;  // [stage] For one microbatch, on one GPU.
  // [stage] The part of the activations that stays until a recompute. Empty: all stay.
  std::vector<std::int64_t> kept = {};
  // [pp_rank] The memory of one GPU for activations. Empty if it is unknown.
  std::vector<std::int64_t> available;
};

// Returns the limit that the available bytes set.
MemoryLimit LimitOf(const ByteMemory& memory);

struct Tradeoff {
  Reference reference;
  TradeoffRow fixed;  // The plan of the reference schedule.
  // In increasing order of `more`. Each row saves at least as much as the previous row.
  std::vector<TradeoffRow> rows;
  // The best schedule in the available bytes. Its `more` is -1.
  std::optional<TradeoffRow> fitting = {};
  std::vector<std::int64_t> activations = {};  // [stage] In bytes; empty if they are unknown.
  std::vector<std::int64_t> kept = {};         // [stage] As in ByteMemory.
  std::string gaps = {};         // The instructions of the profile that are not used, in sentences.
  bool was_interrupted = false;  // By a request to finish.
};

struct TradeoffOptions {
  std::vector<int> more = {0, 1, 2, 3, 4, 6, 8};  // `more` of each row, increasing.
  ByteMemory memory = {};
  int plan_effort = plan::kFirstLook;
  int evaluations = 0;  // For each row; 0: UsualEvaluations.
  std::stop_token stop = {};
  // After a finish request, the rows so far get plans, and no more rows follow.
  std::stop_token finish = {};
  // Called for each row, as SearchEffort::progress is.
  std::function<void(int more, const Reference&, const Candidate&, double completed)> progress = {};
};

// Computes the trade-off. If a row holds no more microbatches than the previous row, leaves it out,
// because its memory saves nothing. (The first two rows always exist.)
Result<Tradeoff> ComputeTradeoff(const SearchJob& job, const TradeoffOptions& options = {});

// The conclusion in a sentence: "One more microbatch in flight on pp_ranks 0 to 5 saves another
// 3.37 % of the energy, at no slowdown."
std::string Conclude(const Tradeoff& tradeoff);

// The maximum number of bytes of activations on a GPU of any pp_rank. Requires
// Tradeoff::activations.
std::int64_t MostBytes(const Tradeoff& tradeoff, const TradeoffRow& row);

// "9 8 7 6", for tables.
std::string FormatInFlight(const std::vector<std::int64_t>& in_flight);

}  // namespace perseus::schedule_search
