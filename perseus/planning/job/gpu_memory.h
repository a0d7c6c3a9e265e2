// The memory that a schedule may use, from the settings, the job file and the profile.
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

// The memory of one GPU, as given by the user. A value that was not given is empty.
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

// Combines the given values with the profile: a value that was not given comes from the profile. If
// the profile does not have it either, the model counts as 0 bytes, and `source` says so. Fails
// (kInput) in these cases: the counts of numbers do not match the profile; a stage keeps more
// activations for a recompute than it has; something is kept for a recompute but the profile has no
// recompute; the memory of a GPU is given but not the activations; the profile has needed bytes for
// only some stages; the model leaves no memory.
Result<GpuMemory> MemoryOf(
    const MemorySettings& given, const profile::Profile& profile,
    const std::optional<profile::StageMemory>& profiled,
    schedule_search::Placement placement = schedule_search::Placement::kLoop);

// [stage] The bytes of activations of one microbatch, from MemorySettings::activation_mib. Fails
// (kInput) if it has neither one number nor one for each stage.
Result<std::vector<std::int64_t>> GivenActivations(const std::vector<double>& activation_mib,
                                                   int stages);

// The same from the profile, for the stages of the schedule. Empty if the profile lacks any.
std::vector<std::int64_t> ActivationsOf(const profile::Profile& profile,
                                        const schedule::Schedule& schedule);

}  // namespace perseus::job
