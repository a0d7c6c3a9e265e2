// Reads the CSV of a profile. The header becomes Columns, each row becomes a Measurement, and the
// averages of all rows become a Profile.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/limits.h"
#include "perseus/base/units.h"
#include "perseus/base/wording.h"
#include "perseus/planning/profile/csv_reader.h"
#include "perseus/planning/profile/option_sums.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/profile/stage_memory.h"

namespace perseus::profile {
namespace {

// The words that differ between the rows of stages and the rows of layers.
struct Wording {
  std::string_view part;  // The name of the column, and the word before the number in messages.
  std::string_view header;
};
constexpr Wording kStageWording{"stage", "stage,instruction,frequency,time,energy"};
constexpr Wording kLayerWording{"layer", "layer,instruction,frequency,time,energy"};

Wording WordingOf(ProfileRows rows) {
  return rows == ProfileRows::kLayers ? kLayerWording : kStageWording;
}

constexpr double kLeastSeconds = 0.5e-9;  // A shorter time would round to 0 ns.
constexpr int kMostSamplesOfRow = 1'000'000'000;
// The header's names are compared with each other, which takes quadratic time.
constexpr std::size_t kMostColumns = 256;

// The values that a column may have, and what an error says about them.
struct Quantity {
  std::string_view column;
  std::string_view expected;
  double least;
  double most;
};
constexpr Quantity kFrequency{"frequency", "MHz, such as 1410", 0, kHighestFrequencyMhz};
constexpr Quantity kTime{"time", "seconds, such as 0.0502", kLeastSeconds, kLongestSeconds};
constexpr Quantity kEnergy{"energy", "joules, such as 23.8", 0, kMostJoules};
constexpr Quantity kTimeInterval{
    "time_ci", "the half-width of a 95 % interval in seconds, such as 0.0001, or nothing", 0,
    kLongestSeconds};
constexpr Quantity kEnergyInterval{
    "energy_ci", "the half-width of a 95 % interval in joules, such as 0.05, or nothing", 0,
    kMostJoules};
constexpr std::string_view kNoise = "noise";
constexpr std::string_view kCommonNoise = "common_noise";
constexpr std::string_view kActivationBytes = "activation_bytes";
constexpr std::string_view kModelBytes = "model_bytes";
constexpr std::string_view kMemorySource = "memory_source";

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
  std::vector<std::size_t> other_knobs;
  std::vector<std::string> other_knob_names;
  std::size_t count = 0;
};

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
  return nullptr;
}

// Returns the separator of the names in a header that has only one field, or an empty text.
std::string OtherSeparator(const CsvReader& reader, std::string_view first_column) {
  if (reader.fields().size() != 1) return "";
  const std::string_view field = reader.fields().front();
  const std::size_t place = field.find_first_of(";\t| ");
  if (place == std::string_view::npos || !field.starts_with(first_column)) return "";
  const char separator = field[place];
  return separator == '\t'  ? "tabs"
         : separator == ' ' ? "spaces"
                            : fmt::format("\"{}\"", separator);
}

// The remedy for a missing column: a column of nearly the same name, such as time_ms or freq.
std::string RemedyOfMissing(std::string_view name, const Columns& columns,
                            std::string_view header) {
  constexpr std::size_t kLeastBeginning = 3;
  const std::string expected = fmt::format("expected the header {}, in any order", header);
  const std::vector<std::string_view> others(columns.other_knob_names.begin(),
                                             columns.other_knob_names.end());
  std::string_view similar;
  for (const std::string_view other : others) {
    const bool begins_so =
        other.starts_with(name) || (other.size() >= kLeastBeginning && name.starts_with(other));
    if (begins_so && (similar.empty() || other.size() < similar.size())) similar = other;
  }
  if (similar.empty()) similar = NearestName(name, others);
  if (similar.empty()) return expected;
  const std::string_view unit = name == "time"        ? ", in seconds"
                                : name == "energy"    ? ", in joules of one GPU"
                                : name == "frequency" ? ", in MHz"
                                                      : "";
  return fmt::format("is it {}? rename that{}; {}", Excerpt(similar), unit, expected);
}

