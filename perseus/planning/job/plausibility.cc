#include "perseus/planning/job/plausibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/result.h"
#include "perseus/base/statistics.h"
#include "perseus/base/units.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/profile/csv_reader.h"
#include "perseus/planning/profile/curve.h"
#include "perseus/planning/profile/profile_columns.h"

namespace perseus::job {
namespace {

// The options of each computation.
using Computations = std::vector<const schedule::OptionSet*>;

Computations ComputationsOf(const LoadedJob& job) {
  Computations computations;
  for (const schedule::OptionSet& set : job.graph.option_sets) {
    if (IsComputation(set.kind)) computations.push_back(&set);
  }
  return computations;
}

// The option at maximum frequency.
const profile::Option& BaselineOf(const schedule::OptionSet& set) {
  return set.options[static_cast<std::size_t>(set.baseline)];
}

// The power of each of the `gpus` GPUs that share the energy.
double PowerW(const profile::Option& option, int gpus) {
  return option.energy_j / ToSeconds(option.time) / gpus;
}

// The number of the set's stage in a profile without chunks. If pp_ranks run several stages, such a
// profile numbers the stages of the model.
int StageInProfile(const schedule::Schedule& schedule, const schedule::OptionSet& set) {
  for (std::size_t stage = 0; stage < schedule.pp_rank_of_stage.size(); ++stage) {
    const bool is_here = schedule.pp_rank_of_stage[stage] == set.pp_rank &&
                         schedule.chunk_of_stage[stage] == set.chunk;
    if (is_here) return static_cast<int>(stage);
  }
  return set.pp_rank;
}

// The line of the profile at which the options of a set begin, or the line of one option. nullopt
// if the profile is not a file that can be read again.
std::optional<std::int64_t> LineOf(const LoadedJob& job, const schedule::OptionSet& set,
                                   const profile::Option* option) {
  const std::string& path = job.planned.profile;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const auto text = ReadFile(path);
  if (!text) return std::nullopt;
  profile::CsvReader reader(*text, path);
  if (const auto has_header = reader.Next(); !has_header || !*has_header) return std::nullopt;
  const auto columns = profile::ReadHeader(reader, profile::ProfileRows::kStages);
  if (!columns) return std::nullopt;
  const auto is = [&](std::size_t place, double expected) {
    double value = 0;
    return reader.ReadNumber(reader.fields()[place], value) == std::errc() && value == expected;
  };
  const auto is_option = [&] {
    if (option == nullptr) return true;
    for (std::size_t knob = 0; knob < columns->other_knobs.size(); ++knob) {
      const std::size_t place = columns->other_knobs[knob];
      const double value = option->other_knobs[knob];
      const bool has_texts = !job.graph.knob_labels[knob].empty();
      if (has_texts
              ? reader.fields()[place] != profile::KnobText(job.graph.knob_labels, knob, value)
              : !is(place, value)) {
        return false;
      }
    }
    return is(*columns->frequency, option->frequency_mhz);
  };
  const int stage = columns->chunk ? set.pp_rank : StageInProfile(job.planned.schedule, set);
  for (auto has_row = reader.Next(); has_row && *has_row; has_row = reader.Next()) {
    if (reader.fields().size() != columns->count) return std::nullopt;
    if (!is(*columns->stage, stage)) continue;
    if (columns->chunk && !is(*columns->chunk, set.chunk)) continue;
    if (profile::FindKind(reader.fields()[*columns->instruction]) != set.kind) continue;
    if (is_option()) return reader.line();
  }
  return std::nullopt;
}

// Returns "profile.csv:17: stage 0 forward", with the line where the options of the set begin, or
// the line of `option`. Leaves out the line if the profile is not a file that can be read again.
std::string Place(const LoadedJob& job, const schedule::OptionSet& set,
                  const profile::Option* option = nullptr) {
  const auto line = LineOf(job, set, option);
  return line ? fmt::format("{}:{}: {}", job.planned.profile, *line, set.name)
              : fmt::format("{}: {}", job.planned.profile, set.name);
}

// While a GPU in training computes at maximum frequency, its power is always in this range.
constexpr double kLeastBusyW = 5;
constexpr double kMostBusyW = 20'000;
// The SM clocks of all GPUs lie far inside of this range.
constexpr double kKhzPerMhz = 1'000;
constexpr double kLeastClockMhz = 20;
constexpr double kMostClockMhz = 6'000;
// All GPUs of today draw less.
constexpr double kHighBusyW = 2'000;
// A limit for one instruction. Those of the largest models take a few seconds.
constexpr Nanoseconds kLongTime = 10 * kSecond;
// Instructions of one job hardly differ by more than these factors.
constexpr double kUnlikePower = 4;
constexpr double kUnlikeClock = 1.02;
// At the power limit, all instructions draw the same power, up to errors of measurement.
constexpr double kAtPowerLimit = 0.95;
// Measurements of neighboring clocks may differ by some percent. With a factor of kFarOff or more,
// a row is wrong.
constexpr double kLeastOff = 1.2;
constexpr double kFarOff = 2;
// If the times of a forward and a backward differ by less than this factor, either may be longer.
constexpr double kUnlikeTimes = 1.2;
// Within this range, a power has the right unit.
constexpr double kLeastUsualW = 20;
constexpr double kMostUsualW = 3'000;

std::string_view ProbableUnit(double power_w) {
  const auto is_usual = [](double watts) { return watts > kLeastUsualW && watts < kMostUsualW; };
  if (is_usual(power_w * kMillisecondsPerSecond)) {
    return "the times are probably in milliseconds, or the energies in kilojoules; they have to be "
           "in seconds and joules";
  }
  if (is_usual(power_w * kMillisecondsPerSecond * kMillisecondsPerSecond)) {
    return "the times are probably in microseconds, but have to be in seconds; or time and energy "
           "are swapped";
  }
  if (is_usual(power_w / kMillijoulesPerJoule)) {
    return "the energies are probably in millijoules, but have to be in joules; or the times are a "
           "thousandth of the true ones";
  }
  return "the times have to be in seconds, and the energies in joules of one GPU";
}

// Checks the unit of clocks. A clock of 2 or 1410000 is probably in another unit.
Result<void> CheckClocks(const LoadedJob& job, const Computations& sets) {
  for (const schedule::OptionSet* set : sets) {
    for (const profile::Option& option : set->options) {
      const int mhz = option.frequency_mhz;
      if (mhz >= kLeastClockMhz && mhz <= kMostClockMhz) continue;
      return Fail(
          "{}: has a frequency of {} MHz, which cannot be the clock of a GPU (the frequencies "
          "are probably in {}, but have to be in MHz; or it is a typing error)",
          Place(job, *set, &option), mhz,
          mhz < kLeastClockMhz               ? "GHz"
          : mhz < kMostClockMhz * kKhzPerMhz ? "kHz"
                                             : "Hz");
    }
  }
  return {};
}

Result<void> CheckPowers(const LoadedJob& job, const Computations& sets) {
  for (const schedule::OptionSet* set : sets) {
    const double power_w = PowerW(BaselineOf(*set), job.planned.model.gpus_per_stage);
    if (power_w >= kLeastBusyW && power_w <= kMostBusyW) continue;
    return Fail("{}: draws {:.3g} W at {} MHz, which cannot be the power of a GPU ({})",
                Place(job, *set), power_w, BaselineOf(*set).frequency_mhz, ProbableUnit(power_w));
  }
  return {};
}

// The factor by which the rows of one instruction at two clocks contradict each other. 1: no
// contradiction. At the lower clock, the instruction must take at least as long (at most in
// proportion to the clock). It must draw at most as much power (at least in proportion to the cube
// of the clock).
double OffBy(const profile::Option& high, const profile::Option& low) {
  const double clocks = static_cast<double>(high.frequency_mhz) / low.frequency_mhz;
  const double times = static_cast<double>(low.time) / static_cast<double>(high.time);
  const double powers = PowerW(high, 1) / PowerW(low, 1);
  return std::max({1.0, 1 / times, times / clocks, 1 / powers, powers / std::pow(clocks, 3)});
}

struct OffRow {
  const schedule::OptionSet* set = nullptr;
  const profile::Option* option = nullptr;
  double factor = 1;  // Its factor (OffBy) to the rows of the next higher and the next lower clock.
};

// The rows of a set that contradict their neighbors by at least this factor.
std::vector<OffRow> OffRows(const schedule::OptionSet& set, double least_factor) {
  std::map<std::vector<double>, std::vector<const profile::Option*>> by_knobs;
  for (const profile::Option& option : set.options) by_knobs[option.other_knobs].push_back(&option);
  std::vector<OffRow> found;
  for (auto& [knobs, rows] : by_knobs) {
    std::ranges::stable_sort(rows, std::greater<>(), &profile::Option::frequency_mhz);
    std::vector<double> off_next;  // [row] the row and the next one.
    for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
      off_next.push_back(OffBy(*rows[i], *rows[i + 1]));
    }
    std::vector<double> off(rows.size(), 1);
    for (std::size_t i = 1; i + 1 < rows.size(); ++i) {
      off[i] = std::min(off_next[i - 1], off_next[i]);
    }
    // The first and the last row have only one neighbor. If this neighbor is wrong, the row itself
    // is probably correct.
    const std::size_t last = rows.size() - 1;
    if (last > 0 && (last == 1 || off[1] < least_factor)) off.front() = off_next.front();
    if (last > 1 && off[last - 1] < least_factor) off.back() = off_next.back();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (off[i] >= least_factor) found.push_back({&set, rows[i], off[i]});
    }
  }
  return found;
}

