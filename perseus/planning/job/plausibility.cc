#include "perseus/planning/job/plausibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/statistics.h"
#include "perseus/base/units.h"
#include "perseus/planning/job/measurement_check.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::job {
namespace {

// A GPU that waits draws a third to two thirds of what it draws while it computes.
constexpr double kHighBlockingPower = 0.8;
constexpr double kLeastBlockingW = 1;
// A column is the power if it is within this fraction of energy / time.
constexpr double kPowerTolerance = 0.3;
constexpr std::size_t kMostNamed = 3;

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

// Such as power_limit_w, although a limited GPU draws about its limit.
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

// A sweep of a setting tries several values at the same clock. A measurement has one value for each
// clock, if each clock was measured once.
Result<void> CheckKnobs(const LoadedJob& job, const Computations& sets,
                        std::vector<std::string>& warnings) {
  const auto& names = job.graph.other_knob_names;
  for (std::size_t knob = 0; knob < names.size(); ++knob) {
    const KnobUse use = UseOf(knob, sets, job.planned.model.gpus_per_stage);
    if (!use.differs || use.differs_at_a_clock) continue;
    const bool is_measured = use.is_power || IsNameOfMeasurement(names[knob]);
    if (is_measured && !IsNameOfLimit(names[knob])) {
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

// Times in milliseconds where seconds are asked for.
void CheckFixedTimes(const LoadedJob& job, const Computations& sets,
                     std::vector<std::string>& warnings) {
  Nanoseconds longest = 0;  // Of a computation.
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
  check("the stall of a clock change (switch cost)", job.model.switch_cost.stall, first_rank, kAll);
  check("a clock change (switch latency)", job.model.switch_latency, first_rank, kAll);
}

void CheckChunks(const LoadedJob& job, std::vector<std::string>& warnings) {
  const schedule::Schedule& schedule = job.planned.schedule;
  if (!schedule.name.starts_with("interleaved")) return;
  if (schedule.stages() > static_cast<int>(schedule.pp_ranks.size())) return;
  warnings.push_back(
      fmt::format("the schedule {} has one chunk on each pp_rank, so nothing is interleaved (use "
                  "two chunks, and profile each of them)",
                  schedule.name));
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
  const Computations sets = ComputationsOf(job);
  PERSEUS_RETURN_IF_ERROR(CheckMeasurements(job, sets, warnings));
  PERSEUS_RETURN_IF_ERROR(CheckKnobs(job, sets, warnings));
  PERSEUS_RETURN_IF_ERROR(CheckBlockingPower(job, sets, warnings));
  CheckFixedTimes(job, sets, warnings);
  CheckChunks(job, warnings);
  CheckUsefulOptions(job, sets, warnings);
  return warnings;
}

}  // namespace perseus::job
