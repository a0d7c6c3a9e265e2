#include "perseus/planning/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "perseus/base/excerpt.h"
#include "perseus/base/wording.h"
#include "perseus/planning/schedule/rank_order.h"

namespace perseus::schedule {
namespace {

enum class Placement { kOneStage, kLooped, kFolded };

using Backward = OneForwardOneBackward::Backward;

struct Generator {
  std::string_view name;
  Placement placement;
  std::vector<Instruction> (*order)(const ScheduleSpec& spec, int pp_rank);
};

template <int kWarmupPerHop, Backward kBackward>
std::vector<Instruction> Alternating(const ScheduleSpec& spec, int pp_rank) {
  return OneForwardOneBackwardOrder(spec, pp_rank,
                                    {.warmup_per_hop = kWarmupPerHop, .backward = kBackward});
}

constexpr std::array kGenerators{
    Generator{"gpipe", Placement::kOneStage, GpipeOrder},
    Generator{"1f1b", Placement::kOneStage, Alternating<1, Backward::kFull>},
    Generator{"interleaved-1f1b", Placement::kLooped, Alternating<2, Backward::kFull>},
    Generator{"early-recompute-1f1b", Placement::kOneStage, Alternating<1, Backward::kRecomputed>},
    Generator{"zb-h1", Placement::kOneStage, Alternating<1, Backward::kSplit>},
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

constexpr int kMostPpRanks = 100'000;
constexpr int kMostMicrobatches = 1'000'000;
constexpr int kMostChunks = 1'000;
// A stage has at most three for each microbatch. This many take about 360 MB.
constexpr std::int64_t kMostInstructions = 30'000'000;

Result<void> CheckRange(const ScheduleSpec& spec, std::string_view what, int value, int most) {
  if (value >= 1 && value <= most) return {};
  return Fail("schedule {}: {} {} (expected 1 to {})", spec.name, value, what, most);
}

// The nearest number of microbatches from `from` in the direction of `step` that gives whole
// rounds.
int NearestWholeRounds(int from, int step, int pp_ranks) {
  int microbatches = from;
  while (microbatches % std::max(1, microbatches / pp_ranks) != 0) microbatches += step;
  return microbatches;
}

Result<void> CheckSizes(const ScheduleSpec& spec, const Generator& generator) {
  if (auto pp_ranks = CheckRange(spec, "pp_ranks", spec.pp_ranks, kMostPpRanks); !pp_ranks)
    return pp_ranks;
  if (auto microbatches = CheckRange(spec, "microbatches", spec.microbatches, kMostMicrobatches);
      !microbatches) {
    return microbatches;
  }
  if (auto chunks = CheckRange(spec, "chunks", spec.chunks, kMostChunks); !chunks) return chunks;

  switch (generator.placement) {
    case Placement::kOneStage:
      if (spec.chunks != 1) {
        return Fail(
            "schedule {}: {} chunks, but this schedule has one stage on each pp_rank (use 1 chunk, "
            "or an interleaved schedule)",
            spec.name, spec.chunks);
      }
      break;
    case Placement::kLooped:
      // Chunks alternate in rounds. In an incomplete round, a pp_rank would wait for microbatches
      // that never come.
      if (const int rounds = std::max(1, spec.microbatches / spec.pp_ranks);
          spec.chunks > 1 && spec.microbatches % rounds != 0) {
        return Fail(
            "schedule {}: {} microbatches do not divide into {} equal rounds of about {}, the "
            "number of pp_ranks (use {} or {} microbatches)",
            spec.name, spec.microbatches, rounds, spec.pp_ranks,
            NearestWholeRounds(spec.microbatches, -1, spec.pp_ranks),
            NearestWholeRounds(spec.microbatches, 1, spec.pp_ranks));
      }
      break;
    case Placement::kFolded:
      // One chunk is the default of a ScheduleSpec, so it means that the user gave no number.
      if (spec.chunks > 2) {
        return Fail("schedule {}: {} chunks, but this schedule has 2 on each pp_rank (use 2)",
                    spec.name, spec.chunks);
      }
      if (generator.order == DualPipeVOrder && spec.microbatches < 2 * spec.pp_ranks) {
        return Fail(
            "schedule {}: {} microbatches are too few for {} pp_ranks (use at least {}, one for "
            "each stage)",
            spec.name, spec.microbatches, spec.pp_ranks, 2 * spec.pp_ranks);
      }
      break;
  }

  const std::int64_t instructions =
      std::int64_t{3} * spec.pp_ranks * std::max(spec.chunks, 2) * spec.microbatches;
  if (instructions > kMostInstructions) {
    return Fail(
        "schedule {}: {} pp_ranks with {} chunks and {} microbatches give more than {} "
        "instructions (use fewer)",
        spec.name, spec.pp_ranks, spec.chunks, spec.microbatches, kMostInstructions);
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
  for (int pp_rank = 0; pp_rank < spec.pp_ranks; ++pp_rank) {
    schedule.pp_ranks.push_back(generator->order(spec, pp_rank));
  }
  const bool folded = generator->placement == Placement::kFolded;
  const int chunks = folded ? 2 : spec.chunks;
  for (int stage = 0; stage < spec.pp_ranks * chunks; ++stage) {
    const int chunk = stage / spec.pp_ranks;
    const int along = stage % spec.pp_ranks;
    schedule.pp_rank_of_stage.push_back(folded && chunk == 1 ? spec.pp_ranks - 1 - along : along);
    schedule.chunk_of_stage.push_back(chunk);
  }
  return schedule;
}

}  // namespace perseus::schedule