// Finds a single row that has another unit, a typing error, or a disturbed measurement.
Result<void> CheckRows(const LoadedJob& job, const Computations& sets,
                       std::vector<std::string>& warnings) {
  std::vector<OffRow> rows;
  for (const schedule::OptionSet* set : sets) {
    std::ranges::move(OffRows(*set, kLeastOff), std::back_inserter(rows));
  }
  if (rows.empty()) return {};
  const OffRow& most = *std::ranges::max_element(rows, {}, &OffRow::factor);
  const OffRow& first = most.factor >= kFarOff ? most : rows.front();
  const std::string text = fmt::format(
      "{}: at {} MHz, {:g} s and {:g} W do not fit the next clocks: a lower clock takes longer, at "
      "most in proportion to the clock, and draws less power",
      Place(job, *first.set, first.option), first.option->frequency_mhz,
      ToSeconds(first.option->time), PowerW(*first.option, job.planned.model.gpus_per_stage));
  if (most.factor >= kFarOff) {
    return Fail("{} (correct the time or the energy of this row, measure it again, or remove it)",
                text);
  }
  warnings.push_back(rows.size() == 1
                         ? text
                         : fmt::format("{}; {} further row{}", text, rows.size() - 1,
                                       rows.size() == 2 ? " is like this" : "s are like this"));
  return {};
}

