// The memory that a stage takes on a GPU, as a profile states it.
//
// A profile may have three more columns:
//   activation_bytes   what the activations of one microbatch take on one GPU, from its forward to
//                      its backward
//   model_bytes        what weights, gradients and optimizer states take on one GPU
//   memory_source      "measured" or "modeled"
// `perseus tune` measures these values, and `perseus synth --model` computes them from a model. The
// values of a stage come from its rows. If rows of a stage differ (GPUs that share it are never
// exactly alike), the greatest value counts. An empty field means that the value is unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perseus::profile {

class Profile;

enum class MemorySource { kMeasured, kModeled };
std::string_view Name(MemorySource source);  // "measured", "modeled".

struct StageMemory {
  struct Part {
    int pp_rank = 0;
    int chunk = 0;
    std::optional<std::int64_t> activation_bytes = {};
    std::optional<std::int64_t> model_bytes = {};
    friend bool operator==(const Part&, const Part&) = default;
  };
  std::vector<Part> parts;  // Sorted by pp_rank and chunk, each at most once.
  MemorySource source = MemorySource::kMeasured;
  friend bool operator==(const StageMemory&, const StageMemory&) = default;

  const Part* Find(int pp_rank, int chunk) const;
};

inline constexpr double kMostMemoryBytes = 1e15;

// Returns `rows` with the three columns added. Requires that FormatProfile made `rows` from
// `profile`.
std::string AddMemory(const Profile& profile, const std::string& rows, const StageMemory& memory);

}  // namespace perseus::profile
