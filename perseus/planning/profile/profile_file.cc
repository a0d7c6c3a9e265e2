// Reads the CSV of a profile. The header becomes Columns (profile_columns.h), each row becomes a
// Measurement, and the averages of all rows become a Profile.
#include <fmt/format.h>

#include <algorithm>
#include <array>
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
#include "perseus/planning/profile/profile_columns.h"
#include "perseus/planning/profile/stage_memory.h"

namespace perseus::profile {
namespace {

constexpr double kLeastSeconds = 0.5e-9;  // A shorter time would round to 0 ns.
constexpr int kMostSamplesOfRow = 1'000'000'000;

// The values that a column may have, and what an error says about them.
struct Quantity {
  std::string_view column;
  std::string_view expected;
  double least;
  double most;
};
constexpr Quantity kFrequency{"frequency", "MHz, such as 1410", 0, kHighestFrequencyMhz};
constexpr Quantity kTime{"time", "seconds, such as 0.0502", kLeastSeconds, kLongestSeconds};
constexpr Quantity kMilliseconds{"time", "milliseconds, such as 50.2", 1e3 * kLeastSeconds,
                                 1e3 * kLongestSeconds};
constexpr Quantity kMicroseconds{"time", "microseconds, such as 50200", 1e6 * kLeastSeconds,
                                 1e6 * kLongestSeconds};
constexpr Quantity kEnergy{"energy", "joules, such as 23.8", 0, kMostJoules};
constexpr Quantity kTimeInterval{
    "time_ci", "the half-width of a 95 % interval in seconds, such as 0.0001, or nothing", 0,
    kLongestSeconds};
constexpr Quantity kEnergyInterval{
    "energy_ci", "the half-width of a 95 % interval in joules, such as 0.05, or nothing", 0,
    kMostJoules};

// A row of the file.
struct Row {
  Measurement measurement;
  std::optional<double> noise;
  std::optional<double> common_noise;
  std::optional<std::int64_t> activation_bytes;
  std::optional<std::int64_t> model_bytes;
  std::optional<MemorySource> memory_source;
  std::optional<double> blocking_power_w;
};

// Turns the current record of the reader into a Row.
class RowParser {
 public:
  // `has_texts` says which of the other knobs have texts.
  RowParser(const CsvReader& reader, const Columns& columns, std::vector<bool> has_texts,
            std::string_view part)
      : reader_(reader), columns_(columns), has_texts_(std::move(has_texts)), part_(part) {
    knobs_.resize(1 + columns.other_knobs.size());
    labels_.resize(columns.other_knobs.size());
    numbers_.resize(columns.other_knobs.size());
  }

  // The texts of all rows so far.
  const KnobLabels& labels() const { return labels_; }

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
    PERSEUS_ASSIGN_OR_RETURN(const double time, Seconds());
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
    PERSEUS_ASSIGN_OR_RETURN(const auto blocking_power_w, BlockingPower());

    knobs_.front() = frequency_mhz;
    for (std::size_t i = 0; i < columns_.other_knobs.size(); ++i) {
      const std::string_view field = fields[columns_.other_knobs[i]];
      if (has_texts_[i]) {
        knobs_[i + 1] = NumberOfText(i, field);
        continue;
      }
      const Result<double> value =
          Number(field, columns_.other_knob_names[i],
                 "a number, as in other rows, or texts in all rows; remove "
                 "the column if it is not a knob");
      if (!value) return Fail(value);
      knobs_[i + 1] = *value;
    }
    return Row{.measurement = {pp_rank, chunk, kind, knobs_, time, energy, reader_.line(), samples,
                               time_ci, energy_ci},
               .noise = noise,
               .common_noise = common_noise,
               .activation_bytes = activations,
               .model_bytes = model,
               .memory_source = source,
               .blocking_power_w = blocking_power_w};
  }

 private:
  double NumberOfText(std::size_t knob, std::string_view text) {
    const auto [known, is_new] =
        numbers_[knob].try_emplace(std::string(text), labels_[knob].size());
    if (is_new) labels_[knob].emplace_back(text);
    return static_cast<double>(known->second);
  }

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

