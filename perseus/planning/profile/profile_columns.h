// The header of a profile's CSV: which column has which quantity.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/planning/profile/csv_reader.h"
#include "perseus/planning/profile/profile.h"

namespace perseus::profile {

// The words that differ between the rows of stages and the rows of layers.
struct Wording {
  std::string_view part;  // The name of the column, and the word before the number in messages.
  std::string_view header;
};
Wording WordingOf(ProfileRows rows);

inline constexpr std::string_view kNoise = "noise";
inline constexpr std::string_view kCommonNoise = "common_noise";
inline constexpr std::string_view kActivationBytes = "activation_bytes";
inline constexpr std::string_view kModelBytes = "model_bytes";
inline constexpr std::string_view kMemorySource = "memory_source";
inline constexpr std::string_view kBlockingPower = "blocking_power";

// The index of each column in a row.
struct Columns {
  std::optional<std::size_t> stage;
  std::optional<std::size_t> pp_rank;
  std::optional<std::size_t> chunk;
  std::optional<std::size_t> instruction;
  std::optional<std::size_t> frequency;
  std::optional<std::size_t> time;
  std::optional<std::size_t> energy;
  std::optional<std::size_t> rank;  // The rank that measured: checked to be a number, and not kept.
  std::optional<std::size_t> dp_rank;
  std::optional<std::size_t> tp_rank;
  std::optional<std::size_t> samples;
  std::optional<std::size_t> time_ci;
  std::optional<std::size_t> energy_ci;
  std::optional<std::size_t> noise;
  std::optional<std::size_t> common_noise;
  std::optional<std::size_t> activation_bytes;
  std::optional<std::size_t> model_bytes;
  std::optional<std::size_t> memory_source;
  std::optional<std::size_t> blocking_power;
  std::vector<std::size_t> other_knobs;
  std::vector<std::string> other_knob_names;
  std::size_t count = 0;
  double seconds_per_time = 1;  // 1e-3 for a column time_ms.
};

// Reads the header, which is the current record of the reader. Case does not matter in the names of
// known columns, and some have other names, such as `time_ms` for milliseconds or `pass` for
// `instruction`.
Result<Columns> ReadHeader(const CsvReader& reader, ProfileRows rows);

// Returns the kind by its name, in any case, or by a name that other tools use ("F", "bwd").
std::optional<InstructionKind> FindKind(std::string_view field);

}  // namespace perseus::profile
