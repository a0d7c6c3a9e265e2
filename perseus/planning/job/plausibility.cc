#include "perseus/planning/job/plausibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/median.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/csv_reader.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::job {
namespace {

// No GPU that trains is outside of this range while it computes at maximum frequency.
constexpr double kLeastBusyW = 5;
constexpr double kMostBusyW = 20'000;
// The SM clocks of all GPUs lie far inside of this range.
constexpr double kKhzPerMhz = 1'000;
constexpr double kLeastClockMhz = 20;
constexpr double kMostClockMhz = 20'000;
// Within this range, a power has the right unit.
constexpr double kLeastUsualW = 20;
constexpr double kMostUsualW = 3'000;
// A GPU that waits draws a third to two thirds of what it draws while it computes.
constexpr double kHighBlockingPower = 0.8;
constexpr double kLeastBlockingW = 1;
// A column is the power if it is within this fraction of energy / time.
constexpr double kPowerTolerance = 0.3;
constexpr std::size_t kMostNamed = 3;

const profile::Option& BaselineOf(const schedule::OptionSet& set) {
  return set.options[static_cast<std::size_t>(set.baseline)];
}

double PowerW(const profile::Option& option, int gpus) {
  return option.energy_j / ToSeconds(option.time) / gpus;
}

// The line of the profile at which the options of a set begin, or those at a frequency. Nothing if
// the profile is not a file that can be read again.
std::optional<std::int64_t> LineOf(const std::string& path, const schedule::OptionSet& set,
                                   std::optional<double> frequency_mhz) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const auto text = ReadFile(path);
  if (!text) return std::nullopt;
  profile::CsvReader reader(*text, path);
  std::vector<std::string> header;
  if (const auto has_header = reader.Next(); !has_header || !*has_header) return std::nullopt;
  for (const std::string_view name : reader.fields()) header.emplace_back(name);
  const auto field = [&](std::string_view name) -> std::string_view {
    const auto place = std::ranges::find(header, name);
    if (place == header.end()) return {};
    return reader.fields()[static_cast<std::size_t>(place - header.begin())];
  };
  // Some tools write all numbers as floating point: stage 3 is then 3.0.
  const auto is = [](std::string_view text_of_number, int number) {
    return text_of_number == std::to_string(number) ||
           text_of_number.starts_with(fmt::format("{}.", number));
  };
  const auto is_frequency = [&](std::string_view number) {
    double value = 0;
    std::from_chars(number.data(), number.data() + number.size(), value);
    return value == frequency_mhz;
  };
  for (auto has_row = reader.Next(); has_row && *has_row; has_row = reader.Next()) {
    if (reader.fields().size() != header.size()) return std::nullopt;
    const std::string_view stage = field("stage");
    if (!is(stage.empty() ? field("pp_rank") : stage, set.pp_rank)) continue;
    const std::string_view chunk = field("chunk");
    if (!chunk.empty() && !is(chunk, set.chunk)) continue;
    if (ParseInstructionKind(field("instruction")) != set.kind) continue;
    if (frequency_mhz && !is_frequency(field("frequency"))) continue;
    return reader.line();
  }
  return std::nullopt;
}

// "profile.csv:17: stage 0 forward".
std::string Place(const LoadedJob& job, const schedule::OptionSet& set,
                  std::optional<double> frequency_mhz = std::nullopt) {
  const auto line = LineOf(job.planned.profile, set, frequency_mhz);
  return line ? fmt::format("{}:{}: {}", job.planned.profile, *line, set.name)
              : fmt::format("{}: {}", job.planned.profile, set.name);
}

std::string_view ProbableUnit(double power_w) {
  const auto is_usual = [](double watts) { return watts > kLeastUsualW && watts < kMostUsualW; };
  if (is_usual(power_w * kMillisecondsPerSecond)) {
    return "the times are probably in milliseconds, but have to be in seconds";
  }
  if (is_usual(power_w * kMillisecondsPerSecond * kMillisecondsPerSecond)) {
    return "the times are probably in microseconds, but have to be in seconds";
  }
  if (is_usual(power_w / kMillisecondsPerSecond)) {
    return "the energies are probably in millijoules, but have to be in joules; or the times are a "
           "thousandth of the true ones";
  }
  return "the times have to be in seconds, and the energies in joules of one GPU";
}

using Sets = std::vector<const schedule::OptionSet*>;

