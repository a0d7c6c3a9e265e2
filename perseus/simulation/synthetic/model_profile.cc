#include "perseus/simulation/synthetic/model_profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "perseus/base/units.h"

namespace perseus::synthetic {
namespace {

constexpr int kMostParts = 100'000;

void Append(const std::vector<KernelWork>& kernels, std::vector<KernelWork>& all) {
  all.insert(all.end(), kernels.begin(), kernels.end());
}

std::vector<KernelWork> KernelsOf(InstructionKind kind, std::span<const LayerWork> layers,
                                  bool recomputes_activations) {
  const bool is_forward = kind == InstructionKind::kForward || kind == InstructionKind::kRecompute;
  const bool has_input =
      kind == InstructionKind::kBackward || kind == InstructionKind::kBackwardInput;
  const bool has_weight =
      kind == InstructionKind::kBackward || kind == InstructionKind::kBackwardWeight;
  std::vector<KernelWork> kernels;
  for (const LayerWork& layer : layers) {
    if (is_forward || (recomputes_activations && has_input && layer.is_block)) {
      Append(layer.forward, kernels);
    }
    if (has_input) Append(layer.backward_input, kernels);
    if (has_weight) Append(layer.backward_weight, kernels);
  }
  return kernels;
}

std::vector<profile::Option> Sweep(const GpuRoofline& gpu, const std::vector<KernelWork>& kernels) {
  const int lowest_mhz = std::max(gpu.lowest_frequency_mhz, gpu.highest_frequency_mhz / 2);
  std::vector<profile::Option> options;
  for (int frequency_mhz = gpu.highest_frequency_mhz; frequency_mhz >= lowest_mhz;
       frequency_mhz -= gpu.frequency_step_mhz) {
    const TimeAndEnergy run = gpu.Run(kernels, frequency_mhz);
    options.push_back({frequency_mhz,
                       {},
                       std::max<Nanoseconds>(1, ToNanoseconds(run.time_s)),
                       RoundToMicrojoules(run.energy_j),
                       1});
  }
  return options;
}

Result<std::vector<int>> BoundariesOf(const ModelProfileSpec& spec,
                                      std::span<const LayerWork> layers) {
  const int count = static_cast<int>(layers.size());
  const int parts = spec.pp_ranks * spec.chunks;
  if (spec.boundaries.empty()) {
    return spec.partition == EvenPartition::kBlocks ? UniformBlockBoundaries(layers, parts)
                                                    : UniformBoundaries(count, parts);
  }
  PERSEUS_RETURN_IF_ERROR(CheckBoundaries(spec.boundaries, count, parts));
  return spec.boundaries;
}

// The layers of each stage.
struct CutModel {
  std::vector<LayerWork> layers;
  std::vector<int> boundaries;

