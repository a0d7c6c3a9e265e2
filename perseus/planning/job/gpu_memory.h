// The memory that a schedule may use: what the settings, the job file and the profile say about it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perseus/base/number_range.h"
#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/profile/stage_memory.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::job {

inline constexpr NumberRange kActivationRange{1e-3, 1e9, "MiB"};
inline constexpr NumberRange kKeptRange{0, 1e9, "MiB"};
inline constexpr NumberRange kGpuMemoryRange{1e-3, 1e6, "GiB"};
inline constexpr NumberRange kModelMemoryRange{0, 1e6, "GiB"};

// The memory of one GPU, as the user gives it. A value that was not given is empty.
struct MemorySettings {
  std::vector<double> activation_mib;  // Per microbatch: one number, or one for each stage.
  std::optional<double> gpu_gib;
  // Weights, gradients and optimizer states: one number for all pp_ranks, or one for each.
  std::vector<double> model_gib;
  std::vector<double> kept_mib = {};  // The activations of a stage that stay until a recompute.

  bool IsEmpty() const {
    return activation_mib.empty() && kept_mib.empty() && !gpu_gib && model_gib.empty();
  }
};

struct GpuMemory {
  schedule_search::ByteMemory bytes;
  // Which numbers were measured, modeled or given: a sentence. Empty if no bytes are known.
  std::string source;
};

// Values that are not given come from the profile. Without them, the model counts as 0 bytes, which
// `source` says. Fails (kInput) if the counts of numbers do not fit the profile, if a stage keeps
// more activations for a recompute than it has, if something is kept for a recompute that the
// profile lacks, if the memory of a GPU is given but not the activations, if the profile has needed
// bytes of some stages only, or if the model leaves nothing of the memory.
Result<GpuMemory> MemoryOf(
    const MemorySettings& given, const profile::Profile& profile,
    const std::optional<profile::StageMemory>& profiled,
    schedule_search::Placement placement = schedule_search::Placement::kLoop);

}  // namespace perseus::job
