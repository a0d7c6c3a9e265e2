#include "perseus/planning/profile/profile_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/base/wording.h"

namespace perseus::profile {
namespace {

constexpr Wording kStageWording{"stage", "stage,instruction,frequency,time,energy"};
constexpr Wording kLayerWording{"layer", "layer,instruction,frequency,time,energy"};
// The header's names are compared with each other, which takes quadratic time.
constexpr std::size_t kMostColumns = 256;

// Other names of columns, and the seconds of a unit of time.
struct OtherName {
  std::string_view name;
  std::string_view column;
  double seconds = 1;
};
constexpr OtherName kOtherNames[] = {
    {"time_s", "time"},         {"time_ms", "time", 1e-3},      {"time_us", "time", 1e-6},
    {"energy_j", "energy"},     {"frequency_mhz", "frequency"}, {"freq_mhz", "frequency"},
    {"clock_mhz", "frequency"}, {"pass", "instruction"},
};

// What other tools call an instruction, in lower case. The single letters are those of
// torch.distributed.pipelining.
constexpr std::pair<std::string_view, InstructionKind> kOtherKindNames[] = {
    {"f", InstructionKind::kForward},        {"fwd", InstructionKind::kForward},
    {"b", InstructionKind::kBackward},       {"bwd", InstructionKind::kBackward},
    {"i", InstructionKind::kBackwardInput},  {"dgrad", InstructionKind::kBackwardInput},
    {"w", InstructionKind::kBackwardWeight}, {"wgrad", InstructionKind::kBackwardWeight}};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// The name in lower case. A unit in parentheses becomes a suffix: "Clock (MHz)" is clock_mhz.
std::string PlainName(std::string_view name) {
  std::string plain = Lower(name);
  const std::size_t unit = plain.find(" (");
  if (unit == plain.npos || !plain.ends_with(')')) return plain;
  plain.pop_back();
  return plain.replace(unit, 2, "_");
}

std::optional<std::size_t>* KnownColumn(Columns& columns, std::string_view name, ProfileRows rows) {
  if (name == WordingOf(rows).part) return &columns.stage;
  if (name == "instruction") return &columns.instruction;
  if (name == "frequency") return &columns.frequency;
  if (name == "time") return &columns.time;
  if (name == "energy") return &columns.energy;
  if (name == "rank") return &columns.rank;
  if (name == "dp_rank") return &columns.dp_rank;
  if (name == "tp_rank") return &columns.tp_rank;
  if (rows == ProfileRows::kLayers) return nullptr;
  if (name == "chunk") return &columns.chunk;
  if (name == "pp_rank") return &columns.pp_rank;
  if (name == "samples") return &columns.samples;
  if (name == "time_ci") return &columns.time_ci;
  if (name == "energy_ci") return &columns.energy_ci;
  if (name == kNoise) return &columns.noise;
  if (name == kCommonNoise) return &columns.common_noise;
  if (name == kActivationBytes) return &columns.activation_bytes;
  if (name == kModelBytes) return &columns.model_bytes;
  if (name == kMemorySource) return &columns.memory_source;
  if (name == kBlockingPower) return &columns.blocking_power;
  return nullptr;
}

// Assigns the column to the quantity of its name. Returns false if no quantity has this name.
Result<bool> Assign(Columns& columns, std::string_view name, std::size_t place, ProfileRows rows,
                    const CsvReader& reader) {
  std::string column = PlainName(name);
  double seconds = 1;
  for (const OtherName& other : kOtherNames) {
    if (other.name != column) continue;
    column = other.column;
    seconds = other.seconds;
  }
  std::optional<std::size_t>* const known = KnownColumn(columns, column, rows);
  if (known == nullptr) return false;
  if (*known) {
    return Fail(reader.Where(), "columns {} and {} mean the same (keep one of them)",
                Excerpt(reader.fields()[**known]), Excerpt(name));
  }
  *known = place;
  if (column == "time") columns.seconds_per_time = seconds;
  return true;
}

// Returns the separator of the names in a header that has only one field, or an empty text.
std::string_view OtherSeparator(const CsvReader& reader, std::string_view first_column) {
  if (reader.fields().size() != 1) return "";
  const std::string_view field = reader.fields().front();
  const std::size_t place = field.find_first_of("| ");
  if (place == std::string_view::npos || !field.starts_with(first_column)) return "";
  return field[place] == ' ' ? "spaces" : "\"|\"";
}

// Asks whether a missing column is there with nearly its name, such as time_min, freq or Clock.
// Empty if no column is similar.
std::string QuestionAboutMissing(std::string_view name, const Columns& columns) {
  constexpr std::size_t kLeastBeginning = 3;
  const std::vector<std::string_view> others(columns.other_knob_names.begin(),
                                             columns.other_knob_names.end());
  std::string_view similar;
  for (const std::string_view other : others) {
    const std::string plain = PlainName(other);
    const auto is_similar_to = [&plain](std::string_view known) {
      return plain.starts_with(known) ||
             (plain.size() >= kLeastBeginning && known.starts_with(plain));
    };
    const bool begins_so =
        is_similar_to(name) || std::ranges::any_of(kOtherNames, [&](const OtherName& known) {
          return known.column == name && is_similar_to(known.name);
        });
    if (begins_so && (similar.empty() || other.size() < similar.size())) similar = other;
  }
  if (similar.empty()) similar = NearestName(name, others);
  if (similar.empty()) return "";
  const std::string_view unit = name == "time"        ? ", in seconds"
                                : name == "energy"    ? ", in joules of one GPU"
                                : name == "frequency" ? ", in MHz"
                                                      : "";
  return fmt::format("is it {}? rename that{}", Excerpt(similar), unit);
}

}  // namespace

Wording WordingOf(ProfileRows rows) {
  return rows == ProfileRows::kLayers ? kLayerWording : kStageWording;
}

std::optional<InstructionKind> FindKind(std::string_view field) {
  if (const auto kind = ParseInstructionKind(field)) return kind;
  const std::string name = Lower(field);
  for (const auto& [other, kind] : kOtherKindNames) {
    if (name == other) return kind;
  }
  return ParseInstructionKind(name);
}

Result<Columns> ReadHeader(const CsvReader& reader, ProfileRows rows) {
  const Place where = reader.Where();
  const Wording wording = WordingOf(rows);
  if (reader.fields().size() > kMostColumns) {
    return Fail(where, "{} columns are too many (expected {}, and at most {} in all)",
                reader.fields().size(), wording.header, kMostColumns);
  }
  if (const std::string_view separator = OtherSeparator(reader, wording.part); !separator.empty()) {
    return Fail(where, "{} separate the fields (use commas; expected the header {}, in any order)",
                separator, wording.header);
  }
  Columns columns;
  for (const std::string_view name : reader.fields()) {
    const std::size_t place = columns.count++;
    if (!IsPrintable(name)) {
      return Fail(where, "{} is not text (expected CSV in UTF-8, beginning with {})", Excerpt(name),
                  wording.header);
    }
    if (name.empty()) {
      return Fail(where, "column {} has no name (name or remove it; expected {})", place + 1,
                  wording.header);
    }
    const std::span<const std::string_view> before = reader.fields().first(place);
    if (std::ranges::find(before, name) != before.end()) {
      return Fail(where, "column {} appears twice (keep one of them)", Excerpt(name));
    }
    PERSEUS_ASSIGN_OR_RETURN(const bool is_known, Assign(columns, name, place, rows, reader));
    if (is_known) continue;
    if (rows == ProfileRows::kLayers) {
      return Fail(where, "a profile of layers has no column {} (remove it; expected the header {})",
                  Excerpt(name), wording.header);
    }
    columns.other_knobs.push_back(place);
    columns.other_knob_names.emplace_back(name);
  }
  if (!columns.stage && columns.pp_rank) columns.stage = std::exchange(columns.pp_rank, {});
  const std::array<std::pair<bool, std::string_view>, 5> required = {
      {{columns.stage.has_value(), wording.part},
       {columns.instruction.has_value(), "instruction"},
       {columns.frequency.has_value(), "frequency"},
       {columns.time.has_value(), "time"},
       {columns.energy.has_value(), "energy"}}};
  std::vector<std::string> missing;
  std::vector<std::string> remedies;
  for (const auto& [is_there, name] : required) {
    if (is_there) continue;
    if (name == "stage" && std::ranges::find(reader.fields(), "layer") != reader.fields().end()) {
      return Fail(where,
                  "column \"stage\" is missing, and the rows are layers (perseus partition makes "
                  "stages of layers)");
    }
    missing.push_back(Excerpt(name));
    if (std::string question = QuestionAboutMissing(name, columns); !question.empty()) {
      remedies.push_back(std::move(question));
    }
  }
  if (missing.empty()) return columns;
  remedies.push_back(fmt::format("expected the header {}, in any order", wording.header));
  const std::string remedy = fmt::format("{}", fmt::join(remedies, "; "));
  if (missing.size() == 1) return Fail(where, "column {} is missing ({})", missing[0], remedy);
  return Fail(where, "columns {} are missing ({})", fmt::join(missing, ", "), remedy);
}

}  // namespace perseus::profile