  Result<std::optional<double>> BlockingPower() const {
    if (!columns_.blocking_power || FieldAt(columns_.blocking_power).empty()) return std::nullopt;
    constexpr std::string_view kExpected = "watts of one waiting GPU, such as 83.64, or nothing";
    const std::string_view field = FieldAt(columns_.blocking_power);
    PERSEUS_ASSIGN_OR_RETURN(const double value, Number(field, kBlockingPower, kExpected));
    if (value >= 0 && value <= kMostWatts) return std::optional(value);
    return Fail(reader_.Where(), "{} {} is out of range (expected {})", kBlockingPower,
                Excerpt(field), kExpected);
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
    const std::errc error = reader_.ReadNumber(field, value);
    if (error == std::errc::invalid_argument) {
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

  Result<double> Seconds() const {
    const double unit_s = columns_.seconds_per_time;
    const Quantity& quantity = unit_s == 1 ? kTime : unit_s == 1e-3 ? kMilliseconds : kMicroseconds;
    PERSEUS_ASSIGN_OR_RETURN(const double value, PositiveNumber(*columns_.time, quantity));
    return value * unit_s;
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
    const std::optional<InstructionKind> kind = FindKind(field);
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
    const std::string_view nearest = NearestName(field, known);
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
  const std::vector<bool> has_texts_;
  std::string_view part_;
  std::vector<double> knobs_;
  KnobLabels labels_;
  std::vector<std::map<std::string, std::size_t>>
      numbers_;  // [knob] The place of a text in labels_.
};

// Returns which of the other knobs have texts: at least one field is a text, and none is a number.
std::vector<bool> FindTextKnobs(std::string_view text, std::string_view name,
                                const Columns& columns) {
  std::vector<bool> has_text(columns.other_knobs.size());
  std::vector<bool> has_number(columns.other_knobs.size());
  if (columns.other_knobs.empty()) return has_text;
  CsvReader reader(text, name);
  if (!reader.Next()) return has_text;
  for (auto has_row = reader.Next(); has_row && *has_row; has_row = reader.Next()) {
    if (reader.fields().size() != columns.count) continue;
    for (std::size_t i = 0; i < columns.other_knobs.size(); ++i) {
      const std::string_view field = reader.fields()[columns.other_knobs[i]];
      double ignored = 0;
      const bool is_number = reader.ReadNumber(field, ignored) != std::errc::invalid_argument;
      (is_number ? has_number : has_text)[i] = is_number || has_text[i] || !field.empty();
    }
  }
  for (std::size_t i = 0; i < has_text.size(); ++i) has_text[i] = has_text[i] && !has_number[i];
  return has_text;
}

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

// The blocking powers of all rows so far.
class BlockingPowers {
 public:
  Result<void> Add(const Row& row) {
    if (!row.blocking_power_w) return {};
    const auto [known, is_new] =
        powers_.try_emplace(row.measurement.pp_rank, *row.blocking_power_w, row.measurement.line);
    const auto& [power_w, line] = known->second;
    if (is_new || power_w == *row.blocking_power_w) return {};
    return Fail(
        "the blocking power of stage {} is {:g} W here and {:g} W on line {} (write one value for "
        "each stage)",
        row.measurement.pp_rank, *row.blocking_power_w, power_w, line);
  }

  // [pp_rank] Empty if no row has a value.
  Result<std::vector<double>> Powers(int pp_ranks) const {
    std::vector<double> powers_w;
    for (int stage = 0; stage < pp_ranks && !powers_.empty(); ++stage) {
      const auto known = powers_.find(stage);
      if (known == powers_.end()) {
        return Fail(
            "stage {} has no blocking power, but stage {} has (write it in a row of each "
            "stage)",
            stage, powers_.begin()->first);
      }
      powers_w.push_back(known->second.first);
    }
    return powers_w;
  }

 private:
  std::map<int, std::pair<double, std::int64_t>> powers_;  // By pp_rank: the power and its line.
};

// The errors of all rows, so that a user corrects a file in one go.
class RowErrors {
 public:
  void Add(const Result<void>& failed) {
    ++count_;
    if (count_ <= kMostListed) listed_.push_back(failed.error());
  }
  // Fails with the error, or with the first ones of several errors in one message.
  Result<void> Get() const {
    if (count_ == 0) return {};
    if (count_ == 1) return tl::unexpected(listed_.front());
    std::string rows;
    for (const Error& error : listed_) {
      Error alone = error;
      alone.where = {};
      rows +=
          fmt::format("{}line {}: {}", rows.empty() ? "" : "; ", error.where.line, alone.Message());
    }
    const std::size_t more = count_ - listed_.size();
    if (more > 0) rows += fmt::format("; and {} more rows", more);
    return Fail(listed_.front().where, "{} rows are wrong: {}", count_, rows);
  }

 private:
  static constexpr std::size_t kMostListed = 5;
  std::size_t count_ = 0;
  std::vector<Error> listed_;
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

  RowParser parser(reader, columns, FindTextKnobs(text, name, columns), wording.part);
  OptionSums sums(1 + columns.other_knobs.size(), options.largest_repeat_ratio, wording.part);
  MeanSquare noise_independent;
  MeanSquare noise_common;
  MemorySum memory;
  BlockingPowers powers;
  RowErrors errors;
  while (true) {
    PERSEUS_ASSIGN_OR_RETURN(const bool has_row, reader.Next());
    if (!has_row) break;
    const Result<Row> row = parser.Parse();
    Result<void> added = row ? sums.Add(row->measurement) : Fail(row);
    if (added) added = powers.Add(*row);
    if (!added) {
      errors.Add(Fail(added, reader.Where()));
      continue;
    }
    noise_independent.Add(row->noise);
    noise_common.Add(row->common_noise);
    memory.Add(*row);
  }
  if (Result<void> read = errors.Get(); !read) return Fail(read);

  if (const auto suspect = sums.FindMeasuredKnob(parser.labels())) {
    return Fail(InFile(name, static_cast<int>(suspect->line)),
                "{} is {} here and {} on line {} at the same frequency, and its values hardly ever "
                "repeat: it looks like a measurement, not a setting (remove the column)",
                Excerpt(columns.other_knob_names[suspect->knob - 1]), suspect->value,
                suspect->earlier_value, suspect->earlier_line);
  }
  Profile profile(std::string(name), std::move(columns.other_knob_names), sums.Entries());
  profile.set_knob_labels(parser.labels());
  if (profile.entries().empty()) {
    return Fail(InFile(name), "no rows follow the header (add a row for each measured option)");
  }
  if (const Result<void> complete = CheckNoGaps(profile, wording.part); !complete)
    return Fail(complete);
  const TimeNoise noise{noise_independent.Root(), noise_common.Root()};
  if (noise != TimeNoise{}) profile.set_noise(noise);
  profile.set_memory(memory.Memory());
  auto powers_w = powers.Powers(profile.pp_ranks());
  if (!powers_w) return Fail(powers_w, InFile(name));
  profile.set_blocking_powers_w(*std::move(powers_w));
  const OptionSums::Doubt& doubt = sums.widest_repeat();
  if (!doubt.text.empty())
    profile.set_doubt(fmt::format("{}:{}: {}", name, doubt.line, doubt.text));
  return profile;
}

}  // namespace perseus::profile