Result<Columns> ReadHeader(const CsvReader& reader, ProfileRows rows) {
  const Place where = reader.Where();
  const Wording wording = WordingOf(rows);
  if (reader.fields().size() > kMostColumns) {
    return Fail(where, "{} columns are too many (expected {}, and at most {} in all)",
                reader.fields().size(), wording.header, kMostColumns);
  }
  if (const std::string separator = OtherSeparator(reader, wording.part); !separator.empty()) {
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
    if (std::optional<std::size_t>* known = KnownColumn(columns, name, rows)) {
      *known = place;
    } else if (rows == ProfileRows::kLayers) {
      return Fail(where, "a profile of layers has no column {} (remove it; expected the header {})",
                  Excerpt(name), wording.header);
    } else {
      columns.other_knobs.push_back(place);
      columns.other_knob_names.emplace_back(name);
    }
  }
  if (!columns.stage && columns.pp_rank) columns.stage = std::exchange(columns.pp_rank, {});
  const std::array<std::pair<bool, std::string_view>, 5> required = {
      {{columns.stage.has_value(), wording.part},
       {columns.instruction.has_value(), "instruction"},
       {columns.frequency.has_value(), "frequency"},
       {columns.time.has_value(), "time"},
       {columns.energy.has_value(), "energy"}}};
  for (const auto& [is_there, name] : required) {
    if (is_there) continue;
    if (name == "stage" && std::ranges::find(reader.fields(), "layer") != reader.fields().end()) {
      return Fail(where,
                  "column \"stage\" is missing, and the rows are layers (perseus partition makes "
                  "stages of layers)");
    }
    return Fail(where, "column \"{}\" is missing ({})", name,
                RemedyOfMissing(name, columns, wording.header));
  }
  return columns;
}

// A row of the file.
struct Row {
  Measurement measurement;
  std::optional<double> noise;
  std::optional<double> common_noise;
  std::optional<std::int64_t> activation_bytes;
  std::optional<std::int64_t> model_bytes;
  std::optional<MemorySource> memory_source;
};

// Turns the current record of the reader into a Row.
class RowParser {
 public:
  RowParser(const CsvReader& reader, const Columns& columns, std::string_view part)
      : reader_(reader), columns_(columns), part_(part) {
    knobs_.resize(1 + columns.other_knobs.size());
  }

  // The row is valid until the next call.
  Result<Row> Parse() {
    const std::span<const std::string_view> fields = reader_.fields();
    if (fields.size() != columns_.count) {
      return Fail(reader_.Where(),
                  "the row has {}, but the header has {} (complete or remove the row)",
                  Counted(std::ssize(fields), "field"), columns_.count);
    }
    PERSEUS_ASSIGN_OR_RETURN(const int pp_rank, PpRank());
    PERSEUS_ASSIGN_OR_RETURN(const int chunk,
                             columns_.chunk ? Index(*columns_.chunk, "chunk") : Result<int>(0));
    PERSEUS_ASSIGN_OR_RETURN(const InstructionKind kind, Kind());
    PERSEUS_ASSIGN_OR_RETURN(const int frequency_mhz, Frequency());
    PERSEUS_ASSIGN_OR_RETURN(const double time, PositiveNumber(*columns_.time, kTime));
    PERSEUS_ASSIGN_OR_RETURN(const double energy, PositiveNumber(*columns_.energy, kEnergy));
    if (const Result<void> ranks = CheckRanks(); !ranks) return Fail(ranks);
    PERSEUS_ASSIGN_OR_RETURN(const int samples, Samples());
    PERSEUS_ASSIGN_OR_RETURN(const double time_ci, Interval(columns_.time_ci, kTimeInterval));
    PERSEUS_ASSIGN_OR_RETURN(const double energy_ci, Interval(columns_.energy_ci, kEnergyInterval));
    PERSEUS_ASSIGN_OR_RETURN(const auto noise, Noise(columns_.noise, kNoise));
    PERSEUS_ASSIGN_OR_RETURN(const auto common_noise, Noise(columns_.common_noise, kCommonNoise));
    PERSEUS_ASSIGN_OR_RETURN(const auto activations,
                             Bytes(columns_.activation_bytes, kActivationBytes));
    PERSEUS_ASSIGN_OR_RETURN(const auto model, Bytes(columns_.model_bytes, kModelBytes));
    PERSEUS_ASSIGN_OR_RETURN(const auto source, Source());

    knobs_.front() = frequency_mhz;
    for (std::size_t i = 0; i < columns_.other_knobs.size(); ++i) {
      const std::string_view field = fields[columns_.other_knobs[i]];
      const Result<double> value = Number(field, columns_.other_knob_names[i],
                                          "a number, as in every further column; remove the column "
                                          "if it is not a knob");
      if (!value) return Fail(value);
      knobs_[i + 1] = *value;
    }
    return Row{.measurement = {pp_rank, chunk, kind, knobs_, time, energy, reader_.line(), samples,
                               time_ci, energy_ci},
               .noise = noise,
               .common_noise = common_noise,
               .activation_bytes = activations,
               .model_bytes = model,
               .memory_source = source};
  }

