#include "perseus/planning/job/gpu_memory.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

namespace perseus::job {
namespace {

using schedule_search::kBytesPerGib;

constexpr double kBytesPerMib = 1 << 20;

// One value for each of `count`, from one for all or one for each.
Result<std::vector<std::int64_t>> ForEach(const std::vector<double>& given, std::size_t count,
                                          double bytes_of_one, std::string_view flag,
                                          std::string_view noun) {
  if (given.size() != 1 && given.size() != count) {
    return Fail("{} has {} numbers for {} {} (give one number, or one for each)", flag,
                given.size(), count, noun);
  }
  std::vector<std::int64_t> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(std::llround(given[given.size() == 1 ? 0 : i] * bytes_of_one));
  }
  return bytes;
}

// The pp_rank that holds a stage of the schedule as the given chunk.
int StageOf(int pp_rank, int chunk, int pp_ranks, schedule_search::Placement placement) {
  const bool is_on_way_up = placement == schedule_search::Placement::kV && chunk % 2 == 1;
  return chunk * pp_ranks + (is_on_way_up ? pp_ranks - 1 - pp_rank : pp_rank);
}

// The activations of each stage of the schedule. Empty if the profile lacks those of any stage.
std::vector<std::int64_t> ProfiledActivations(const profile::Profile& profile,
                                              const profile::StageMemory& profiled,
                                              schedule_search::Placement placement) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(profile.stages() * profile.chunks()));
  for (int chunk = 0; chunk < profile.chunks(); ++chunk) {
    for (int pp_rank = 0; pp_rank < profile.stages(); ++pp_rank) {
      const profile::StageMemory::Part* part = profiled.Find(pp_rank, chunk);
      if (part == nullptr || !part->activation_bytes) return {};
      const int stage = StageOf(pp_rank, chunk, profile.stages(), placement);
      bytes[static_cast<std::size_t>(stage)] = *part->activation_bytes;
    }
  }
  return bytes;
}

// What the chunks of each pp_rank take. Empty if the profile lacks that of any stage.
std::vector<std::int64_t> ProfiledModels(const profile::Profile& profile,
                                         const profile::StageMemory& profiled) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(profile.stages()), 0);
  for (int chunk = 0; chunk < profile.chunks(); ++chunk) {
    for (int pp_rank = 0; pp_rank < profile.stages(); ++pp_rank) {
      const profile::StageMemory::Part* part = profiled.Find(pp_rank, chunk);
      if (part == nullptr || !part->model_bytes) return {};
      bytes[static_cast<std::size_t>(pp_rank)] += *part->model_bytes;
    }
  }
  return bytes;
}

struct Known {
  std::vector<std::int64_t> bytes;
  std::string_view source;  // "given", "measured", "modeled".
};

// What each stage keeps until a recompute. Empty if that is not given.
Result<std::vector<std::int64_t>> KeptOf(const MemoryFlags& given, const profile::Profile& profile,
                                         const std::vector<std::int64_t>& activations) {
  if (given.kept_mib.empty()) return std::vector<std::int64_t>();
  if (profile.Find(0, 0, InstructionKind::kRecompute) == nullptr) {
    return Fail(
        "--kept-memory is for recomputation, but {} has no recompute instructions (remove it, or "
        "profile recomputes)",
        profile.name());
  }
  PERSEUS_ASSIGN_OR_RETURN(auto kept, ForEach(given.kept_mib, activations.size(), kBytesPerMib,
                                              "--kept-memory", "stages"));
  for (std::size_t stage = 0; stage < kept.size(); ++stage) {
    if (kept[stage] <= activations[stage]) continue;
    return Fail(
        "--kept-memory of stage {} is above the memory of its activations (it is the part "
        "that stays until a recompute)",
        stage);
  }
  return kept;
}

}  // namespace

Result<GpuMemory> MemoryOf(const MemoryFlags& given, const profile::Profile& profile,
                           const std::optional<profile::StageMemory>& profiled,
                           schedule_search::Placement placement) {
  const auto pp_ranks = static_cast<std::size_t>(profile.stages());
  const auto stages = pp_ranks * static_cast<std::size_t>(profile.chunks());
  Known activations{{}, "given"};
  Known models{{}, "given"};
  if (!given.activation_mib.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(activations.bytes, ForEach(given.activation_mib, stages, kBytesPerMib,
                                                        "--activation-memory", "stages"));
  } else if (profiled) {
    activations = {ProfiledActivations(profile, *profiled, placement),
                   profile::Name(profiled->source)};
  }
  if (!given.model_gib.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(models.bytes, ForEach(given.model_gib, pp_ranks, kBytesPerGib,
                                                   "--model-memory", "pp_ranks"));
  } else if (profiled) {
    models = {ProfiledModels(profile, *profiled), profile::Name(profiled->source)};
  }
  if (activations.bytes.empty()) {
    if (given.IsEmpty()) return GpuMemory();
    return Fail(
        "the memory of activations is missing (add --activation-memory MIB, or use a profile with "
        "the column activation_bytes)");
  }
  PERSEUS_ASSIGN_OR_RETURN(auto kept, KeptOf(given, profile, activations.bytes));
  GpuMemory memory{
      .bytes = {.activations = activations.bytes, .kept = std::move(kept), .available = {}},
      .source = fmt::format("The bytes of activations are {}.", activations.source)};
  if (!given.gpu_gib) {
    if (!given.model_gib.empty()) {
      return Fail("--model-memory needs the memory of a GPU (add --memory GIB)");
    }
    return memory;
  }
  for (std::size_t i = 0; i < pp_ranks; ++i) {
    const double model_gib =
        models.bytes.empty() ? 0 : static_cast<double>(models.bytes[i]) / kBytesPerGib;
    if (model_gib >= *given.gpu_gib) {
      return Fail(
          "the model takes {:.4g} GiB on pp_rank {}, which leaves nothing of --memory {} for "
          "activations (correct --memory or --model-memory)",
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

}  // namespace perseus::job
