#include "perseus/planning/schedule_search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_set>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/base/parallel.h"
#include "perseus/base/stopped.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule_search/moves.h"
#include "perseus/planning/schedule_search/relaxed_energy.h"

namespace perseus::schedule_search {
namespace {

// The number of moves that are evaluated at a time, on all cores. It is the same on every machine,
// and so is the result.
constexpr std::size_t kBatch = 4;

// A hash (FNV-1a) of the orders of instructions.
std::uint64_t Fingerprint(const schedule::Schedule& schedule) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&](int value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3U;
  };
  for (const auto& order : schedule.pp_ranks) {
    add(-1);
    for (const schedule::Instruction& instruction : order) {
      add(static_cast<int>(instruction.kind));
      add(instruction.stage);
      add(instruction.microbatch);
    }
  }
  return hash;
}

class Search {
 public:
  Search(const SearchJob& job, Nanoseconds deadline, const MemoryLimit& limit,
         const SearchEffort& effort)
      : limit_(limit),
        choices_(ChoicesOf(job.profile)),
        effort_(effort),
        energy_(job, deadline, limit) {}

  // Evaluates whole schedules.
  Result<void> Start(std::vector<schedule::Schedule> candidates) {
    for (std::size_t first = 0; first < candidates.size(); first += kBatch) {
      if (effort_.stop.stop_requested()) return FailAsStopped();
      const std::size_t count = std::min(kBatch, candidates.size() - first);
      std::vector<std::optional<Judgment>> judgments(count);
      ForEachOnAllCores(count, [&](std::size_t i) {
        judgments[i] = energy_.Judge(candidates[first + i], best_ ? &best_->judgment : nullptr);
      });
      for (std::size_t i = 0; i < count; ++i) {
        std::string origin = candidates[first + i].name;
        Offer(std::move(candidates[first + i]), origin, judgments[i]);
      }
      ShowProgress();
    }
    return {};
  }

  // Improves the best schedule by moves, until no move helps or the evaluations are used up.
  Result<void> Improve(int evaluations) {
    evaluations_ = evaluations_left_ = evaluations;
    const auto pp_ranks = static_cast<int>(paths_.size());
    std::size_t longest = 1;
    for (const RankPaths& rank : paths_) longest = std::max(longest, rank.backwards.size());
    for (bool has_helped = true; has_helped && has_evaluations();) {
      has_helped = false;
      for (std::size_t parts = 1; parts <= longest; parts *= 2) {
        const std::vector<Move> moves = MovesFor(pp_ranks, static_cast<int>(parts), choices_);
        for (bool again = true; again && has_evaluations();) {
          PERSEUS_ASSIGN_OR_RETURN(again, TryMoves(moves));
          has_helped = has_helped || again;
          // Only moves of the whole iteration are repeated at once. They are few, and the smaller
          // windows refine their results.
          again = again && parts == 1;
        }
      }
    }
    return {};
  }

  bool has_evaluations() const { return evaluations_left_ > 0 && !effort_.finish.stop_requested(); }
  bool has_schedule() const { return best_.has_value(); }
  Candidate Best() const {
    return {.schedule = best_->schedule,
            .origin = best_->origin,
            .in_flight = schedule::PeakInFlight(best_->schedule),
            .relaxed_energy_j = best_->judgment.relaxed_energy_j,
            .time_at_maximum = best_->judgment.time_at_maximum};
  }

 private:
  struct Judged {
    schedule::Schedule schedule;
    std::string origin;
    Judgment judgment;
  };

  bool Offer(schedule::Schedule schedule, const std::string& origin,
             const std::optional<Judgment>& judgment) {
    if (!judgment || (best_ && !judgment->IsBetterThan(best_->judgment))) return false;
    best_ = Judged{std::move(schedule), origin, *judgment};
    paths_ = PathsOf(best_->schedule);
    return true;
  }