 private:
  // The value of a noise column. nullopt if the column or the value is absent.
  Result<std::optional<double>> Noise(std::optional<std::size_t> place,
                                      std::string_view column) const {
    if (!place || FieldAt(place).empty()) return std::nullopt;
    constexpr std::string_view kExpected =
        "a relative standard deviation from 0 to 0.2, such as 0.01, or nothing";
    PERSEUS_ASSIGN_OR_RETURN(const double value, Number(FieldAt(place), column, kExpected));
    if (value >= 0 && value <= kMostTimeNoise) return std::optional(value);
    return Fail(reader_.Where(), "{} {} is out of range (is it in percent? expected {})", column,
                Excerpt(FieldAt(place)), kExpected);
  }

  // The value of a column of bytes. nullopt if the column or the value is absent.
  Result<std::optional<std::int64_t>> Bytes(std::optional<std::size_t> place,
                                            std::string_view column) const {
    if (!place || FieldAt(place).empty()) return std::nullopt;
    constexpr std::string_view kExpected = "bytes of one GPU, such as 734003200, or nothing";
    PERSEUS_ASSIGN_OR_RETURN(const double value, Number(FieldAt(place), column, kExpected));
    if (value >= 0 && value <= kMostMemoryBytes) {
      return std::optional(static_cast<std::int64_t>(std::llround(value)));
    }
    return Fail(reader_.Where(), "{} {} is out of range (expected {})", column,
                Excerpt(FieldAt(place)), kExpected);
  }

  Result<std::optional<MemorySource>> Source() const {
    if (!columns_.memory_source || FieldAt(columns_.memory_source).empty()) return std::nullopt;
    const std::string_view field = FieldAt(columns_.memory_source);
    for (const MemorySource source : {MemorySource::kMeasured, MemorySource::kModeled}) {
      if (field == Name(source)) return std::optional(source);
    }
    return Fail(reader_.Where(), "memory_source {} is unknown (expected measured or modeled)",
                Excerpt(field));
  }

