#include "perseus/planning/schedule_search/tradeoff.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/base/parallel.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule_search/moves.h"
#include "perseus/planning/schedule_search/order_bound.h"

namespace perseus::schedule_search {
namespace {

// Returns the limit of the row with `more` additional microbatches. With recomputation,
// microbatches in flight need different amounts of memory, so the limit is in bytes.
MemoryLimit LimitOfRow(const Reference& reference, const ByteMemory& memory, int more) {
  if (memory.kept.empty()) return MoreInFlight(reference, more);
  MemoryLimit limit{
      .of_pp_rank = schedule::PeakActivations(reference.schedule, memory.activations, memory.kept),
      .size_of_stage = memory.activations,
      .kept_of_stage = memory.kept,
      .unit = MemoryLimit::Unit::kBytes};
  for (std::int64_t& bytes : limit.of_pp_rank) {
    bytes += more * std::ranges::max(memory.activations);
  }
  return limit;
}

bool HoldSame(const Candidate& a, const Candidate& b, const ByteMemory& memory) {
  if (memory.kept.empty()) return a.in_flight == b.in_flight;
  const auto bytes = [&](const Candidate& candidate) {
    return schedule::PeakActivations(candidate.schedule, memory.activations, memory.kept);
  };
  return bytes(a) == bytes(b);
}

// Returns the schedules of the rows. The search of each row starts from the previous schedule. If a
// row holds no more microbatches than the previous row, leaves out this row and the next ones. The
// exception: a generated schedule that needs the memory of these rows is better than the last
// schedule that was kept.
Result<std::vector<std::pair<int, Candidate>>> FindSchedules(const SearchJob& job,
                                                             const Reference& reference,
                                                             const TradeoffOptions& options) {
  std::vector<std::pair<int, Candidate>> found;
  bool is_memory_of_use = true;
  for (const int more : options.more) {
    const MemoryLimit limit = LimitOfRow(reference, options.memory, more);
    if (!is_memory_of_use &&
        !HasBetterGenerated(job, reference, found.back().second, limit,
                            LimitOfRow(reference, options.memory, found.back().first))) {
      continue;
    }
    SearchEffort effort{.evaluations = options.evaluations,
                        .stop = options.stop,
                        .finish = options.finish,
                        .progress = {},
                        .start = found.empty() ? nullptr : &found.back().second.schedule};
    if (options.progress) {
      effort.progress = [&](const Candidate& best, double completed) {
        options.progress(more, reference, best, completed);
      };
    }
    PERSEUS_ASSIGN_OR_RETURN(auto candidate, FindSchedule(job, reference.time, limit, effort));
    is_memory_of_use =
        found.size() <= 1 || !HoldSame(candidate, found.back().second, options.memory);
    if (is_memory_of_use) found.emplace_back(more, std::move(candidate));
    if (options.finish.stop_requested()) break;
  }
  return found;
}

bool IsUnreachable(const Result<PlannedCandidate>& planned) {
  return !planned && planned.error().kind == ErrorKind::kUnreachable;
}

// Returns the best schedule in the available bytes. Starts from the best of the other schedules
// that fits.
Result<TradeoffRow> PlanFitting(const SearchJob& job, const Tradeoff& tradeoff,
                                const TradeoffOptions& options) {
  const MemoryLimit limit = LimitOf(options.memory);
  SearchEffort effort{.evaluations = options.evaluations,
                      .stop = options.stop,
                      .finish = options.finish,
                      .progress = {}};
  const TradeoffRow* before = nullptr;
  for (const TradeoffRow& row : tradeoff.rows) {
    if (Fits(row.candidate.schedule, limit)) before = &row;
  }
  if (before != nullptr) effort.start = &before->candidate.schedule;
  auto candidate = FindSchedule(job, tradeoff.reference.time, limit, effort);
  if (!candidate) return Fail(candidate, "the memory of the GPUs");
  auto planned = PlanBestFinalist(
      job, tradeoff.reference, *std::move(candidate), limit,
      {.effort = options.plan_effort, .stop = options.stop, .finish = options.finish});
  const bool has_plan = planned || (before != nullptr && IsUnreachable(planned));
  if (!has_plan) return Fail(planned);
  PERSEUS_ASSIGN_OR_RETURN(const auto bound_j,
                           BoundOfAnyOrder(job, tradeoff.reference.time, limit, options.finish));
  const bool keeps_before = before != nullptr && (!planned || before->saving > planned->saving);
  TradeoffRow row = keeps_before ? *before : TradeoffRow{*std::move(planned)};
  row.more = -1;
  row.most_saving.reset();
  if (bound_j) row.most_saving = 1 - *bound_j / tradeoff.reference.energy_j;
  return row;
}

plan::SearchLimits LimitsOf(const TradeoffOptions& options) {
  return {.effort = options.plan_effort, .stop = options.stop, .finish = options.finish};
}

// Plans the reference and the schedules that were found.
Result<Tradeoff> PlanRows(const SearchJob& job, Reference reference,
                          const std::vector<std::pair<int, Candidate>>& found,
                          const TradeoffOptions& options) {
  const Candidate fixed{.schedule = reference.schedule,
                        .origin = reference.schedule.name,
                        .in_flight = reference.in_flight,
                        .relaxed_energy_j = 0,
                        .time_at_maximum = reference.time};
  const plan::SearchLimits limits = LimitsOf(options);
  Result<PlannedCandidate> planned_reference = Fail("not planned");
  std::vector<Result<PlannedCandidate>> planned(found.size(), Fail("not planned"));
  std::vector<Result<std::optional<double>>> bounds(found.size(), Fail("not bounded"));
  ForEachOnAllCores(found.size() + 1, [&](std::size_t i) {
    if (i == found.size()) {
      planned_reference = PlanCandidate(job, reference, fixed, limits);
      return;
    }
    const MemoryLimit limit = LimitOfRow(reference, options.memory, found[i].first);
    std::optional<MemoryLimit> judged;
    if (i > 0) judged = LimitOfRow(reference, options.memory, found[i - 1].first);
    planned[i] = PlanBestFinalist(job, reference, found[i].second, limit, limits,
                                  judged ? &*judged : nullptr);
    bounds[i] = BoundOfAnyOrder(job, reference.time, limit, options.finish);
  });
  if (!planned_reference) return Fail(planned_reference);
  Tradeoff tradeoff{.reference = std::move(reference),
                    .fixed = TradeoffRow{*std::move(planned_reference)},
                    .rows = {}};
  tradeoff.fixed.candidate.relaxed_energy_j = tradeoff.fixed.plan.lower_bound_j;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (!planned[i] && !IsUnreachable(planned[i])) return Fail(planned[i]);
    if (!bounds[i]) return Fail(bounds[i]);
    // The schedule of a row with less memory is also possible in this row.
    const TradeoffRow& before = i == 0 ? tradeoff.fixed : tradeoff.rows.back();
    const bool keeps_before = !planned[i] || before.saving > planned[i]->saving;
    TradeoffRow row = keeps_before ? before : TradeoffRow{*std::move(planned[i])};
    row.more = found[i].first;
    row.most_saving.reset();
    if (*bounds[i]) row.most_saving = 1 - **bounds[i] / tradeoff.reference.energy_j;
    tradeoff.rows.push_back(std::move(row));
  }
  return tradeoff;
}

// Adds rows that the search left out: those for which a generated schedule that needs their memory
// has a better plan than the previous row. (Its relaxed energy is not better.)
Result<void> AddGeneratedRows(const SearchJob& job, const TradeoffOptions& options,
                              Tradeoff& tradeoff) {
  const Reference& reference = tradeoff.reference;
  for (const int more : options.more) {
    const auto next = std::ranges::upper_bound(tradeoff.rows, more, {}, &TradeoffRow::more);
    if (next == tradeoff.rows.begin() || std::prev(next)->more == more) continue;
    const TradeoffRow& before = *std::prev(next);
    const MemoryLimit limit = LimitOfRow(reference, options.memory, more);
    PERSEUS_ASSIGN_OR_RETURN(
        auto better, PlanBetterGenerated(job, reference, before, limit, LimitsOf(options),
                                         LimitOfRow(reference, options.memory, before.more)));
    if (!better) continue;
    TradeoffRow row{*std::move(better)};
    row.more = more;
    PERSEUS_ASSIGN_OR_RETURN(const auto bound_j,
                             BoundOfAnyOrder(job, reference.time, limit, options.finish));
    if (bound_j) row.most_saving = 1 - *bound_j / reference.energy_j;
    tradeoff.rows.insert(next, std::move(row));
  }
  return {};
}

// A schedule with less memory does not save more than one with more memory. So the bound of a row
// is also valid for the previous rows. The ascent of a bound ends early, so the bound of a later
// row may be tighter.
void UseBoundsOfMoreMemory(std::vector<TradeoffRow>& rows) {
  std::optional<double> most;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    if (!row->most_saving) continue;
    most = std::min(most.value_or(*row->most_saving), *row->most_saving);
    row->most_saving = most;
  }
}

