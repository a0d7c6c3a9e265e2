// Profiles of published architectures: a model of the zoo (model_zoo.h), cut into stages, on a
// modeled GPU (gpu_roofline.h). Nothing is measured, and there is no noise. The same workload gives
// the same profile on every machine, because results are rounded to nanoseconds and microjoules.
//
// docs/reproduction.md compares the savings of such profiles with the savings of measured profiles,
// and states how reliable they are. Use them to compare workloads, stages and methods. If a job can
// be measured, measure it before you plan it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/profile/stage_memory.h"
#include "perseus/simulation/synthetic/gpu_roofline.h"
#include "perseus/simulation/synthetic/model_zoo.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::synthetic {

// The parts that are divided evenly among the stages if no boundaries are given.
enum class EvenPartition {
  kLayers,  // UniformBoundaries
  kBlocks,  // UniformBlockBoundaries: embeddings and head are extra layers of the outer stages.
};

struct ModelProfileSpec {
  ModelWorkload workload;
  GpuRoofline gpu;
  int pp_ranks = 8;
  int chunks = 1;
  ChunkPlacement placement = ChunkPlacement::kLoop;
  // Where to cut the model: pp_ranks * chunks + 1 layer numbers. If empty, it is cut evenly.
  std::vector<int> boundaries = {};
  EvenPartition partition = EvenPartition::kLayers;
  std::vector<InstructionKind> kinds = {InstructionKind::kForward, InstructionKind::kBackward};
  // If true, the backward pass first runs the forward pass of its blocks again. With the kind
  // `recompute`, the schedule does this, so this value stays false.
  bool recomputes_activations = false;
};

// Makes one option for each clock from the highest down to half of it. At lower clocks, time and
// energy both grow. Fails (kInput) in the cases in which LayersOf and CheckBoundaries fail. Also
// fails for more parts than layers, for a kind that is no computation or is given twice, and if the
// power limit is not above the blocking power.
Result<profile::Profile> SynthesizeModelProfile(const ModelProfileSpec& spec);

// Returns the memory of each stage on one GPU. The activations are the data that the layers keep
// (model_zoo.h). With recomputed activations, blocks keep only their inputs. A parameter takes 16
// bytes: weight and gradient of 2 bytes each, and 12 bytes for Adam with mixed precision
// (Rajbhandari et al., arXiv 1910.02054, section 3.1). Tensor parallelism divides the parameters
// among GPUs. The result does not include communication buffers, temporary memory of kernels, and
// memory that the allocator wastes. Fails as SynthesizeModelProfile does.
Result<profile::StageMemory> ModelMemory(const ModelProfileSpec& spec);

// The cuts of a pipeline: the layers of each part (a stage, or a chunk of a stage).
//
// Part p holds the layers from boundaries[p] to boundaries[p + 1] - 1. The first boundary is 0, the
// last one is the number of layers, and they increase, so no part is empty.
//
// Fails (kInput) unless the boundaries cut `layers` layers into `parts` parts. The message says
// what is wrong and what was expected.
Result<void> CheckBoundaries(std::span<const int> boundaries, int layers, int parts);

// Gives each part the same number of layers. If there is a remainder, each of the first parts gets
// one more layer. Fails (kInput) if there are fewer layers than parts.
Result<std::vector<int>> UniformBoundaries(int layers, int parts);

// Gives each part the same number of blocks, as UniformBoundaries does with layers. The first part
// also has the layers before the first block, and the last part has the layers after the last
// block. Fails (kInput) if there are fewer blocks than parts.
Result<std::vector<int>> UniformBlockBoundaries(std::span<const LayerWork> layers, int parts);

}  // namespace perseus::synthetic