  void ShowProgress() const {
    if (!effort_.progress || !best_) return;
    const int done = evaluations_ - std::max(0, evaluations_left_);
    effort_.progress(Best(), evaluations_ == 0 ? 0 : static_cast<double>(done) / evaluations_);
  }

  // Tries all moves once. Returns whether a move helped.
  Result<bool> TryMoves(const std::vector<Move>& moves) {
    bool has_helped = false;
    for (std::size_t next = 0; next < moves.size() && has_evaluations();) {
      std::size_t tried = next;
      PERSEUS_ASSIGN_OR_RETURN(const bool is_better, TryBatch(moves, next, tried));
      // If a move helped, it often helps again.
      next = is_better ? next : tried;
      has_helped = has_helped || is_better;
    }
    return has_helped;
  }

  Result<bool> TryBatch(const std::vector<Move>& moves, std::size_t first, std::size_t& tried) {
    if (effort_.stop.stop_requested()) return FailAsStopped();
    std::vector<schedule::Schedule> changed;
    for (tried = first; tried < moves.size() && changed.size() < kBatch; ++tried) {
      std::vector<RankPaths> paths = paths_;
      if (!Apply(moves[tried], limit_, choices_, paths)) continue;
      schedule::Schedule schedule = best_->schedule;
      SetOrders(paths, schedule);
      if (judged_.insert(Fingerprint(schedule)).second) changed.push_back(std::move(schedule));
    }
    std::vector<std::optional<Judgment>> judgments(changed.size());
    ForEachOnAllCores(changed.size(), [&](std::size_t i) {
      judgments[i] = energy_.Judge(changed[i], &best_->judgment);
    });
    evaluations_left_ -= static_cast<int>(changed.size());
    bool is_better = false;
    const std::string origin = best_->origin;
    for (std::size_t i = 0; i < changed.size(); ++i) {
      is_better = Offer(std::move(changed[i]), origin, judgments[i]) || is_better;
    }
    ShowProgress();
    return is_better;
  }

  const MemoryLimit& limit_;
  const Choices choices_;
  const SearchEffort& effort_;
  RelaxedEnergy energy_;
  std::optional<Judged> best_;
  std::vector<RankPaths> paths_;              // The paths of the best schedule.
  std::unordered_set<std::uint64_t> judged_;  // Fingerprints.
  int evaluations_ = 0;
  int evaluations_left_ = 0;
};

std::int64_t InstructionsOf(const schedule::Schedule& schedule) {
  std::int64_t instructions = 0;
  for (const auto& order : schedule.pp_ranks) {
    instructions += static_cast<std::int64_t>(order.size());
  }
  return instructions;
}

// "3 microbatches", "1.250 GiB of activations".
std::string DescribeMemory(const std::vector<std::int64_t>& amounts, MemoryLimit::Unit unit) {
  if (unit == MemoryLimit::Unit::kMicrobatches) {
    return fmt::format("{} microbatch{}", fmt::join(amounts, " "),
                       amounts == std::vector<std::int64_t>{1} ? "" : "es");
  }
  std::vector<std::string> gib;
  for (const std::int64_t amount : amounts) {
    gib.push_back(fmt::format("{:.3f}", static_cast<double>(amount) / kBytesPerGib));
  }
  return fmt::format("{} GiB of activations", fmt::join(gib, " "));
}

// Returns the relaxed energy of a schedule. If the schedule has no relaxed energy, the error
// explains why (Judge only returns nullopt).
Result<double> RelaxedEnergyOf(const SearchJob& job, const schedule::Schedule& schedule,
                               Nanoseconds deadline) {
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, PlannerOf(job, schedule));
  return planner.BoundFor(deadline);
}