// "pp_rank 0", "pp_ranks 0 to 5", "pp_ranks 0, 1 and 3".
std::string NameRanks(const std::vector<int>& pp_ranks) {
  if (pp_ranks.size() == 1) return fmt::format("pp_rank {}", pp_ranks.front());
  if (pp_ranks.back() - pp_ranks.front() == static_cast<int>(pp_ranks.size()) - 1) {
    return fmt::format("pp_ranks {} to {}", pp_ranks.front(), pp_ranks.back());
  }
  const std::vector<int> but_last(pp_ranks.begin(), pp_ranks.end() - 1);
  return fmt::format("pp_ranks {} and {}", fmt::join(but_last, ", "), pp_ranks.back());
}

std::string Capitalized(int more) {
  constexpr const char* kWords[] = {"No", "One", "Two", "Three", "Four"};
  return more < 5 ? kWords[more] : fmt::format("{}", more);
}

// Describes what the memory of `row` saves, compared with the plan of the reference schedule.
std::string ConcludeRow(const Tradeoff& tradeoff, const TradeoffRow& row) {
  std::vector<int> deeper;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < row.candidate.in_flight.size(); ++i) {
    const std::int64_t more = row.candidate.in_flight[i] - tradeoff.reference.in_flight[i];
    if (more > 0) deeper.push_back(static_cast<int>(i));
    most = std::max(most, more);
  }
  const double further = row.saving - tradeoff.fixed.saving;
  std::string bytes;
  std::int64_t more_bytes = 0;
  if (!tradeoff.activations.empty()) {
    const auto peaks_of = [&](const schedule::Schedule& schedule) {
      return schedule::PeakActivations(schedule, tradeoff.activations, tradeoff.kept);
    };
    const auto now = peaks_of(tradeoff.reference.schedule);
    const auto then = peaks_of(row.candidate.schedule);
    int ranks = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      more_bytes = std::max(more_bytes, then[i] - now[i]);
      if (then[i] > now[i]) ++ranks;
    }
    bytes = fmt::format(" ({}{:.2f} GiB more on a GPU)", ranks > 1 ? "up to " : "",
                        static_cast<double>(more_bytes) / kBytesPerGib);
  }
  if (deeper.empty()) {
    return fmt::format("Another order {} saves another {:.2f} % of the energy",
                       more_bytes > 0 ? "in more memory" + bytes : "in the same memory",
                       further * 100);
  }
  return fmt::format("{}{} more microbatch{} in flight on {}{} {} another {:.2f} % of the energy",
                     most > 1 ? "Up to " : "", most > 1 ? fmt::format("{}", most) : Capitalized(1),
                     most > 1 ? "es" : "", NameRanks(deeper), bytes, most > 1 ? "save" : "saves",
                     further * 100);
}