// A clock of 1.41 or 1410000 is that of a GPU in another unit.
Result<void> CheckClocks(const LoadedJob& job, const Sets& sets) {
  for (const schedule::OptionSet* set : sets) {
    const double mhz = BaselineOf(*set).frequency_mhz;
    if (mhz >= kLeastClockMhz && mhz <= kMostClockMhz) continue;
    return Fail(
        "{}: has {:g} MHz as its highest clock, which cannot be the clock of a GPU (the "
        "frequencies are probably in {}, but have to be in MHz)",
        Place(job, *set), mhz,
        mhz < kLeastClockMhz               ? "GHz"
        : mhz < kMostClockMhz * kKhzPerMhz ? "kHz"
                                           : "Hz");
  }
  return {};
}

Result<void> CheckPowers(const LoadedJob& job, const Sets& sets) {
  for (const schedule::OptionSet* set : sets) {
    const double power_w = PowerW(BaselineOf(*set), job.planned.model.gpus_per_stage);
    if (power_w >= kLeastBusyW && power_w <= kMostBusyW) continue;
    return Fail("{}: draws {:.3g} W at {:g} MHz, which cannot be the power of a GPU ({})",
                Place(job, *set), power_w, BaselineOf(*set).frequency_mhz, ProbableUnit(power_w));
  }
  return {};
}

// A single row in another unit, or with a typing error. Nothing else changes the power of an
// instruction so much: the highest clock of a GPU is ten times its lowest, or less.
Result<void> CheckRows(const LoadedJob& job, const Sets& sets) {
  constexpr std::size_t kFewestToCompare = 3;
  constexpr double kLeastPart = 0.01;
  constexpr double kMostTimes = 20;
  for (const schedule::OptionSet* set : sets) {
    if (set->options.size() < kFewestToCompare) continue;
    std::vector<double> powers;
    for (const profile::Option& option : set->options) {
      powers.push_back(PowerW(option, job.planned.model.gpus_per_stage));
    }
    const double median_w = Median(powers);
    for (std::size_t i = 0; i < powers.size(); ++i) {
      if (powers[i] >= kLeastPart * median_w && powers[i] <= kMostTimes * median_w) continue;
      const double mhz = set->options[i].frequency_mhz;
      return Fail(
          "{}: draws {:.3g} W at {:g} MHz, but the median of its rows is {:.3g} W (correct the "
          "time or the energy of this row, or remove it)",
          Place(job, *set, mhz), powers[i], mhz, median_w);
    }
  }
  return {};
}

Result<void> CheckBlockingPower(const LoadedJob& job, const Sets& sets,
                                std::vector<std::string>& warnings) {
  const double blocking_w = job.planned.model.blocking_power_w;
  std::vector<double> powers;
  for (const schedule::OptionSet* set : sets) {
    powers.push_back(PowerW(BaselineOf(*set), job.planned.model.gpus_per_stage));
  }
  if (powers.empty() || blocking_w == 0) return {};
  const double most_w = std::ranges::max(powers);
  const double median_w = Median(powers);
  if (blocking_w >= most_w) {
    return Fail(
        "{}: the blocking power of {:g} W is not below the power of any instruction at maximum "
        "frequency, which is at most {:.1f} W (give the power of one GPU that waits, in watts, and "
        "energies of one GPU)",
        job.planned.profile, blocking_w, most_w);
  }
  if (blocking_w < kLeastBlockingW) {
    warnings.push_back(
        fmt::format("a blocking power of {:g} W is less than any GPU draws (give the power of one "
                    "GPU that waits, in watts)",
                    blocking_w));
  }
  if (blocking_w > kHighBlockingPower * median_w) {
    warnings.push_back(fmt::format(
        "the blocking power of {:g} W is {:.0f} % of the power of the instructions at maximum "
        "frequency ({:.1f} W), so plans seem to save more than they do (is it the power of "
        "one GPU that waits? perseus qualify measures it)",
        blocking_w, 100 * blocking_w / median_w, median_w));
  }
  return {};
}

bool IsNameOfMeasurement(std::string_view name) {
  constexpr std::string_view kWords[] = {"power",       "watt", "temperature", "temp",
                                         "utilization", "util", "voltage",     "joule"};
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return std::ranges::any_of(kWords,
                             [&](std::string_view word) { return lower.starts_with(word); });
}

struct KnobUse {
  bool differs = false;             // Within an option set.
  bool differs_at_a_clock = false;  // Between options of the same frequency.
  bool is_power = true;             // About energy / time, in all options.
};

