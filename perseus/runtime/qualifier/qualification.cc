#include "perseus/runtime/qualifier/qualification.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "perseus/base/limits.h"
#include "perseus/base/statistics.h"
#include "perseus/runtime/qualifier/qualify_run.h"

namespace perseus::qualifier {
namespace {

using device::Control;
using device::DeviceErrorKind;
using device::Setting;

// The parts of the duration. The comment of the header has the same numbers. Interference, which
// takes the rest, has a number of blocks instead.
constexpr double kCounter = 0.10, kPower = 0.25, kSwitches = 0.25;

// The near clock as a fraction of the top clock. A near switch must be large enough to see in the
// rate of a kernel. The noise of this rate is about half a percent for each sample.
constexpr double kNearPart = 0.97;

// The limits beyond which a GPU differs (Siblings).
constexpr double kMostMads = 5;
constexpr double kLeastPart = 0.1;
constexpr double kLeastFractionBound = 0.01;  // Fractions may be near 0.

std::string Text(double value, std::string_view unit) {
  return unit == "%" ? fmt::format("{:.3g} %", value * 100) : fmt::format("{:.4g} {}", value, unit);
}

std::vector<std::string> NamesOf(const MeasuredNode& node) {
  std::vector<std::string> names;
  for (const device::Device* gpu : node.devices()) names.push_back(gpu->info().uuid);
  return names;
}

// Whether this error means that the driver refuses the call. It then also refuses later calls.
bool IsRefusal(DeviceErrorKind kind) {
  return kind == DeviceErrorKind::kPermission || kind == DeviceErrorKind::kNotSupported;
}

// Checks that all GPUs are of one kind, because facts are for one kind, and all GPUs get the same
// clocks.
Result<void> CheckKinds(QualifyRun& run) {
  const device::DeviceInfo& first = run.node.device(0).info();
  for (const device::Device* gpu : run.node.devices()) {
    const device::DeviceInfo& info = gpu->info();
    if (info.name == first.name && info.sm_clocks_mhz == first.sm_clocks_mhz) continue;
    return FailAs(ErrorKind::kSystem,
                  "{} ({}) and {} ({}) are different kinds of GPU, or have different clocks "
                  "(measure each kind alone: `gpu = UUID`)",
                  first.uuid, first.name, info.uuid, info.name);
  }
  return {};
}

void CheckLoads(QualifyRun& run) {
  for (const Load load : {Load::kCompute, Load::kBlocked}) {
    const std::string why = run.node.WhyNot(load);
    if (why.empty()) continue;
    run.Limit(fmt::format("No kernel that {} runs: {}.",
                          load == Load::kCompute ? "computes" : "waits", why));
  }
}

// Checks whether clocks can be set. For this check, sets a clock that the qualification would set
// in any case. If the driver refuses, everything else is measured without setting clocks.
Result<void> CheckRights(QualifyRun& run) {
  if (!run.can_set) return {};
  for (int gpu = 0; gpu < run.node.gpu_count(); ++gpu) {
    const device::DeviceInfo& info = run.node.device(gpu).info();
    std::string why = info.measure_only;
    if (why.empty() && !info.sm_clocks_mhz.empty()) {
      const int top_mhz = info.sm_clocks_mhz.back();
      const auto applied = run.node.device(gpu).Apply(Control::kSmClock, Setting{top_mhz, top_mhz});
      if (applied) {
        run.result.has_set_clocks = true;
        continue;
      }
      if (!IsRefusal(applied.error().kind)) return Fail(applied);
      why = applied.error().Message();
    }
    run.can_set = false;
    for (int set = 0; set < gpu; ++set) {
      PERSEUS_RETURN_IF_ERROR(run.node.device(set).Apply(Control::kSmClock, std::nullopt));
    }
    run.Limit(fmt::format("This user may not set clocks, so no clock was set: {}.",
                          why.empty() ? "the driver lists no clocks" : why));
    return {};
  }
  return {};
}

void CheckClocks(QualifyRun& run) {
  const auto clocks = ChooseSwitchClocks(run.clocks_mhz(), kHighestFrequencyMhz);
  if (clocks) {
    run.clocks = *clocks;
  } else if (run.can_set) {
    run.can_set = false;
    run.Limit("The driver lists fewer than three SM clocks, so no clock was set.");
  }
}

// Ends the trials of energy counters, and checks that power and clocks can be read. A driver that
// refuses this read will also refuse later reads.
Result<void> CheckReadings(QualifyRun& run) {
  const auto readings = device::EndTrials(run.node.devices(), run.node.clock());
  for (std::size_t i = 0; i < readings.size(); ++i) {
    const auto& read = readings[i];
    if (!read && !IsRefusal(read.error().kind)) return Fail(read);
    if (read && HasPower(*read)) continue;
    run.can_read = false;
    run.Limit(
        !read ? fmt::format(
                    "The driver refuses readings, so neither power nor energy was measured: {}.",
                    read.error().Message())
              : fmt::format("No power was measured: {} {}.", run.node.devices()[i]->info().uuid,
                            read->power_w ? "reports the power of its whole module"
                                          : "does not report its power"));
    return {};
  }
  return {};
}

// Finds what can be measured: sets can_set, can_read and clocks of `run`, and adds a limit for each
// measurement that is impossible.
Result<void> CheckNode(QualifyRun& run) {
  PERSEUS_RETURN_IF_ERROR(CheckKinds(run));
  if (!run.options.sets_clocks) {
    run.Limit("The clocks were not set, because the measurement was run without clocks.");
  }
  CheckLoads(run);
  PERSEUS_RETURN_IF_ERROR(CheckRights(run));
  CheckClocks(run);
  return CheckReadings(run);
}

Result<void> MeasureAll(QualifyRun& run) {
  if (run.can_read) {
    PERSEUS_RETURN_IF_ERROR(MeasureCounter(run, kCounter));
    PERSEUS_RETURN_IF_ERROR(MeasurePower(run, kPower));
  }
  // Without a kernel, only readings can show a switch.
  const bool is_seen = run.can_read || run.BusyLoad() == Load::kCompute;
  if (run.can_set && is_seen) PERSEUS_RETURN_IF_ERROR(MeasureSwitches(run, kSwitches));
  return MeasureInterference(run);
}

}  // namespace

std::optional<SwitchClocks> ChooseSwitchClocks(const std::vector<int>& clocks_mhz, int most_mhz) {
  const auto end = std::ranges::upper_bound(clocks_mhz, most_mhz);
  if (end - clocks_mhz.begin() < 3) return std::nullopt;
  SwitchClocks clocks;
  clocks.top_mhz = *(end - 1);
  clocks.below_mhz = *(end - 2);
  // The first clock below the top clock that is at least 3 % lower.
  const auto above = std::upper_bound(clocks_mhz.begin(), end, kNearPart * clocks.top_mhz);
  clocks.near_mhz = above == clocks_mhz.begin() ? clocks_mhz.front() : *(above - 1);
  clocks.far_mhz = NearestTo(clocks_mhz, kFarPart * clocks.top_mhz);
  if (clocks.far_mhz >= clocks.near_mhz) clocks.far_mhz = clocks_mhz.front();
  if (clocks.near_mhz <= clocks.far_mhz) return std::nullopt;
  return clocks;
}

std::optional<Estimate> Siblings::Combine(const std::string& what, std::string_view unit,
                                          const std::vector<std::optional<Estimate>>& estimates) {
  std::vector<double> values;
  for (const auto& estimate : estimates) {
    if (!estimate) return std::nullopt;
    values.push_back(estimate->value);
  }
  if (values.empty()) return std::nullopt;
  const double median = Median(values);
  const bool are_two = values.size() == 2;
  // Two GPUs are compared with each other, so they have no deviation.
  const double bound =
      std::max({are_two ? 0 : kMostMads * MedianDeviation(values, median),
                kLeastPart * std::abs(median), unit == "%" ? kLeastFractionBound : 0});
  std::vector<Estimate> usual;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Estimate& estimate = *estimates[i];
    if (are_two || std::max(estimate.low - median, median - estimate.high) <= bound) {
      usual.push_back(estimate);
    } else {
      Add(names_[i],
          fmt::format(" differs from its siblings: its {} is {}, and the median of {} GPUs is {}.",
                      what, Text(estimate.value, unit), values.size(), Text(median, unit)));
    }
  }
  if (are_two && std::max(usual[0].low - usual[1].high, usual[1].low - usual[0].high) > bound) {
    Add(fmt::format("{} and {}", names_[0], names_[1]),
        fmt::format(" differ: the {} is {} on the one and {} on the other.", what,
                    Text(usual[0].value, unit), Text(usual[1].value, unit)));
  }
  return hardware_facts::Combine(usual);
}

