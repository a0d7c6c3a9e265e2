#include "perseus/planning/job/gpu_memory.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

namespace perseus::job {
namespace {

using schedule_search::kBytesPerGib;

constexpr double kBytesPerMib = 1 << 20;

// Returns `count` values. `given` contains either one common value or one value for each.
Result<std::vector<std::int64_t>> ForEach(const std::vector<double>& given, std::size_t count,
                                          double bytes_of_one, std::string_view key,
                                          std::string_view noun) {
  if (given.size() != 1 && given.size() != count) {
    return Fail("`{}` has {} numbers for {} {} (give one number, or one for each)", key,
                given.size(), count, noun);
  }
  std::vector<std::int64_t> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(std::llround(given[given.size() == 1 ? 0 : i] * bytes_of_one));
  }
  return bytes;
}

// The stage of the schedule that is this chunk of the pp_rank.
int StageOf(int pp_rank, int chunk, int pp_ranks, schedule_search::Placement placement) {
  const bool is_on_way_up = placement == schedule_search::Placement::kV && chunk % 2 == 1;
  return chunk * pp_ranks + (is_on_way_up ? pp_ranks - 1 - pp_rank : pp_rank);
}

using ValueOfPart = std::optional<std::int64_t> profile::StageMemory::Part::*;

// Whether the profile has a value for every stage (true) or for no stage (false). Fails if it has
// only some of them.
Result<bool> HasAll(const profile::Profile& profile, const profile::StageMemory& profiled,
                    ValueOfPart value, std::string_view column, std::string_view key) {
  std::string missing;
  bool has_any = false;
  for (int chunk = 0; chunk < profile.chunks(); ++chunk) {
    for (int pp_rank = 0; pp_rank < profile.pp_ranks(); ++pp_rank) {
      const profile::StageMemory::Part* part = profiled.Find(pp_rank, chunk);
      const bool has = part != nullptr && part->*value;
      has_any = has_any || has;
      if (has || !missing.empty()) continue;
      missing = fmt::format("stage {}", pp_rank);
      if (profile.chunks() > 1) missing += fmt::format(", chunk {}", chunk);
    }
  }
  if (missing.empty()) return true;
  if (!has_any) return false;
  return Fail(InFile(profile.name()),
              "{} of {} is missing, but other stages have it (complete the column, or add `{}`)",
              column, missing, key);
}

// The activations of each stage of the schedule. Empty if the profile has none.
Result<std::vector<std::int64_t>> ProfiledActivations(const profile::Profile& profile,
                                                      const profile::StageMemory& profiled,
                                                      schedule_search::Placement placement) {
  constexpr ValueOfPart kValue = &profile::StageMemory::Part::activation_bytes;
  PERSEUS_ASSIGN_OR_RETURN(const bool has_all,
                           HasAll(profile, profiled, kValue, "activation_bytes", "activation_mib"));
  if (!has_all) return std::vector<std::int64_t>();
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(profile.pp_ranks() * profile.chunks()));
  for (int chunk = 0; chunk < profile.chunks(); ++chunk) {
    for (int pp_rank = 0; pp_rank < profile.pp_ranks(); ++pp_rank) {
      const int stage = StageOf(pp_rank, chunk, profile.pp_ranks(), placement);
      const std::int64_t activations = *(profiled.Find(pp_rank, chunk)->*kValue);
      if (activations == 0) {
        return Fail(
            InFile(profile.name()),
            "activation_bytes of stage {} is 0, so any number of microbatches would fit (give "
            "the bytes that one microbatch takes, or add `activation_mib`)",
            pp_rank);
      }
      bytes[static_cast<std::size_t>(stage)] = activations;
    }
  }
  return bytes;
}

// Returns the bytes that the chunks of each pp_rank take. Empty if the profile has none.
Result<std::vector<std::int64_t>> ProfiledModels(const profile::Profile& profile,
                                                 const profile::StageMemory& profiled) {
  constexpr ValueOfPart kValue = &profile::StageMemory::Part::model_bytes;
  PERSEUS_ASSIGN_OR_RETURN(const bool has_all,
                           HasAll(profile, profiled, kValue, "model_bytes", "model_gib"));
  if (!has_all) return std::vector<std::int64_t>();
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(profile.pp_ranks()), 0);
  for (int chunk = 0; chunk < profile.chunks(); ++chunk) {
    for (int pp_rank = 0; pp_rank < profile.pp_ranks(); ++pp_rank) {
      bytes[static_cast<std::size_t>(pp_rank)] += *(profiled.Find(pp_rank, chunk)->*kValue);
    }
  }
  return bytes;
}

struct Known {
  std::vector<std::int64_t> bytes;
  std::string_view source;  // "given", "measured", "modeled".
};