// The error states what is missing, and how much the reference needs.
tl::unexpected<Error> FailWithoutSchedule(const SearchJob& job,
                                          const std::vector<schedule::Schedule>& candidates,
                                          const MemoryLimit& limit, Nanoseconds deadline) {
  const auto peaks_of = [&](const schedule::Schedule& schedule) {
    return schedule::PeakActivations(schedule, limit.size_of_stage, limit.kept_of_stage);
  };
  std::string remedy = "allow more memory, or more time";
  if (const auto reference = ReferenceSchedule(job)) {
    if (Fits(*reference, limit)) {
      const auto energy = RelaxedEnergyOf(job, *reference, deadline);
      if (!energy && energy.error().kind != ErrorKind::kUnreachable) return Fail(energy);
    }
    const std::size_t last = limit.of_pp_rank.size() - 1;
    remedy = fmt::format("allow more: {} needs {}{}", reference->name,
                         DescribeMemory(peaks_of(*reference), limit.unit),
                         last == 0 ? "" : fmt::format(" on pp_ranks 0 to {}", last));
  }
  for (std::size_t pp_rank = 0; pp_rank < limit.of_pp_rank.size(); ++pp_rank) {
    std::optional<std::int64_t> least;
    for (const schedule::Schedule& schedule : candidates) {
      const auto peak = peaks_of(schedule)[pp_rank];
      least = std::min(least.value_or(peak), peak);
    }
    if (least && *least > limit.of_pp_rank[pp_rank]) {
      return FailAs(
          ErrorKind::kUnreachable,
          "no known schedule fits the memory: pp_rank {} may hold {}, and the smallest schedule "
          "holds {} there ({})",
          pp_rank, DescribeMemory({limit.of_pp_rank[pp_rank]}, limit.unit),
          DescribeMemory({*least}, limit.unit), remedy);
    }
  }
  return FailAs(ErrorKind::kUnreachable,
                "no known schedule in this memory takes at most {:.6f} s at maximum frequency ({})",
                ToSeconds(deadline), remedy);
}

}  // namespace

int UsualEvaluations(std::int64_t instructions) {
  constexpr double kSmall = 400;  // Instructions.
  const double scale =
      std::sqrt(kSmall / static_cast<double>(std::max<std::int64_t>(instructions, 1)));
  return std::max(40, static_cast<int>(300 * std::min(scale, 4.0)));
}

Result<Reference> FindReference(const SearchJob& job, const MemoryLimit& limit) {
  PERSEUS_ASSIGN_OR_RETURN(auto schedule, ReferenceSchedule(job, limit));
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, PlannerOf(job, schedule));
  std::vector<std::int64_t> in_flight = schedule::PeakInFlight(schedule);
  return Reference{.schedule = std::move(schedule),
                   .time = planner.baseline().time,
                   .energy_j = planner.baseline().energy_j,
                   .in_flight = std::move(in_flight)};
}

Result<Candidate> FindSchedule(const SearchJob& job, Nanoseconds deadline, const MemoryLimit& limit,
                               const SearchEffort& effort) {
  std::vector<schedule::Schedule> candidates = GeneratedCandidates(job, limit);
  if (effort.start != nullptr) candidates.push_back(*effort.start);
  Search search(job, deadline, limit, effort);
  PERSEUS_RETURN_IF_ERROR(search.Start(candidates));
  if (!search.has_schedule()) return FailWithoutSchedule(job, candidates, limit, deadline);
  // With several chunks, there are more kinds of moves.
  const int usual =
      UsualEvaluations(InstructionsOf(candidates.front())) * (job.profile.chunks() > 1 ? 2 : 1);
  PERSEUS_RETURN_IF_ERROR(search.Improve(effort.evaluations > 0 ? effort.evaluations : usual));
  Candidate best = search.Best();
  PERSEUS_ASSIGN_OR_RETURN(best.relaxed_energy_j, RelaxedEnergyOf(job, best.schedule, deadline));
  return best;
}

MemoryLimit MoreInFlight(const Reference& reference, int more) {
  MemoryLimit limit{
      .of_pp_rank = reference.in_flight,
      .size_of_stage = std::vector<std::int64_t>(reference.schedule.pp_rank_of_stage.size(), 1)};
  for (std::int64_t& most : limit.of_pp_rank) most += more;
  return limit;
}

}  // namespace perseus::schedule_search