void Siblings::Add(const std::string& who, std::string difference) {
  if (std::ranges::count(named_, who) > 0) return;
  named_.push_back(who);
  differences_.push_back(who + std::move(difference));
}

QualifyRun::QualifyRun(MeasuredNode& measured, const QualifyOptions& wanted)
    : node(measured),
      options(wanted),
      begin(measured.clock().Now()),
      can_set(wanted.sets_clocks),
      siblings(NamesOf(measured)) {}

void QualifyRun::Progress(std::string_view label) const {
  const double spent = ToSeconds(node.clock().Now() - begin) / options.duration_s;
  options.progress(label, std::min(spent, 1.0));
}

void QualifyRun::Limit(std::string sentence) {
  auto& limits = result.facts.limits;
  if (std::find(limits.begin(), limits.end(), sentence) == limits.end()) {
    limits.push_back(std::move(sentence));
  }
}

Result<void> QualifyRun::CheckStop() const {
  if (!options.should_stop()) return {};
  return FailAs(ErrorKind::kSystem, "the measurement was interrupted, so it has no result");
}

Load QualifyRun::BusyLoad() const {
  return node.WhyNot(Load::kCompute).empty() ? Load::kCompute : Load::kIdle;
}

Nanoseconds QualifyRun::DurationOf(double fraction) const {
  return static_cast<Nanoseconds>(options.duration_s * fraction * kSecond);
}

Result<Qualification> Qualify(MeasuredNode& node, const QualifyOptions& options) {
  QualifyRun run(node, options);
  run.result.facts.gpu_name = node.device(0).info().name;
  run.result.facts.gpu_count = node.gpu_count();
  PERSEUS_RETURN_IF_ERROR(CheckNode(run));
  PERSEUS_RETURN_IF_ERROR(MeasureAll(run));
  for (const std::string& difference : run.siblings.differences()) run.Limit(difference);
  options.progress("done", 1);
  return std::move(run.result);
}

}  // namespace perseus::qualifier
