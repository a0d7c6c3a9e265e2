#include "perseus/planning/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "perseus/base/excerpt.h"
#include "perseus/base/wording.h"
#include "perseus/planning/schedule/rank_order.h"

namespace perseus::schedule {
namespace {

enum class Placement { kOneStageARank, kLooped, kFolded };

using Backward = OneForwardOneBackward::Backward;

struct Generator {
  std::string_view name;
  Placement placement;
  std::vector<Instruction> (*order)(const ScheduleSpec& spec, int rank);
};

template <int kWarmupPerHop, Backward kBackward>
std::vector<Instruction> Alternating(const ScheduleSpec& spec, int rank) {
  return OneForwardOneBackwardOrder(spec, rank,
                                    {.warmup_per_hop = kWarmupPerHop, .backward = kBackward});
}

constexpr std::array kGenerators{
    Generator{"gpipe", Placement::kOneStageARank, GpipeOrder},
    Generator{"1f1b", Placement::kOneStageARank, Alternating<1, Backward::kFull>},
    Generator{"interleaved-1f1b", Placement::kLooped, Alternating<2, Backward::kFull>},
    Generator{"early-recompute-1f1b", Placement::kOneStageARank,
              Alternating<1, Backward::kRecomputed>},
    Generator{"zb-h1", Placement::kOneStageARank, Alternating<1, Backward::kSplit>},
    Generator{"interleaved-zb", Placement::kLooped, Alternating<1, Backward::kSplit>},
    Generator{"zb-v", Placement::kFolded, ZbVOrder},
    Generator{"dualpipe-v", Placement::kFolded, DualPipeVOrder},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kGenerators.size()> names;
  std::transform(kGenerators.begin(), kGenerators.end(), names.begin(),
                 [](const Generator& generator) { return generator.name; });
  return names;
}();

constexpr int kMostRanks = 100'000;
constexpr int kMostMicrobatches = 1'000'000;
constexpr int kMostChunks = 1'000;
// Three for each stage and microbatch at most; this many take about 360 MB.
constexpr std::int64_t kMostActions = 30'000'000;

Result<void> CheckRange(const ScheduleSpec& spec, std::string_view what, int value, int most) {
  if (value >= 1 && value <= most) return {};
  return Fail("schedule {}: {} {} (expected 1 to {})", spec.name, value, what, most);
}

// The next number of microbatches from `from`, going by `step`, that comes in whole rounds.
int NearestWholeRounds(int from, int step, int ranks) {
  int microbatches = from;
  while (microbatches % std::max(1, microbatches / ranks) != 0) microbatches += step;
  return microbatches;
}

Result<void> CheckSizes(const ScheduleSpec& spec, const Generator& generator) {
  if (auto ranks = CheckRange(spec, "ranks", spec.ranks, kMostRanks); !ranks) return ranks;
  if (auto microbatches = CheckRange(spec, "microbatches", spec.microbatches, kMostMicrobatches);
      !microbatches) {
    return microbatches;
  }
  if (auto chunks = CheckRange(spec, "chunks", spec.chunks, kMostChunks); !chunks) return chunks;

  switch (generator.placement) {
    case Placement::kOneStageARank:
      if (spec.chunks != 1) {
        return Fail(
            "schedule {}: {} chunks, but it has one stage a rank (take 1 chunk, or an "
            "interleaved schedule)",
            spec.name, spec.chunks);
      }
      break;
    case Placement::kLooped:
      // Chunks take turns round by round. An unfinished round would leave a rank waiting for
      // microbatches that never come.
      if (const int rounds = std::max(1, spec.microbatches / spec.ranks);
          spec.chunks > 1 && spec.microbatches % rounds != 0) {
        return Fail(
            "schedule {}: {} microbatches do not divide into {} equal rounds, one for "
            "every {} ranks (take {} or {} microbatches)",
            spec.name, spec.microbatches, rounds, spec.ranks,
            NearestWholeRounds(spec.microbatches, -1, spec.ranks),
            NearestWholeRounds(spec.microbatches, 1, spec.ranks));
      }
      break;
    case Placement::kFolded:
      // One chunk is what a ScheduleSpec says when nobody said anything.
      if (spec.chunks > 2) {
        return Fail("schedule {}: {} chunks, but it folds exactly 2 onto a rank (take 2)",
                    spec.name, spec.chunks);
      }
      if (generator.order == DualPipeVOrder && spec.microbatches < 2 * spec.ranks) {
        return Fail(
            "schedule {}: {} microbatches on {} ranks (take at least {}, one for each "
            "stage)",
            spec.name, spec.microbatches, spec.ranks, 2 * spec.ranks);
      }
      break;
  }

  const std::int64_t instructions =
      std::int64_t{3} * spec.ranks * std::max(spec.chunks, 2) * spec.microbatches;
  if (instructions > kMostActions) {
    return Fail(
        "schedule {}: {} ranks with {} chunks and {} microbatches are more than {} "
        "instructions (take fewer)",
        spec.name, spec.ranks, spec.chunks, spec.microbatches, kMostActions);
  }
  return {};
}

}  // namespace

std::span<const std::string_view> ScheduleNames() { return kNames; }

Result<Schedule> GenerateSchedule(const ScheduleSpec& spec) {
  const auto generator =
      std::find_if(kGenerators.begin(), kGenerators.end(),
                   [&](const Generator& candidate) { return candidate.name == spec.name; });
  if (generator == kGenerators.end()) {
    return Fail("unknown schedule {}{}", Excerpt(spec.name), DidYouMean(spec.name, kNames));
  }
  PERSEUS_RETURN_IF_ERROR(CheckSizes(spec, *generator));

  Schedule schedule;
  schedule.name = spec.name;
  schedule.microbatches = spec.microbatches;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    schedule.ranks.push_back(generator->order(spec, rank));
  }
  const bool folded = generator->placement == Placement::kFolded;
  const int chunks = folded ? 2 : spec.chunks;
  for (int stage = 0; stage < spec.ranks * chunks; ++stage) {
    const int chunk = stage / spec.ranks;
    const int along = stage % spec.ranks;
    schedule.pp_rank_of_stage.push_back(folded && chunk == 1 ? spec.ranks - 1 - along : along);
    schedule.chunk_of_stage.push_back(chunk);
  }
  return schedule;
}

}  // namespace perseus::schedule