  std::span<const LayerWork> Held(int pp_rank, int chunk, const ModelProfileSpec& spec) const {
    const auto part =
        static_cast<std::size_t>(PartOf(pp_rank, chunk, spec.pp_ranks, spec.placement));
    return std::span(layers).subspan(
        static_cast<std::size_t>(boundaries[part]),
        static_cast<std::size_t>(boundaries[part + 1] - boundaries[part]));
  }
};

Result<CutModel> Cut(const ModelProfileSpec& spec) {
  if (spec.pp_ranks < 1 || spec.chunks < 1 || spec.pp_ranks > kMostParts / spec.chunks) {
    return Fail("model profile: {} stages of {} chunks are out of range (choose 1 to {} in total)",
                spec.pp_ranks, spec.chunks, kMostParts);
  }
  PERSEUS_ASSIGN_OR_RETURN(auto layers, LayersOf(spec.workload));
  PERSEUS_ASSIGN_OR_RETURN(auto boundaries, BoundariesOf(spec, layers));
  return CutModel{std::move(layers), std::move(boundaries)};
}

}  // namespace

Result<profile::Profile> SynthesizeModelProfile(const ModelProfileSpec& spec) {
  PERSEUS_RETURN_IF_ERROR(CheckKinds("model profile", spec.kinds));
  if (!(spec.gpu.power_limit_w > spec.gpu.blocking_power_w)) {
    return Fail(
        "model profile: the power limit of {} W is not above the {} W that {} draws while it waits "
        "(raise the limit)",
        spec.gpu.power_limit_w, spec.gpu.blocking_power_w, spec.gpu.name);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto model, Cut(spec));

  std::vector<profile::ProfileEntry> entries;
  for (int pp_rank = 0; pp_rank < spec.pp_ranks; ++pp_rank) {
    for (int chunk = 0; chunk < spec.chunks; ++chunk) {
      const auto held = model.Held(pp_rank, chunk, spec);
      for (const InstructionKind kind : spec.kinds) {
        entries.push_back({pp_rank, chunk, kind,
                           Sweep(spec.gpu, KernelsOf(kind, held, spec.recomputes_activations))});
      }
    }
  }
  return profile::Profile(
      fmt::format("model profile of {} on {}", spec.workload.model, spec.gpu.name), {},
      std::move(entries));
}

Result<profile::StageMemory> ModelMemory(const ModelProfileSpec& spec) {
  // A weight and its gradient, 2 bytes each, and Adam's copy of the weight and two moments.
  constexpr double kBytesPerParameter = 2 + 2 + 12;
  PERSEUS_ASSIGN_OR_RETURN(const auto model, Cut(spec));
  profile::StageMemory memory{.parts = {}, .source = profile::MemorySource::kModeled};
  for (int pp_rank = 0; pp_rank < spec.pp_ranks; ++pp_rank) {
    for (int chunk = 0; chunk < spec.chunks; ++chunk) {
      double activations = 0;
      double parameters = 0;
      bool has_first_layer = false;
      for (const LayerWork& layer : model.Held(pp_rank, chunk, spec)) {
        has_first_layer = has_first_layer || &layer == model.layers.data();
        const bool keeps_input = spec.recomputes_activations && layer.is_block;
        activations += keeps_input ? layer.memory.input_bytes : layer.memory.saved_bytes;
        parameters += layer.parameters;
        // The token embedding, which the head shares, is the first layer.
        if (!has_first_layer) parameters += layer.memory.shared_parameters;
      }
      memory.parts.push_back(
          {pp_rank, chunk, std::llround(activations),
           std::llround(parameters / spec.workload.tensor_parallel * kBytesPerParameter)});
    }
  }
  return memory;
}

Result<void> CheckBoundaries(std::span<const int> boundaries, int layers, int parts) {
  if (std::ssize(boundaries) != parts + 1) {
    return Fail(
        "{} layer boundaries make {} parts, but {} parts are needed (give {} boundaries: the first "
        "layer of each part, and {})",
        boundaries.size(), std::max<std::ptrdiff_t>(0, std::ssize(boundaries) - 1), parts,
        parts + 1, layers);
  }
  const auto fall = std::adjacent_find(boundaries.begin(), boundaries.end(), std::greater_equal());
  if (fall != boundaries.end()) {
    return Fail("layer boundary {} is followed by {} (each must be larger than the one before)",
                *fall, *(fall + 1));
  }
  if (boundaries.front() != 0 || boundaries.back() != layers) {
    return Fail("layer boundaries go from {} to {} (the model has {} layers: use 0 to {})",
                boundaries.front(), boundaries.back(), layers, layers);
  }
  return {};
}

Result<std::vector<int>> UniformBoundaries(int layers, int parts) {
  if (parts < 1 || layers < parts) {
    return Fail("{} layers cannot fill {} parts (choose 1 to {} for stages times chunks)", layers,
                parts, layers);
  }
  std::vector<int> boundaries = {0};
  for (int part = 0; part < parts; ++part) {
    boundaries.push_back(boundaries.back() + layers / parts + (part < layers % parts ? 1 : 0));
  }
  return boundaries;
}

Result<std::vector<int>> UniformBlockBoundaries(std::span<const LayerWork> layers, int parts) {
  const auto is_block = [](const LayerWork& layer) { return layer.is_block; };
  const auto first = std::find_if(layers.begin(), layers.end(), is_block);
  const auto before = static_cast<int>(first - layers.begin());
  const auto blocks = static_cast<int>(std::count_if(layers.begin(), layers.end(), is_block));
  auto boundaries = UniformBoundaries(blocks, parts);
  if (!boundaries) return boundaries;
  for (int& boundary : *boundaries) boundary += before;
  boundaries->front() = 0;
  boundaries->back() = static_cast<int>(layers.size());
  return boundaries;
}

}  // namespace perseus::synthetic
