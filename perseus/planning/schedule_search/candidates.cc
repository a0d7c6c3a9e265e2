#include "perseus/planning/schedule_search/search.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "perseus/base/index.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule_search {
namespace {

// The first of these schedules that a profile can run is the reference.
constexpr std::array<std::string_view, 6> kWithOneChunk{
    "1f1b", "zb-h1", "gpipe", "early-recompute-1f1b", "interleaved-1f1b", "interleaved-zb"};
constexpr std::array<std::string_view, 2> kWithSeveralChunks{"interleaved-1f1b", "interleaved-zb"};
constexpr std::array<std::string_view, 2> kInAV{"zb-v", "dualpipe-v"};

bool CanRun(const profile::Profile& profile, const schedule::Schedule& schedule) {
  for (const auto& order : schedule.pp_ranks) {
    for (const schedule::Instruction& instruction : order) {
      const std::size_t stage = At(instruction.stage);
      if (profile.Find(schedule.pp_rank_of_stage[stage], schedule.chunk_of_stage[stage],
                       instruction.kind) == nullptr) {
        return false;
      }
    }
  }
  return true;
}

// 1F1B with a longer warm-up. Going from the last pp_rank to the first, each pp_rank gets `per_hop`
// additional forwards more than the pp_rank after it. No pp_rank gets more than `more` additional
// forwards. If per_hop is at least `more`, every pp_rank except the last one gets `more`.
std::optional<schedule::Schedule> DeeperWarmup(const SearchJob& job, const MemoryLimit& limit,
                                               int more, int per_hop) {
  std::vector<int> in_flight;
  int before = job.microbatches;
  for (int pp_rank = 0; pp_rank < job.pp_ranks; ++pp_rank) {
    const int later = job.pp_ranks - 1 - pp_rank;
    const std::int64_t fitting =
        limit.of_pp_rank[At(pp_rank)] / std::max<std::int64_t>(1, limit.size_of_stage[At(pp_rank)]);
    const std::int64_t wanted =
        1 + later + (later == 0 ? 0 : std::min<std::int64_t>(more, std::int64_t{per_hop} * later));
    const auto depth = static_cast<int>(std::min<std::int64_t>({wanted, fitting, before}));
    if (depth < 1) return std::nullopt;
    in_flight.push_back(depth);
    before = depth;
  }
  auto schedule = schedule::GenerateWarmupSchedule(job.microbatches, in_flight);
  if (!schedule) return std::nullopt;
  schedule->name = "1f1b";
  return *std::move(schedule);
}

void AddDeeperWarmups(const SearchJob& job, const MemoryLimit& limit,
                      std::vector<schedule::Schedule>& candidates) {
  // Twice the depth of 1F1B is enough for the round trip of a gradient. A deeper warm-up only helps
  // as in GPipe, and GPipe is itself a candidate.
  const int deepest = std::min(2 * job.pp_ranks, job.microbatches);
  for (int more = 1; more <= deepest; ++more) {
    for (const int per_hop : {1, deepest}) {
      auto schedule = DeeperWarmup(job, limit, more, per_hop);
      if (!schedule || !CanRun(job.profile, *schedule)) return;
      const auto same = [&](const auto& other) { return other.pp_ranks == schedule->pp_ranks; };
      if (std::ranges::none_of(candidates, same)) candidates.push_back(*std::move(schedule));
    }
  }
}

Result<schedule::Schedule> Generate(const SearchJob& job, std::string_view name) {
  return schedule::GenerateSchedule({.name = std::string(name),
                                     .pp_ranks = job.pp_ranks,
                                     .microbatches = job.microbatches,
                                     .chunks = job.profile.chunks()});
}

// Returns the same order with full backwards instead of dgrads. A full backward includes its dgrad,
// so the order can still run. It frees the activations at least as early.
schedule::Schedule WithFullBackwards(schedule::Schedule schedule) {
  for (auto& order : schedule.pp_ranks) {
    std::erase_if(order, [](const schedule::Instruction& instruction) {
      return instruction.kind == InstructionKind::kBackwardWeight;
    });
    for (schedule::Instruction& instruction : order) {
      if (instruction.kind == InstructionKind::kBackwardInput) {
        instruction.kind = InstructionKind::kBackward;
      }
    }
  }
  return schedule;
}

// 1F1B with recomputes on the first pp_ranks, which hold the most activations.
void AddRecomputes(const SearchJob& job, std::vector<schedule::Schedule>& candidates) {
  const auto without = Generate(job, "1f1b");
  const auto with = Generate(job, "early-recompute-1f1b");
  if (!without || !with || !CanRun(job.profile, *without) || !CanRun(job.profile, *with)) return;
  for (int pp_ranks = 1; pp_ranks < job.pp_ranks; ++pp_ranks) {
    schedule::Schedule some = *with;
    std::copy(without->pp_ranks.begin() + pp_ranks, without->pp_ranks.end(),
              some.pp_ranks.begin() + pp_ranks);
    candidates.push_back(std::move(some));
  }
}

std::vector<std::string_view> NamesFor(const SearchJob& job) {
  if (job.placement == Placement::kV) return {kInAV.begin(), kInAV.end()};
  if (job.profile.chunks() == 1) return {kWithOneChunk.begin(), kWithOneChunk.end()};
  return {kWithSeveralChunks.begin(), kWithSeveralChunks.end()};
}

// The generated schedules. If the profile has no split backwards, the schedules of a V have full
// backwards.
std::vector<schedule::Schedule> Generated(const SearchJob& job) {
  std::vector<schedule::Schedule> candidates;
  for (const std::string_view name : NamesFor(job)) {
    auto schedule = Generate(job, name);
    if (!schedule) continue;
    if (CanRun(job.profile, *schedule)) candidates.push_back(*schedule);
    if (job.placement != Placement::kV) continue;
    schedule::Schedule full = WithFullBackwards(*std::move(schedule));
    if (CanRun(job.profile, full)) candidates.push_back(std::move(full));
  }
  return candidates;
}

}  // namespace