KnobUse UseOf(std::size_t knob, const Sets& sets, int gpus) {
  KnobUse use;
  for (const schedule::OptionSet* set : sets) {
    std::map<double, double> first_at;  // [frequency]
    for (const profile::Option& option : set->options) {
      const double value = option.other_knobs[knob];
      const double power_w = PowerW(option, gpus);
      use.is_power = use.is_power && std::abs(value - power_w) <= kPowerTolerance * power_w;
      use.differs = use.differs || value != set->options.front().other_knobs[knob];
      const auto [first, is_new] = first_at.emplace(option.frequency_mhz, value);
      use.differs_at_a_clock = use.differs_at_a_clock || first->second != value;
    }
  }
  return use;
}

// A sweep of a setting tries several values at the same clock. A measurement has one value for each
// clock, if each clock was measured once.
Result<void> CheckKnobs(const LoadedJob& job, const Sets& sets,
                        std::vector<std::string>& warnings) {
  const auto& names = job.graph.other_knob_names;
  for (std::size_t knob = 0; knob < names.size(); ++knob) {
    const KnobUse use = UseOf(knob, sets, job.planned.model.gpus_per_stage);
    if (!use.differs || use.differs_at_a_clock) continue;
    if (use.is_power || IsNameOfMeasurement(names[knob])) {
      return Fail(
          "{}: column {} is a measurement, not a setting: it has one value for each frequency{} "
          "(remove the column)",
          job.planned.profile, Excerpt(names[knob]), use.is_power ? ", about energy / time" : "");
    }
    warnings.push_back(
        fmt::format("{}: column {} is taken for a setting, but it never differs at the same "
                    "frequency (remove the column if it is a measurement)",
                    job.planned.profile, Excerpt(names[knob])));
  }
  return {};
}

void CheckChunks(const LoadedJob& job, std::vector<std::string>& warnings) {
  const schedule::Schedule& schedule = job.planned.schedule;
  if (!schedule.name.starts_with("interleaved")) return;
  if (schedule.stages() > static_cast<int>(schedule.pp_ranks.size())) return;
  warnings.push_back(
      fmt::format("the schedule {} has one chunk on each pp_rank, so nothing is interleaved (add "
                  "--chunks 2, and profile each chunk)",
                  schedule.name));
}

void CheckUsefulOptions(const LoadedJob& job, const Sets& sets,
                        std::vector<std::string>& warnings) {
  std::string first;
  std::vector<std::string> further;
  bool has_choice = false;  // Without any, the planner refuses the job.
  for (const schedule::OptionSet* set : sets) {
    const std::vector<profile::Option>& options = set->options;
    const auto useful = profile::ParetoFront(options, job.model.blocking_power_w);
    has_choice = has_choice || useful.size() > 1;
    if (useful.size() != 1) continue;
    if (!first.empty()) {
      further.push_back(set->name);
      continue;
    }
    const auto [fastest, slowest] = std::ranges::minmax(options, {}, &profile::Option::time);
    const std::string_view reason = options.size() == 1 ? "only one option is measured"
                                    : fastest.time == slowest.time
                                        ? "all measured options take the same time"
                                        : "no slower option saves effective energy";
    first = fmt::format("{}: {}, so every plan runs it at {:g} MHz", Place(job, *set), reason,
                        options[static_cast<std::size_t>(useful.front())].frequency_mhz);
  }
  if (first.empty() || !has_choice) return;
  if (!further.empty()) {
    const std::size_t named = std::min(kMostNamed, further.size());
    first += fmt::format(
        "; {} further instruction{}: {}{}", further.size(),
        further.size() == 1 ? " has one useful option" : "s have one useful option",
        fmt::join(std::span(further).first(named), ", "), further.size() > named ? ", ..." : "");
  }
  warnings.push_back(std::move(first));
}

}  // namespace

Result<std::vector<std::string>> CheckPlausible(const LoadedJob& job) {
  std::vector<std::string> warnings;
  if (job.planned.IsGeneralGraph()) return warnings;
  Sets sets;
  for (const schedule::OptionSet& set : job.graph.option_sets) {
    if (IsComputation(set.kind)) sets.push_back(&set);
  }
  PERSEUS_RETURN_IF_ERROR(CheckClocks(job, sets));
  PERSEUS_RETURN_IF_ERROR(CheckRows(job, sets));
  PERSEUS_RETURN_IF_ERROR(CheckPowers(job, sets));
  PERSEUS_RETURN_IF_ERROR(CheckKnobs(job, sets, warnings));
  PERSEUS_RETURN_IF_ERROR(CheckBlockingPower(job, sets, warnings));
  CheckChunks(job, warnings);
  CheckUsefulOptions(job, sets, warnings);
  return warnings;
}

}  // namespace perseus::job
