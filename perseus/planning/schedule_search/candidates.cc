#include "perseus/planning/schedule_search/candidates.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "perseus/base/index.h"
#include "perseus/planning/schedule/warmup.h"

namespace perseus::schedule_search {
namespace {

// The first one that a profile can run is the reference.
constexpr std::array<std::string_view, 6> kWithOneChunk{
    "1f1b", "zb-h1", "gpipe", "early-recompute-1f1b", "interleaved-1f1b", "interleaved-zb"};
constexpr std::array<std::string_view, 2> kWithSeveralChunks{"interleaved-1f1b", "interleaved-zb"};

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

// 1F1B with more warm-up. `per_hop` more for each later pp_rank, but at most `more`: with per_hop
// above all of them, every pp_rank except the last one has the same number more.
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
  // Twice the depth of 1F1B covers the round trip of a gradient. Beyond that, only GPipe is known
  // to help, and it is a candidate itself.
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

std::vector<std::string_view> NamesFor(const profile::Profile& profile) {
  if (profile.chunks() == 1) return {kWithOneChunk.begin(), kWithOneChunk.end()};
  return {kWithSeveralChunks.begin(), kWithSeveralChunks.end()};
}

}  // namespace

std::vector<schedule::Schedule> GeneratedCandidates(const SearchJob& job,
                                                    const MemoryLimit& limit) {
  std::vector<schedule::Schedule> candidates;
  for (const std::string_view name : NamesFor(job.profile)) {
    auto schedule = Generate(job, name);
    if (schedule && CanRun(job.profile, *schedule)) candidates.push_back(*std::move(schedule));
  }
  if (job.profile.chunks() == 1) AddDeeperWarmups(job, limit, candidates);
  return candidates;
}

Result<schedule::Schedule> ReferenceSchedule(const SearchJob& job) {
  Result<schedule::Schedule> first = Fail("no schedule");
  for (const std::string_view name : NamesFor(job.profile)) {
    auto schedule = Generate(job, name);
    if (schedule && CanRun(job.profile, *schedule)) return schedule;
    if (name == NamesFor(job.profile).front()) first = std::move(schedule);
  }
  return first;  // The planner says which instruction the profile lacks.
}

}  // namespace perseus::schedule_search