// Returns the text if no better order was found in the memory of the reference (the row `same`).
std::string ConcludeWithoutMore(const Tradeoff& tradeoff, const TradeoffRow& same) {
  // With a latency or a limit on clock changes, plans are far from the relaxation. Then the best
  // relaxation proves nothing about the best plan.
  constexpr double kSmallGap = 0.005;
  const double relaxed = 1 - same.candidate.relaxed_energy_j / tradeoff.reference.energy_j;
  if (same.most_saving && *same.most_saving - relaxed < kWorthSaying &&
      relaxed - same.saving < kSmallGap) {
    return fmt::format("No other order is better in the memory of {}.\n",
                       tradeoff.reference.schedule.name);
  }
  return fmt::format("No order was found that saves more in the memory of {}.\n",
                     tradeoff.reference.schedule.name);
}

std::string ConcludeRows(const Tradeoff& tradeoff) {
  std::string text;
  const auto say = [&](const TradeoffRow& row) {
    text += ConcludeRow(tradeoff, row) + ", at no slowdown.\n";
  };
  double without_memory = tradeoff.fixed.saving;
  const TradeoffRow& same = tradeoff.rows.front();
  if (same.more == 0) {
    const bool is_better = same.saving - without_memory >= kWorthSaying;
    if (is_better) say(same);
    if (!is_better) text += ConcludeWithoutMore(tradeoff, same);
    without_memory = same.saving;
  }
  // The conclusion names two rows: the first row with additional memory that saves energy, and the
  // last row of the table.
  const TradeoffRow& last = tradeoff.rows.back();
  if (last.more == 0) return text;
  const auto first = std::ranges::find_if(tradeoff.rows, [&](const TradeoffRow& row) {
    return row.more > 0 && row.saving - without_memory >= kWorthSaying;
  });
  if (first == tradeoff.rows.end()) return text + "More memory saves nothing more.\n";
  say(*first);
  if (last.saving - first->saving >= kWorthSaying) say(last);
  return text;
}

}  // namespace