  std::string_view FieldAt(std::optional<std::size_t> column) const {
    return reader_.fields()[*column];
  }
  Result<double> Number(std::string_view field, std::string_view column,
                        std::string_view expected) const {
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error == std::errc::invalid_argument || end != field.data() + field.size()) {
      return Fail(reader_.Where(), "{} {} is not a number (expected {})", column, Excerpt(field),
                  expected);
    }
    if (error != std::errc() || !std::isfinite(value)) {
      return Fail(reader_.Where(),
                  "{} {} is not a number in range (expected {}; leave failed measurements out)",
                  column, Excerpt(field), expected);
    }
    return value;
  }

  Result<double> PositiveNumber(std::size_t place, const Quantity& quantity) const {
    const std::string_view field = reader_.fields()[place];
    Result<double> value = Number(field, quantity.column, quantity.expected);
    if (!value) return value;
    if (*value <= 0) {
      return Fail(reader_.Where(),
                  "{} {} is not positive (expected {}; leave failed measurements out)",
                  quantity.column, Excerpt(field), quantity.expected);
    }
    if (*value < quantity.least || *value > quantity.most) {
      return Fail(reader_.Where(), "{} {} is too {} (are the units mixed up? expected {})",
                  quantity.column, Excerpt(field), *value > quantity.most ? "large" : "small",
                  quantity.expected);
    }
    return value;
  }

  Result<int> Frequency() const {
    PERSEUS_ASSIGN_OR_RETURN(const double mhz, PositiveNumber(*columns_.frequency, kFrequency));
    if (mhz != std::floor(mhz)) {
      return Fail(reader_.Where(),
                  "frequency {} is not a whole number of MHz (are the units mixed up? expected {})",
                  Excerpt(reader_.fields()[*columns_.frequency]), kFrequency.expected);
    }
    return static_cast<int>(mhz);
  }

  // A stage, chunk or rank. Some tools write all numbers as floating point: stage 3 is then 3.0.
  Result<int> Index(std::size_t place, std::string_view column) const {
    const std::string_view field = reader_.fields()[place];
    PERSEUS_ASSIGN_OR_RETURN(double value, Number(field, column, "a whole number, such as 0"));
    if (value < 0 || value > kHighestRank || value != std::floor(value)) {
      return Fail(reader_.Where(), "{} {} is not a whole number from 0 to {} (count from 0)",
                  column, Excerpt(field), kHighestRank);
    }
    return static_cast<int>(value);
  }

  Result<InstructionKind> Kind() const {
    const std::string_view field = FieldAt(columns_.instruction);
    const std::optional<InstructionKind> kind = ParseInstructionKind(field);
    if (kind && IsComputation(*kind)) return *kind;
    std::vector<std::string_view> known;
    for (int i = 0; IsComputation(static_cast<InstructionKind>(i)); ++i) {
      known.push_back(Name(static_cast<InstructionKind>(i)));
    }
    if (kind) {
      return Fail(
          reader_.Where(),
          "instruction {} does not belong in a profile, which measures {} (remove the row; the "
          "job file has the times of fixed instructions)",
          Excerpt(field), fmt::join(known, ", "));
    }
    const std::string_view nearest = field == "fwd"   ? Name(InstructionKind::kForward)
                                     : field == "bwd" ? Name(InstructionKind::kBackward)
                                                      : NearestName(field, known);
    if (nearest.empty()) {
      return Fail(reader_.Where(), "instruction {} is unknown (expected one of {})", Excerpt(field),
                  fmt::join(known, ", "));
    }
    return Fail(reader_.Where(), "instruction {} is unknown (did you mean {}? expected one of {})",
                Excerpt(field), nearest, fmt::join(known, ", "));
  }

  Result<int> PpRank() const {
    Result<int> stage = Index(*columns_.stage, part_);
    if (!stage || !columns_.pp_rank) return stage;
    Result<int> pp_rank = Index(*columns_.pp_rank, "pp_rank");
    if (pp_rank && *pp_rank != *stage) {
      return Fail(reader_.Where(),
                  "stage {} and pp_rank {} differ (they mean the same here; remove one column)",
                  *stage, *pp_rank);
    }
    return pp_rank;
  }

  Result<void> CheckRanks() const {
    const std::array<std::pair<std::optional<std::size_t>, std::string_view>, 3> ranks = {
        {{columns_.rank, "rank"}, {columns_.dp_rank, "dp_rank"}, {columns_.tp_rank, "tp_rank"}}};
    for (const auto& [place, name] : ranks) {
      if (!place) continue;
      if (Result<int> rank = Index(*place, name); !rank) return Fail(rank);
    }
    return {};
  }

  // If the field is empty, the row is one sample.
  Result<int> Samples() const {
    if (!columns_.samples || FieldAt(columns_.samples).empty()) return 1;
    const std::string_view field = FieldAt(columns_.samples);
    PERSEUS_ASSIGN_OR_RETURN(const double value,
                             Number(field, "samples", "a whole number, such as 48"));
    if (value < 1 || value > kMostSamplesOfRow || value != std::floor(value)) {
      return Fail(reader_.Where(),
                  "samples {} is not a whole number from 1 to {} (write how many instructions were "
                  "averaged)",
                  Excerpt(field), kMostSamplesOfRow);
    }
    return static_cast<int>(value);
  }

  // Returns 0 if the row has no interval.
  Result<double> Interval(std::optional<std::size_t> place, const Quantity& quantity) const {
    if (!place || FieldAt(place).empty()) return 0;
    return PositiveNumber(*place, quantity);
  }

  const CsvReader& reader_;
  const Columns& columns_;
  std::string_view part_;
  std::vector<double> knobs_;
};

struct MeanSquare {
  double sum = 0;
  int count = 0;
  void Add(const std::optional<double>& value) {
    if (!value) return;
    sum += *value * *value;
    ++count;
  }
  double Root() const { return count == 0 ? 0 : std::sqrt(sum / count); }
};