bool Fits(const schedule::Schedule& schedule, const MemoryLimit& limit) {
  const auto peaks = schedule::PeakActivations(schedule, limit.size_of_stage, limit.kept_of_stage);
  return std::ranges::equal(peaks, limit.of_pp_rank, std::ranges::less_equal());
}

std::vector<schedule::Schedule> GeneratedCandidates(const SearchJob& job,
                                                    const MemoryLimit& limit) {
  std::vector<schedule::Schedule> candidates = Generated(job);
  if (job.profile.chunks() == 1) AddDeeperWarmups(job, limit, candidates);
  if (!limit.kept_of_stage.empty()) AddRecomputes(job, candidates);
  return candidates;
}

Result<schedule::Schedule> ReferenceSchedule(const SearchJob& job, const MemoryLimit& limit) {
  if (job.placement == Placement::kV && job.profile.chunks() != 2) {
    return Fail(
        "stages in a V need two chunks on each pp_rank, and {} has {} (remove `fold`, or profile "
        "two chunks)",
        job.profile.name(), job.profile.chunks());
  }
  std::vector<schedule::Schedule> generated = Generated(job);
  if (!limit.kept_of_stage.empty()) {
    const auto fitting = std::ranges::find_if(
        generated, [&](const schedule::Schedule& schedule) { return Fits(schedule, limit); });
    if (fitting != generated.end()) return std::move(*fitting);
  }
  if (!generated.empty()) return std::move(generated.front());
  return Generate(job, NamesFor(job).front());  // The planner says what the profile lacks.
}

Result<plan::Planner> PlannerOf(const SearchJob& job, const schedule::Schedule& schedule) {
  PERSEUS_ASSIGN_OR_RETURN(auto graph,
                           schedule::BuildInstructionGraph(schedule, job.profile, job.model));
  return plan::Planner::Create(std::move(graph), job.execution);
}

}  // namespace perseus::schedule_search