// Finds energies of a whole node, powers in the column of energies, and stages that were measured
// in different ways.
void CheckAlike(const LoadedJob& job, const Computations& sets,
                std::vector<std::string>& warnings) {
  std::vector<double> powers;
  for (const schedule::OptionSet* set : sets) {
    powers.push_back(PowerW(BaselineOf(*set), job.planned.model.gpus_per_stage));
  }
  if (sets.empty()) return;
  const double median_w = Median(powers);
  if (median_w > kHighBusyW) {
    warnings.push_back(fmt::format(
        "{}: {:.0f} W is much for one GPU (energies have to be joules of one GPU: are they those "
        "of several GPUs, or powers in watts?)",
        Place(job, *sets.front()), powers.front()));
  }
  const auto longest = std::ranges::max_element(
      sets, {}, [](const schedule::OptionSet* set) { return BaselineOf(*set).time; });
  if (BaselineOf(**longest).time > kLongTime) {
    warnings.push_back(fmt::format(
        "{}: {:.3g} s is long for a microbatch (times have to be seconds and energies joules of "
        "one instruction: are they milliseconds and millijoules, or sums of several?)",
        Place(job, **longest), ToSeconds(BaselineOf(**longest).time)));
  }
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const double factor = std::max(powers[i] / median_w, median_w / powers[i]);
    if (factor < kUnlikePower) continue;
    warnings.push_back(fmt::format(
        "{}: draws {:.3g} W at {} MHz, but most instructions draw about {:.3g} W (are its "
        "energies those of one GPU, too?)",
        Place(job, *sets[i]), powers[i], BaselineOf(*sets[i]).frequency_mhz, median_w));
    break;
  }
  const auto mhz_of = [](const schedule::OptionSet* set) { return BaselineOf(*set).frequency_mhz; };
  const schedule::OptionSet* highest = *std::ranges::max_element(sets, {}, mhz_of);
  // At a power limit, instructions reach different clocks, and `tune` measures up to these.
  const double limit_w = *std::ranges::max_element(powers);
  const schedule::OptionSet* lowest = highest;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const bool is_at_limit = powers[i] > kAtPowerLimit * limit_w;
    if (!is_at_limit && mhz_of(sets[i]) < mhz_of(lowest)) lowest = sets[i];
  }
  if (mhz_of(highest) > kUnlikeClock * mhz_of(lowest)) {
    warnings.push_back(fmt::format(
        "{}: was measured up to {} MHz, but {} up to {} MHz, so \"maximum frequency\" mixes "
        "both (measure all instructions at the same clocks)",
        Place(job, *lowest), mhz_of(lowest), highest->name, mhz_of(highest)));
  }
}