// The memory of the stages of all rows so far.
class MemorySum {
 public:
  void Add(const Row& row) {
    if (!row.activation_bytes && !row.model_bytes) return;
    // A file with measured and modeled values counts as modeled.
    is_modeled_ = is_modeled_ || row.memory_source == MemorySource::kModeled;
    const auto key = std::pair(row.measurement.pp_rank, row.measurement.chunk);
    StageMemory::Part& part =
        parts_.try_emplace(key, StageMemory::Part{key.first, key.second}).first->second;
    // An empty optional is less than any value.
    part.activation_bytes = std::max(part.activation_bytes, row.activation_bytes);
    part.model_bytes = std::max(part.model_bytes, row.model_bytes);
  }

  // Absent if no row has a value.
  std::optional<StageMemory> Memory() const {
    if (parts_.empty()) return std::nullopt;
    StageMemory memory{.parts = {},
                       .source = is_modeled_ ? MemorySource::kModeled : MemorySource::kMeasured};
    for (const auto& [key, part] : parts_) memory.parts.push_back(part);
    return memory;
  }

 private:
  std::map<std::pair<int, int>, StageMemory::Part> parts_;  // By pp_rank and chunk.
  bool is_modeled_ = false;
};

// Checks that pp_ranks are numbered 0, 1, ... without a gap, and also the chunks of each pp_rank.
Result<void> CheckNoGaps(const Profile& profile, std::string_view part) {
  int pp_rank = -1;
  int chunk = -1;
  for (const ProfileEntry& entry : profile.entries()) {
    if (entry.pp_rank > pp_rank + 1) {
      return Fail(
          "{0}: {1} {2} is missing, but {1} {3} exists (add its rows, or number the {1}s 0, 1, ... "
          "without a gap)",
          profile.name(), part, pp_rank + 1, entry.pp_rank);
    }
    if (entry.pp_rank != pp_rank) chunk = -1;
    if (entry.chunk > chunk + 1) {
      return Fail(
          InFile(profile.name()),
          "chunk {} of stage {} is missing, but chunk {} exists (add its rows, or number the "
          "chunks 0, 1, ... without a gap)",
          chunk + 1, entry.pp_rank, entry.chunk);
    }
    pp_rank = entry.pp_rank;
    chunk = entry.chunk;
  }
  return {};
}

}  // namespace

Result<Profile> ParseProfile(std::string_view text, std::string_view name,
                             const ProfileReadOptions& options) {
  CsvReader reader(text, name);
  const Wording wording = WordingOf(options.rows);
  PERSEUS_ASSIGN_OR_RETURN(const bool has_header, reader.Next());
  if (!has_header) {
    return Fail(InFile(name), "the file is empty (expected CSV with the header {})",
                wording.header);
  }
  PERSEUS_ASSIGN_OR_RETURN(Columns columns, ReadHeader(reader, options.rows));

  RowParser parser(reader, columns, wording.part);
  OptionSums sums(1 + columns.other_knobs.size(), options.largest_repeat_ratio, wording.part);
  MeanSquare noise_independent;
  MeanSquare noise_common;
  MemorySum memory;
  while (true) {
    PERSEUS_ASSIGN_OR_RETURN(const bool has_row, reader.Next());
    if (!has_row) break;
    PERSEUS_ASSIGN_OR_RETURN(const Row row, parser.Parse());
    if (const Result<void> added = sums.Add(row.measurement); !added) {
      return Fail(added, reader.Where());
    }
    noise_independent.Add(row.noise);
    noise_common.Add(row.common_noise);
    memory.Add(row);
  }

  if (const auto suspect = sums.FindMeasuredKnob()) {
    return Fail(InFile(name, static_cast<int>(suspect->line)),
                "{} is {} here and {} on line {} at the same frequency, and its values hardly ever "
                "repeat: it looks like a measurement, not a setting (remove the column)",
                Excerpt(columns.other_knob_names[suspect->knob - 1]), suspect->value,
                suspect->earlier_value, suspect->earlier_line);
  }
  Profile profile(std::string(name), std::move(columns.other_knob_names), sums.Entries());
  if (profile.entries().empty()) {
    return Fail(InFile(name), "no rows follow the header (add a row for each measured option)");
  }
  if (const Result<void> complete = CheckNoGaps(profile, wording.part); !complete)
    return Fail(complete);
  const TimeNoise noise{noise_independent.Root(), noise_common.Root()};
  if (noise != TimeNoise{}) profile.set_noise(noise);
  profile.set_memory(memory.Memory());
  return profile;
}

}  // namespace perseus::profile
