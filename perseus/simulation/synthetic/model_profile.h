// Profiles of published architectures: a model of the zoo (model_zoo.h), cut into stages
// (layer_partition.h), on a modelled GPU (gpu_roofline.h). No measurement, no noise: the same
// workload gives the same profile everywhere, rounded to nanoseconds and microjoules.
//
// docs/reproduction.md holds the savings that come of such profiles beside the measured ones, and
// says how far to trust them: for comparing workloads, stages and methods, not for planning a job
// that could be measured.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/simulation/synthetic/chunk_placement.h"
#include "perseus/simulation/synthetic/gpu_roofline.h"
#include "perseus/simulation/synthetic/model_zoo.h"

namespace perseus::synthetic {

// What stages have alike unless boundaries say where each begins.
enum class EvenPartition {
  kLayers,  // UniformBoundaries
  kBlocks,  // UniformBlockBoundaries: embeddings and head come on top.
};

struct ModelProfileSpec {
  ModelWorkload workload;
  GpuRoofline gpu;
  int stages = 8;
  int chunks = 1;
  ChunkPlacement placement = ChunkPlacement::kLoop;
  // Where the model is cut, in the model's order: stages * chunks + 1. Empty: evenly.
  std::vector<int> boundaries = {};
  EvenPartition partition = EvenPartition::kLayers;
  std::vector<InstructionKind> kinds = {InstructionKind::kForward, InstructionKind::kBackward};
  // The backward pass first runs the forward pass of its blocks again. (With the kind `recompute`
  // the schedule does, and this stays off.)
  bool recomputes_activations = false;
};

// One option for each clock from the highest down to half of it; below, time and energy both grow.
// Fails for what LayersOf and CheckBoundaries refuse, for more parts than layers, for kinds that no
// clock changes or that are there twice, and for a power limit that is not above blocking power.
Result<profile::Profile> SynthesizeModelProfile(const ModelProfileSpec& spec);

}  // namespace perseus::synthetic