// Finds a single stage with a forward that takes longer than its backward, if there are at least
// two other stages and the backward takes longer in all of them.
void CheckSwapped(const LoadedJob& job, const Computations& sets,
                  std::vector<std::string>& warnings) {
  struct Stage {
    const schedule::OptionSet* forward = nullptr;
    const schedule::OptionSet* backward = nullptr;
  };
  std::map<std::pair<int, int>, Stage> stages;  // [pp_rank, chunk]
  for (const schedule::OptionSet* set : sets) {
    Stage& stage = stages[{set->pp_rank, set->chunk}];
    if (set->kind == InstructionKind::kForward) stage.forward = set;
    if (set->kind == InstructionKind::kBackward) stage.backward = set;
  }
  const schedule::OptionSet* swapped = nullptr;
  std::size_t usual = 0;
  for (const auto& [place, stage] : stages) {
    if (stage.forward == nullptr || stage.backward == nullptr) return;
    const double ratio = static_cast<double>(BaselineOf(*stage.backward).time) /
                         static_cast<double>(BaselineOf(*stage.forward).time);
    if (ratio >= kUnlikeTimes) {
      ++usual;
    } else if (ratio <= 1 / kUnlikeTimes) {
      swapped = stage.forward;
    }
  }
  if (usual < 2 || usual + 1 != stages.size() || swapped == nullptr) return;
  warnings.push_back(
      fmt::format("{}: takes longer than the backward of this stage, but in all other stages the "
                  "backward takes longer (are forward and backward swapped?)",
                  Place(job, *swapped)));
}

// A waiting GPU draws a third to two thirds of its power while computing.
constexpr double kHighBlockingPower = 0.8;
constexpr double kLeastBlockingW = 1;
// A column is the power if it is within this fraction of energy / time.
constexpr double kPowerTolerance = 0.3;
constexpr std::size_t kMostNamed = 3;

// Finds a computation that draws less than a GPU that waits, at the lowest clock of the
// computation.
void CheckLowestPower(const LoadedJob& job, const Computations& sets,
                      std::vector<std::string>& warnings) {
  const double blocking_w = job.planned.model.blocking_power_w;
  const schedule::OptionSet* least_set = nullptr;
  const profile::Option* least = nullptr;
  const auto power_w = [&](const profile::Option& option) {
    return PowerW(option, job.planned.model.gpus_per_stage);
  };
  for (const schedule::OptionSet* set : sets) {
    const auto& slowest =
        *std::ranges::min_element(set->options, {}, &profile::Option::frequency_mhz);
    if (least != nullptr && power_w(slowest) >= power_w(*least)) continue;
    least_set = set;
    least = &slowest;
  }
  if (least == nullptr || blocking_w <= power_w(*least)) return;
  warnings.push_back(fmt::format(
      "{}: draws {:.1f} W at {} MHz, less than the blocking power of {:g} W, but a GPU that "
      "computes "
      "draws more than one that waits (measure the blocking power of this GPU)",
      Place(job, *least_set, least), power_w(*least), least->frequency_mhz, blocking_w));
}

Result<void> CheckBlockingPower(const LoadedJob& job, const Computations& sets,
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
        InFile(job.planned.profile),
        "the blocking power of {:g} W is not below the power of any instruction at maximum "
        "frequency, which is at most {:.1f} W (give the power of one GPU that waits, in watts, and "
        "energies of one GPU)",
        blocking_w, most_w);
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
  CheckLowestPower(job, sets, warnings);
  return {};
}

std::string InLowerCase(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return lower;
}

bool IsNameOfMeasurement(std::string_view name) {
  constexpr std::string_view kWords[] = {"power",       "watt", "temperature", "temp",
                                         "utilization", "util", "voltage",     "joule"};
  const std::string lower = InLowerCase(name);
  return lower == "w" || std::ranges::any_of(kWords, [&](std::string_view word) {
           return lower.starts_with(word);
         });
}

// A limit, such as power_limit_w, is a setting, although the power of a limited GPU is close to its
// limit.
bool IsNameOfLimit(std::string_view name) {
  const std::string lower = InLowerCase(name);
  return lower.find("limit") != std::string::npos || lower.find("cap") != std::string::npos;
}

struct KnobUse {
  bool differs = false;             // Within an option set.
  bool differs_at_a_clock = false;  // Between options of the same frequency.
  bool is_power = true;             // About energy / time, in all options.
};