// Returns the bytes that each stage keeps until a recompute. Empty if they are not given.
Result<std::vector<std::int64_t>> KeptOf(const MemorySettings& given,
                                         const profile::Profile& profile,
                                         const std::vector<std::int64_t>& activations) {
  if (given.kept_mib.empty()) return std::vector<std::int64_t>();
  if (profile.Find(0, 0, InstructionKind::kRecompute) == nullptr) {
    return Fail(
        "`kept_mib` is for recomputation, but {} has no recompute instructions (remove it, or "
        "profile recomputes)",
        profile.name());
  }
  PERSEUS_ASSIGN_OR_RETURN(
      auto kept, ForEach(given.kept_mib, activations.size(), kBytesPerMib, "kept_mib", "stages"));
  for (std::size_t stage = 0; stage < kept.size(); ++stage) {
    if (kept[stage] <= activations[stage]) continue;
    return Fail(
        "`kept_mib` of stage {} is above the memory of its activations (it is the part "
        "that stays until a recompute)",
        stage);
  }
  return kept;
}

}  // namespace

Result<GpuMemory> MemoryOf(const MemorySettings& given, const profile::Profile& profile,
                           const std::optional<profile::StageMemory>& profiled,
                           schedule_search::Placement placement) {
  const auto pp_ranks = static_cast<std::size_t>(profile.pp_ranks());
  const auto stages = pp_ranks * static_cast<std::size_t>(profile.chunks());
  Known activations{{}, "given"};
  Known models{{}, "given"};
  if (!given.activation_mib.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(activations.bytes, ForEach(given.activation_mib, stages, kBytesPerMib,
                                                        "activation_mib", "stages"));
  } else if (profiled) {
    activations.source = profile::Name(profiled->source);
    auto bytes = ProfiledActivations(profile, *profiled, placement);
    if (!bytes && given.IsEmpty()) return GpuMemory();  // No value requires bytes.
    PERSEUS_ASSIGN_OR_RETURN(activations.bytes, std::move(bytes));
  }
  if (!given.model_gib.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(
        models.bytes, ForEach(given.model_gib, pp_ranks, kBytesPerGib, "model_gib", "pp_ranks"));
  } else if (profiled && given.gpu_gib) {
    models.source = profile::Name(profiled->source);
    PERSEUS_ASSIGN_OR_RETURN(models.bytes, ProfiledModels(profile, *profiled));
  }
  if (activations.bytes.empty()) {
    if (given.IsEmpty()) return GpuMemory();
    return Fail(
        "the memory of activations is missing (add `activation_mib`, or use a profile with "
        "the column activation_bytes)");
  }
  PERSEUS_ASSIGN_OR_RETURN(auto kept, KeptOf(given, profile, activations.bytes));
  GpuMemory memory{
      .bytes = {.activations = activations.bytes, .kept = std::move(kept), .available = {}},
      .source = fmt::format("The bytes of activations are {}.", activations.source)};
  if (!given.gpu_gib) {
    if (!given.model_gib.empty()) {
      return Fail("`model_gib` needs the memory of a GPU (add `gpu_gib`)");
    }
    return memory;
  }
  for (std::size_t i = 0; i < pp_ranks; ++i) {
    const double model_gib =
        models.bytes.empty() ? 0 : static_cast<double>(models.bytes[i]) / kBytesPerGib;
    if (model_gib >= *given.gpu_gib) {
      return Fail(
          "the model takes {:.4g} GiB on pp_rank {}, which leaves nothing of `gpu_gib = {}` for "
          "activations (correct `gpu_gib` or `model_gib`)",
          model_gib, i, *given.gpu_gib);
    }
    memory.bytes.available.push_back(
        static_cast<std::int64_t>((*given.gpu_gib - model_gib) * kBytesPerGib));
  }
  memory.source +=
      models.bytes.empty()
          ? " Weights, gradients and optimizer states count as 0 bytes."
          : fmt::format(" Those of weights, gradients and optimizer states are {}.", models.source);
  return memory;
}

Result<std::vector<std::int64_t>> GivenActivations(const std::vector<double>& activation_mib,
                                                   int stages) {
  return ForEach(activation_mib, static_cast<std::size_t>(stages), kBytesPerMib, "activation_mib",
                 "stages");
}

std::vector<std::int64_t> ActivationsOf(const profile::Profile& profile,
                                        const schedule::Schedule& schedule) {
  std::vector<std::int64_t> bytes;
  if (!profile.memory()) return bytes;
  const bool has_stages_of_model = profile.chunks() == 1 && profile.pp_ranks() == schedule.stages();
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const auto place = static_cast<std::size_t>(stage);
    const profile::StageMemory::Part* part =
        has_stages_of_model ? profile.memory()->Find(stage, 0)
                            : profile.memory()->Find(schedule.pp_rank_of_stage[place],
                                                     schedule.chunk_of_stage[place]);
    if (part == nullptr || !part->activation_bytes) return {};
    bytes.push_back(*part->activation_bytes);
  }
  return bytes;
}

}  // namespace perseus::job