MemoryLimit LimitOf(const ByteMemory& memory) {
  if (memory.available.empty()) return {};
  return {.of_pp_rank = memory.available,
          .size_of_stage = memory.activations,
          .kept_of_stage = memory.kept,
          .unit = MemoryLimit::Unit::kBytes};
}

std::string FormatInFlight(const std::vector<std::int64_t>& in_flight) {
  return fmt::format("{}", fmt::join(in_flight, " "));
}

Result<Tradeoff> ComputeTradeoff(const SearchJob& job, const TradeoffOptions& options) {
  PERSEUS_ASSIGN_OR_RETURN(auto reference, FindReference(job, LimitOf(options.memory)));
  PERSEUS_ASSIGN_OR_RETURN(auto found, FindSchedules(job, reference, options));
  PERSEUS_ASSIGN_OR_RETURN(auto tradeoff, PlanRows(job, std::move(reference), found, options));
  PERSEUS_RETURN_IF_ERROR(AddGeneratedRows(job, options, tradeoff));
  UseBoundsOfMoreMemory(tradeoff.rows);
  tradeoff.activations = options.memory.activations;
  tradeoff.kept = options.memory.kept;
  if (!options.memory.available.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(tradeoff.fitting, PlanFitting(job, tradeoff, options));
  }
  tradeoff.gaps = DescribeGaps(job.profile);
  tradeoff.was_interrupted = options.finish.stop_requested();
  return tradeoff;
}

std::int64_t MostBytes(const Tradeoff& tradeoff, const TradeoffRow& row) {
  return std::ranges::max(
      schedule::PeakActivations(row.candidate.schedule, tradeoff.activations, tradeoff.kept));
}

std::string Conclude(const Tradeoff& tradeoff) {
  std::string text = ConcludeRows(tradeoff) + tradeoff.gaps;
  if (!tradeoff.fitting) return text;
  const TradeoffRow& fitting = *tradeoff.fitting;
  const double further = fitting.saving - tradeoff.fixed.saving;
  if (further < kWorthSaying) {
    return text + "No schedule was found that fits the memory of the GPUs and saves more.\n";
  }
  return text + fmt::format(
                    "The best schedule that fits the memory of the GPUs holds {} microbatches, and "
                    "saves another {:.2f} % of the energy, at no slowdown.\n",
                    FormatInFlight(fitting.candidate.in_flight), further * 100);
}

}  // namespace perseus::schedule_search