KnobUse UseOf(std::size_t knob, const Computations& sets, int gpus) {
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

// Finds additional knobs that are measurements. A sweep of a setting tries several values at the
// same clock. A measurement has only one value for each clock, if each clock was measured once.
Result<void> CheckKnobs(const LoadedJob& job, const Computations& sets,
                        std::vector<std::string>& warnings) {
  const auto& names = job.graph.other_knob_names;
  for (std::size_t knob = 0; knob < names.size(); ++knob) {
    if (!job.graph.knob_labels[knob].empty()) continue;  // Texts are settings.
    const KnobUse use = UseOf(knob, sets, job.planned.model.gpus_per_stage);
    if (!use.differs || use.differs_at_a_clock) continue;
    const bool is_measured = use.is_power || IsNameOfMeasurement(names[knob]);
    if (is_measured && !IsNameOfLimit(names[knob])) {
      return Fail(
          InFile(job.planned.profile),
          "column {} is a measurement, not a setting: it has one value for each frequency{} "
          "(remove the column)",
          Excerpt(names[knob]), use.is_power ? ", about energy / time" : "");
    }
    warnings.push_back(
        fmt::format("{}: column {} is taken for a setting, but it never differs at the same "
                    "frequency (remove the column if it is a measurement)",
                    job.planned.profile, Excerpt(names[knob])));
  }
  return {};
}

// Finds times in milliseconds where seconds are required.
void CheckFixedTimes(const LoadedJob& job, const Computations& sets,
                     std::vector<std::string>& warnings) {
  Nanoseconds longest = 0;  // The time of the longest computation.
  Nanoseconds first_rank = 0;
  for (const schedule::OptionSet* set : sets) longest = std::max(longest, BaselineOf(*set).time);
  for (const int instruction : job.graph.pp_rank_orders.front()) {
    const schedule::OptionSet& set = job.graph.options_of(instruction);
    if (IsComputation(set.kind)) first_rank += BaselineOf(set).time;
  }
  const schedule::PipelineModel& model = job.planned.model;
  const auto check = [&](std::string_view name, Nanoseconds time, Nanoseconds most,
                         std::string_view than) {
    if (time <= most) return;
    warnings.push_back(fmt::format("{} takes {:g} s, longer than {} ({:g} s): is the unit right?",
                                   name, ToSeconds(time), than, ToSeconds(most)));
  };
  constexpr std::string_view kLongest = "the longest computation";
  constexpr std::string_view kAll = "all computations of a pp_rank";
  check("a transfer (p2p)", model.fixed.p2p, longest, kLongest);
  check("the load of a microbatch", model.fixed.load.time, longest, kLongest);
  check("the all-reduce", model.fixed.all_reduce.time, first_rank, kAll);
  check("the optimizer step", model.fixed.optimizer.time, first_rank, kAll);
  if (!job.facts.assumes_stall) {
    check("the stall of a clock change (switch cost)", job.model.switch_cost.stall, first_rank,
          kAll);
  }
  if (!job.facts.assumes_latency) {
    check("a clock change (switch latency)", job.model.switch_latency, first_rank, kAll);
  }
}

void CheckChunks(const LoadedJob& job, std::vector<std::string>& warnings) {
  if (!InterleavesNothing(job.planned.schedule)) return;
  warnings.push_back(fmt::format(
      "the schedule {} has one chunk on each pp_rank, so nothing is interleaved: it only "
      "holds more microbatches than 1f1b (use two chunks, and profile each of them)",
      job.planned.schedule.name));
}

void CheckUsefulOptions(const LoadedJob& job, const Computations& sets,
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
    first = fmt::format("{}: {}, so every plan runs it at {} MHz", Place(job, *set), reason,
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

bool InterleavesNothing(const schedule::Schedule& schedule) {
  return schedule.name.starts_with("interleaved") &&
         schedule.stages() <= static_cast<int>(schedule.pp_ranks.size());
}

Result<std::vector<std::string>> CheckPlausible(const LoadedJob& job) {
  std::vector<std::string> warnings;
  if (job.planned.IsGeneralGraph()) return warnings;
  const Computations sets = ComputationsOf(job);
  PERSEUS_RETURN_IF_ERROR(CheckClocks(job, sets));
  PERSEUS_RETURN_IF_ERROR(CheckRows(job, sets, warnings));
  PERSEUS_RETURN_IF_ERROR(CheckPowers(job, sets));
  if (!job.profile_doubt.empty()) warnings.push_back(job.profile_doubt);
  CheckAlike(job, sets, warnings);
  CheckSwapped(job, sets, warnings);
  PERSEUS_RETURN_IF_ERROR(CheckKnobs(job, sets, warnings));
  PERSEUS_RETURN_IF_ERROR(CheckBlockingPower(job, sets, warnings));
  CheckFixedTimes(job, sets, warnings);
  CheckChunks(job, warnings);
  CheckUsefulOptions(job, sets, warnings);
  return warnings;
}

}  // namespace perseus::job
