#include "perseus/planning/schedule/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/base/limits.h"
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

// A stage has at most three instructions for each microbatch. 30 million take about 360 MB.
constexpr std::int64_t kMostInstructions = 30'000'000;

Result<void> CheckRange(const ScheduleSpec& spec, std::string_view what, int value, int most) {
  if (value >= 1 && value <= most) return {};
  return Fail("schedule {}: {} {} (expected 1 to {})", spec.name, value, what, most);
}

// The nearest number of microbatches with whole rounds, in the direction of `step` from `from`.
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
      // One chunk is the default of a ScheduleSpec. So a value of 1 means that the user gave no
      // number.
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

using Kinds = std::uint8_t;  // One bit for each kind.

constexpr Kinds Bit(InstructionKind kind) {
  return static_cast<Kinds>(1U << static_cast<unsigned>(kind));
}
constexpr Kinds kForward = Bit(InstructionKind::kForward);
constexpr Kinds kBackward = Bit(InstructionKind::kBackward);
constexpr Kinds kInput = Bit(InstructionKind::kBackwardInput);
constexpr Kinds kWeight = Bit(InstructionKind::kBackwardWeight);

std::optional<ScheduleDefect> FindShapeDefect(const Schedule& schedule) {
  const int pp_ranks = static_cast<int>(schedule.pp_ranks.size());
  if (pp_ranks == 0 || schedule.microbatches < 1 || schedule.pp_rank_of_stage.empty()) {
    return ScheduleDefect{
        0, "the schedule is empty (it needs at least one pp_rank, stage and microbatch)"};
  }
  if (schedule.chunk_of_stage.size() != schedule.pp_rank_of_stage.size()) {
    return ScheduleDefect{
        0, fmt::format("{} stages have a pp_rank, but {} have a chunk (give both)",
                       schedule.pp_rank_of_stage.size(), schedule.chunk_of_stage.size())};
  }
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int pp_rank = schedule.pp_rank_of_stage[static_cast<std::size_t>(stage)];
    if (pp_rank < 0 || pp_rank >= pp_ranks) {
      return ScheduleDefect{0, fmt::format("stage {} is on pp_rank {} (expected 0 to {})", stage,
                                           pp_rank, pp_ranks - 1)};
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindInstructionDefect(const Schedule& schedule,
                                                 const Instruction& instruction, int pp_rank) {
  if (!IsComputation(instruction.kind)) {
    return fmt::format("a schedule has no fixed instruction such as {} (leave it out)",
                       Describe(instruction));
  }
  if (instruction.stage < 0 || instruction.stage >= schedule.stages()) {
    return fmt::format("{}: no such stage (expected 0 to {})", Describe(instruction),
                       schedule.stages() - 1);
  }
  if (instruction.microbatch < 0 || instruction.microbatch >= schedule.microbatches) {
    return fmt::format("{}: no such microbatch (expected 0 to {})", Describe(instruction),
                       schedule.microbatches - 1);
  }
  const int home = schedule.pp_rank_of_stage[static_cast<std::size_t>(instruction.stage)];
  if (home != pp_rank) {
    return fmt::format("{}: the stage is on pp_rank {} (move the instruction there)",
                       Describe(instruction), home);
  }
  return std::nullopt;
}

// Checks `kinds`, the instructions that a stage runs for one microbatch.
std::optional<std::string> FindKindsDefect(Kinds kinds, int stage, int microbatch) {
  auto missing = [&](InstructionKind kind) {
    return fmt::format("{} is missing (every stage runs every microbatch)",
                       Describe(Instruction{kind, stage, microbatch}));
  };
  if (!(kinds & kForward)) return missing(InstructionKind::kForward);
  if (kinds & kBackward) {
    if (!(kinds & (kInput | kWeight))) return std::nullopt;
    return fmt::format(
        "{} appears together with its own dgrad or wgrad (keep the full backward, or both parts)",
        Describe(Instruction{InstructionKind::kBackward, stage, microbatch}));
  }
  if (!(kinds & (kInput | kWeight))) return missing(InstructionKind::kBackward);
  if (!(kinds & kInput)) return missing(InstructionKind::kBackwardInput);
  if (!(kinds & kWeight)) return missing(InstructionKind::kBackwardWeight);
  return std::nullopt;
}

}  // namespace

std::span<const std::string_view> ScheduleNames() { return kNames; }

Result<Schedule> GenerateSchedule(const ScheduleSpec& spec) {
  const auto generator =
      std::find_if(kGenerators.begin(), kGenerators.end(),
                   [&](const Generator& candidate) { return candidate.name == spec.name; });
  if (generator == kGenerators.end()) {
    return Fail("unknown schedule {} ({})", Excerpt(spec.name), DidYouMean(spec.name, kNames));
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

Result<Schedule> GenerateWarmupSchedule(int microbatches, std::span<const int> in_flight) {
  if (microbatches < 1)
    return Fail("a schedule of {} microbatches (give at least 1)", microbatches);
  if (in_flight.empty()) return Fail("a schedule without pp_ranks (give one number for each)");
  Schedule schedule;
  schedule.name = "1f1b-warmup";
  schedule.microbatches = microbatches;
  int before = microbatches;
  for (int pp_rank = 0; pp_rank < static_cast<int>(in_flight.size()); ++pp_rank) {
    const int given = in_flight[static_cast<std::size_t>(pp_rank)];
    if (given < 1) {
      return Fail("pp_rank {}: {} microbatches in flight (give at least 1)", pp_rank, given);
    }
    const int warmup = std::min(given, microbatches);
    if (warmup > before) {
      return Fail(
          "pp_rank {}: {} microbatches in flight, but pp_rank {} has only {} (a pp_rank needs at "
          "least as many as the next one, or the schedule deadlocks)",
          pp_rank, given, pp_rank - 1, before);
    }
    before = warmup;
    RankOrder order({pp_rank});
    for (int i = 0; i < warmup; ++i) order.Forward(0);
    for (int i = 0; i < microbatches; ++i) {
      order.Backward(0);
      if (warmup + i < microbatches) order.Forward(0);
    }
    schedule.pp_ranks.push_back(std::move(order).Take());
    schedule.pp_rank_of_stage.push_back(pp_rank);
    schedule.chunk_of_stage.push_back(0);
  }
  return schedule;
}

std::string Describe(const Instruction& instruction) {
  return fmt::format("{} of microbatch {} (stage {})", Name(instruction.kind),
                     instruction.microbatch, instruction.stage);
}

std::optional<ScheduleDefect> FindDefect(const Schedule& schedule) {
  if (auto defect = FindShapeDefect(schedule)) return defect;

  std::size_t instructions = 0;
  for (const std::vector<Instruction>& pp_rank : schedule.pp_ranks) instructions += pp_rank.size();
  // Suppose that there are more pairs (stage, microbatch) than instructions. Then at least one of
  // the first instructions + 1 pairs has no instruction. So it is enough to check these pairs, and
  // large numbers in a file cannot exhaust the memory.
  const auto microbatches = static_cast<std::size_t>(schedule.microbatches);
  std::vector<Kinds> kinds_of_pair(
      std::min(schedule.pp_rank_of_stage.size() * microbatches, instructions + 1));
  for (int pp_rank = 0; pp_rank < static_cast<int>(schedule.pp_ranks.size()); ++pp_rank) {
    for (const Instruction& instruction : schedule.pp_ranks[static_cast<std::size_t>(pp_rank)]) {
      if (auto defect = FindInstructionDefect(schedule, instruction, pp_rank)) {
        return ScheduleDefect{pp_rank, *std::move(defect)};
      }
      const std::size_t pair = static_cast<std::size_t>(instruction.stage) * microbatches +
                               static_cast<std::size_t>(instruction.microbatch);
      if (pair >= kinds_of_pair.size()) continue;
      Kinds& kinds = kinds_of_pair[pair];
      if (kinds & Bit(instruction.kind)) {
        return ScheduleDefect{pp_rank,
                              fmt::format("{} appears twice (remove one)", Describe(instruction))};
      }
      kinds = static_cast<Kinds>(kinds | Bit(instruction.kind));
    }
  }
  for (std::size_t pair = 0; pair < kinds_of_pair.size(); ++pair) {
    const std::size_t stage = pair / microbatches;
    if (auto defect = FindKindsDefect(kinds_of_pair[pair], static_cast<int>(stage),
                                      static_cast<int>(pair % microbatches))) {
      return ScheduleDefect{schedule.pp_rank_of_stage[stage], *std::move(defect)};
    }
  }
  return std::nullopt;
}

std::vector<std::int64_t> PeakActivations(const Schedule& schedule,
                                          std::span<const std::int64_t> size_of_stage,
                                          std::span<const std::int64_t> kept_of_stage) {
  std::vector<std::int64_t> peaks;
  for (const std::vector<Instruction>& order : schedule.pp_ranks) {
    std::set<std::pair<int, int>> recomputed;  // (stage, microbatch)
    for (const Instruction& instruction : order) {
      if (!kept_of_stage.empty() && instruction.kind == InstructionKind::kRecompute) {
        recomputed.emplace(instruction.stage, instruction.microbatch);
      }
    }
    std::int64_t held = 0;
    std::int64_t peak = 0;
    for (const Instruction& instruction : order) {
      const auto stage = static_cast<std::size_t>(instruction.stage);
      const bool keeps_part = recomputed.contains({instruction.stage, instruction.microbatch});
      const std::int64_t kept = keeps_part ? kept_of_stage[stage] : size_of_stage[stage];
      if (instruction.kind == InstructionKind::kForward) held += kept;
      if (instruction.kind == InstructionKind::kRecompute) held += size_of_stage[stage] - kept;
      peak = std::max(peak, held);
      if (instruction.kind == InstructionKind::kBackward ||
          instruction.kind == InstructionKind::kBackwardWeight) {
        held -= size_of_stage[stage];
      }
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::vector<std::int64_t> PeakInFlight(const Schedule& schedule) {
  return PeakActivations(schedule, std::vector<std::int64_t>(schedule.pp_rank_of_stage.size(), 1));
}

}  // namespace perseus::schedule
