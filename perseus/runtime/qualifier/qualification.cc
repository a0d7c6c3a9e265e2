#include "perseus/runtime/qualifier/qualification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "perseus/runtime/qualifier/energy_counter.h"
#include "perseus/runtime/qualifier/interference.h"
#include "perseus/runtime/qualifier/statistics.h"

namespace perseus::qualifier {
namespace {

using device::Control;
using device::DeviceError;
using device::DeviceErrorKind;
using device::Setting;
using hardware_facts::Direction;

// Parts of the duration; the comment of the header has the same numbers.
constexpr double kCounterPart = 0.10;
constexpr double kPowerPart = 0.25;
constexpr double kSwitchPart = 0.30;

// A near switch is large enough to see in the rate of a kernel, whose noise is about half a percent
// per sample. A far one stays above the clocks at which GPUs change the memory clock, too.
constexpr double kNearPart = 0.97;
constexpr double kFarPart = 0.4;

constexpr Nanoseconds kBeforeSwitch = 5 * kMillisecond;
constexpr Nanoseconds kAfterSwitch = 30 * kMillisecond;
constexpr Nanoseconds kLongestSwitch = 2 * kSecond;
constexpr int kLeastRounds = 8;
constexpr int kMostRounds = 80;  // Encloses the 95th percentile (IsEnclosed).
constexpr int kMostUnseen = 4;

constexpr int kPowerClocks = 5;
// NVML averages the power of some GPUs over a second.
constexpr Nanoseconds kPowerSettles = 1'500 * kMillisecond;
constexpr Nanoseconds kBetweenPowerReadings = 2 * kMillisecond;
constexpr Nanoseconds kLeastPowerWindow = 1'500 * kMillisecond;
constexpr int kPowerBlocks = 10;

constexpr Nanoseconds kChangePeriods[] = {
    1000 * kMillisecond, 500 * kMillisecond, 200 * kMillisecond, 100 * kMillisecond,
    50 * kMillisecond,   20 * kMillisecond,  10 * kMillisecond};
constexpr Nanoseconds kQuietBlock = 250 * kMillisecond;
constexpr int kLeastPairs = 4;
constexpr double kUsualPairs = 5;
constexpr double kUsualDuration = 300;

double AsMs(Nanoseconds time) { return static_cast<double>(time) / kMillisecond; }

// The clock of the list that is nearest to the wanted one.
int NearestClock(const std::vector<int>& clocks_mhz, double wanted_mhz) {
  return *std::min_element(clocks_mhz.begin(), clocks_mhz.end(), [&](int a, int b) {
    return std::abs(a - wanted_mhz) < std::abs(b - wanted_mhz);
  });
}

struct SwitchClocks {
  int top_mhz = 0, near_mhz = 0, far_mhz = 0;
};

// Empty if the GPU has fewer than three different clocks.
std::optional<SwitchClocks> ChooseClocks(const std::vector<int>& clocks_mhz) {
  if (clocks_mhz.size() < 3) return std::nullopt;
  SwitchClocks clocks;
  clocks.top_mhz = clocks_mhz.back();
  // The first clock below the top that is at least 3 % lower.
  const auto above =
      std::upper_bound(clocks_mhz.begin(), clocks_mhz.end(), kNearPart * clocks.top_mhz);
  clocks.near_mhz = above == clocks_mhz.begin() ? clocks_mhz.front() : *(above - 1);
  clocks.far_mhz = NearestClock(clocks_mhz, kFarPart * clocks.top_mhz);
  if (clocks.far_mhz >= clocks.near_mhz) clocks.far_mhz = clocks_mhz.front();
  if (clocks.near_mhz <= clocks.far_mhz) return std::nullopt;
  return clocks;
}

// The whole measurement. A step returns an error only if the whole measurement has to end.
class Qualifying {
 public:
  Qualifying(MeasuredNode& node, const QualifyOptions& options)
      : node_(node), options_(options), can_set_(options.sets_clocks) {
    all_gpus_.resize(static_cast<std::size_t>(node.gpu_count()));
    std::iota(all_gpus_.begin(), all_gpus_.end(), 0);
  }

  Result<Qualification> Run() {
    const device::DeviceInfo& info = node_.device(0).info();
    result_.facts.gpu_name = info.name;
    result_.facts.gpu_count = node_.gpu_count();
    if (!options_.sets_clocks) {
      Limit("The clocks were not set, because the measurement was run without clocks.");
    }
    for (const Load load : {Load::kCompute, Load::kBlocked}) {
      const std::string why = node_.WhyNot(load);
      if (!why.empty()) {
        Limit(fmt::format("No kernel that {} runs: {}.",
                          load == Load::kCompute ? "computes" : "waits", why));
      }
    }
    PERSEUS_RETURN_IF_ERROR(CheckRights());
    const auto clocks = ChooseClocks(info.sm_clocks_mhz);
    if (can_set_ && !clocks) {
      can_set_ = false;
      Limit("The driver lists fewer than three SM clocks, so no clock was set.");
    }
    if (clocks) clocks_ = *clocks;

    options_.progress("energy counter", 0);
    PERSEUS_RETURN_IF_ERROR(MeasureCounter());
    PERSEUS_RETURN_IF_ERROR(MeasurePowers(info));
    if (can_set_) PERSEUS_RETURN_IF_ERROR(MeasureSwitches());
    PERSEUS_RETURN_IF_ERROR(MeasureInterference());
    options_.progress("done", 1);
    return std::move(result_);
  }

 private:
  void Limit(std::string sentence) {
    auto& limits = result_.facts.limits;
    if (std::find(limits.begin(), limits.end(), sentence) == limits.end()) {
      limits.push_back(std::move(sentence));
    }
  }

  Result<void> CheckStop() const {
    if (!options_.should_stop()) return {};
    return FailAs(ErrorKind::kSystem, "the measurement was interrupted, so it has no result");
  }

  template <typename T>
  static Result<T> Pass(device::DeviceResult<T> result) {
    if (!result) return FailAs(ErrorKind::kSystem, "{}", result.error().message);
    return *std::move(result);
  }

  // Sets the clock of all GPUs to what it would be set to anyway. If the driver refuses, the rest
  // is measured without clocks.
  Result<void> CheckRights() {
    if (!can_set_) return {};
    for (const int gpu : all_gpus_) {
      const device::DeviceInfo& info = node_.device(gpu).info();
      std::string why = info.measure_only;
      if (why.empty() && !info.sm_clocks_mhz.empty()) {
        const int top_mhz = info.sm_clocks_mhz.back();
        const auto applied = node_.device(gpu).Apply(Control::kSmClock, Setting{top_mhz, top_mhz});
        if (applied) {
          result_.has_set_clocks = true;
          continue;
        }
        const DeviceErrorKind kind = applied.error().kind;
        why = applied.error().message;
        if (kind != DeviceErrorKind::kPermission && kind != DeviceErrorKind::kNotSupported) {
          return FailAs(ErrorKind::kSystem, "{}", why);
        }
      }
      can_set_ = false;
      Limit(fmt::format("This user may not set clocks, so no clock was set: {}.",
                        why.empty() ? "the driver lists no clocks" : why));
      return {};
    }
    return {};
  }

  Result<void> Lock(int gpu, const Setting& setting) {
    const auto applied = node_.device(gpu).Apply(Control::kSmClock, setting);
    if (!applied) return FailAs(ErrorKind::kSystem, "{}", applied.error().message);
    return {};
  }

  Result<void> LockAll(int mhz) {
    for (const int gpu : all_gpus_) PERSEUS_RETURN_IF_ERROR(Lock(gpu, {mhz, mhz}));
    return {};
  }

  Result<void> RunOnAll(Load load) {
    for (const int gpu : all_gpus_) PERSEUS_RETURN_IF_ERROR(node_.Run(gpu, load));
    return {};
  }

  Load BusyLoad() const {
    return node_.WhyNot(Load::kCompute).empty() ? Load::kCompute : Load::kIdle;
  }

  // ---- Energy counter and power ----

  Result<std::vector<CounterReading>> ReadFor(Nanoseconds window) {
    std::vector<CounterReading> readings;
    const Nanoseconds end = node_.clock().Now() + window;
    while (node_.clock().Now() < end) {
      PERSEUS_RETURN_IF_ERROR(CheckStop());
      PERSEUS_ASSIGN_OR_RETURN(const auto telemetry, Pass(node_.device(0).Read()));
      readings.push_back({telemetry.at, telemetry.energy_j, telemetry.power_w});
      is_integrated_ = telemetry.is_energy_integrated;
      seen_mhz_ = telemetry.sm_clock_mhz;
      seen_limits_.bits |= telemetry.limits.bits;
      Sleep(node_.clock(), kBetweenPowerReadings);
    }
    return readings;
  }

  Result<void> MeasureCounter() {
    PERSEUS_RETURN_IF_ERROR(node_.Run(0, BusyLoad()));
    Sleep(node_.clock(), kPowerSettles);
    const auto window = static_cast<Nanoseconds>(options_.duration_s * kCounterPart * kSecond);
    PERSEUS_ASSIGN_OR_RETURN(const auto readings, ReadFor(std::max(window, 2 * kSecond)));
    PERSEUS_RETURN_IF_ERROR(node_.Run(0, Load::kIdle));
    if (is_integrated_) {
      Limit("The GPU has no energy counter. Energy is integrated from power readings.");
      return {};
    }
    const auto findings = ExamineCounter(readings);
    if (!findings) {
      Limit("The energy counter changed too rarely to be examined.");
      return {};
    }
    result_.facts.energy_counter =
        hardware_facts::EnergyCounterFacts{.period_ms = findings->period_ms,
                                           .resolution_j = findings->resolution_j,
                                           .bias = findings->bias};
    return {};
  }

  Result<std::optional<Estimate>> MeasurePower(Nanoseconds window) {
    Sleep(node_.clock(), kPowerSettles);
    PERSEUS_ASSIGN_OR_RETURN(const auto readings, ReadFor(window));
    std::optional<Estimate> power;
    if (!is_integrated_) power = PowerByCounter(readings, kPowerBlocks);
    if (!power) {  // Power readings, in as many blocks.
      std::vector<double> blocks;
      const std::size_t size = std::max<std::size_t>(1, readings.size() / kPowerBlocks);
      for (std::size_t from = 0; from + size <= readings.size(); from += size) {
        double sum = 0;
        for (std::size_t i = from; i < from + size; ++i) sum += readings[i].power_w;
        blocks.push_back(sum / static_cast<double>(size));
      }
      power = MeanOf(blocks);
    }
    if (power) power->low = std::max(0.0, power->low);
    return power;
  }

  Result<void> MeasurePowers(const device::DeviceInfo& info) {
    std::vector<int> clocks_mhz;  // From the highest one down. 0: the driver chooses.
    if (can_set_) {
      for (int i = 0; i < kPowerClocks; ++i) {
        const double part = 1 - (1 - kFarPart) * i / (kPowerClocks - 1);
        clocks_mhz.push_back(NearestClock(info.sm_clocks_mhz, part * clocks_.top_mhz));
      }
      clocks_mhz.erase(std::unique(clocks_mhz.begin(), clocks_mhz.end()), clocks_mhz.end());
    } else {
      clocks_mhz.push_back(0);
    }
    const double windows = 3.0 * static_cast<double>(clocks_mhz.size()) + 2;
    const auto window =
        std::max(kLeastPowerWindow,
                 static_cast<Nanoseconds>(options_.duration_s * kPowerPart * kSecond / windows) -
                     kPowerSettles);
    for (std::size_t i = 0; i < clocks_mhz.size(); ++i) {
      options_.progress("power", kCounterPart + kPowerPart * static_cast<double>(i) /
                                                    static_cast<double>(clocks_mhz.size()));
      PERSEUS_RETURN_IF_ERROR(MeasurePowersAt(clocks_mhz[i], window));
    }
    return can_set_ ? CompareRangeLock(window) : Result<void>();
  }

  Result<void> MeasurePowersAt(int clock_mhz, Nanoseconds window) {
    hardware_facts::PowerFacts power{
        .sm_clock_mhz = clock_mhz, .idle_w = {}, .blocked_w = {}, .busy_w = {}};
    if (clock_mhz != 0) PERSEUS_RETURN_IF_ERROR(Lock(0, {clock_mhz, clock_mhz}));
    for (const Load load : {Load::kIdle, Load::kBlocked, Load::kCompute}) {
      if (!node_.WhyNot(load).empty()) continue;
      PERSEUS_RETURN_IF_ERROR(node_.Run(0, load));
      seen_limits_ = {};
      PERSEUS_ASSIGN_OR_RETURN(auto measured, MeasurePower(window));
      if (load == Load::kIdle) power.idle_w = measured;
      if (load == Load::kBlocked) power.blocked_w = measured;
      if (load == Load::kCompute) {
        power.busy_w = measured;
        NoteLimits(clock_mhz);
      }
    }
    PERSEUS_RETURN_IF_ERROR(node_.Run(0, Load::kIdle));
    if (clock_mhz == 0) {
      power.sm_clock_mhz = seen_mhz_;
      Limit(fmt::format("Power was measured without a locked clock, which stood at {} MHz.",
                        seen_mhz_));
    }
    if (power.sm_clock_mhz > 0) result_.facts.power.push_back(power);
    return {};
  }

  void NoteLimits(int clock_mhz) {
    device::ClockLimits others;
    for (const auto limit : {device::ClockLimit::kPowerCap, device::ClockLimit::kThermal,
                             device::ClockLimit::kPowerBrake, device::ClockLimit::kOther}) {
      if (seen_limits_.Has(limit)) others.Add(limit);
    }
    if (others.bits == 0) return;
    Limit(fmt::format("Under load{}, the clock is lowered (to {} MHz at last) by: {}.",
                      clock_mhz == 0 ? "" : fmt::format(" at {} MHz", clock_mhz), seen_mhz_,
                      device::Describe(others)));
  }

  // Whether a lock from the lowest to the top clock draws less than a lock at the top clock, while
  // the GPU waits.
  Result<void> CompareRangeLock(Nanoseconds window) {
    if (!node_.WhyNot(Load::kBlocked).empty()) return {};
    const int lowest_mhz = node_.device(0).info().sm_clocks_mhz.front();
    PERSEUS_RETURN_IF_ERROR(node_.Run(0, Load::kBlocked));
    PERSEUS_RETURN_IF_ERROR(Lock(0, {clocks_.top_mhz, clocks_.top_mhz}));
    PERSEUS_ASSIGN_OR_RETURN(const auto exact, MeasurePower(window));
    PERSEUS_RETURN_IF_ERROR(Lock(0, {lowest_mhz, clocks_.top_mhz}));
    PERSEUS_ASSIGN_OR_RETURN(const auto range, MeasurePower(window));
    PERSEUS_RETURN_IF_ERROR(Lock(0, {clocks_.top_mhz, clocks_.top_mhz}));
    PERSEUS_RETURN_IF_ERROR(node_.Run(0, Load::kIdle));
    if (!exact || !range) return {};
    result_.facts.range_lock_saves = range->high < exact->low;
    if (*result_.facts.range_lock_saves) {
      Limit(
          fmt::format("A waiting GPU draws {:.1f} W with a lock from {} to {} MHz, and {:.1f} W "
                      "with a lock at {} MHz.",
                      range->value, lowest_mhz, clocks_.top_mhz, exact->value, clocks_.top_mhz));
    }
    return {};
  }

  // ---- Switches ----

  struct SwitchCase {
    Direction direction;
    bool is_far;
    int from_mhz, to_mhz;
    std::vector<double> latencies_ms, calls_ms;
    int unseen = 0;
  };

  Result<void> MeasureSwitches() {
    PERSEUS_RETURN_IF_ERROR(RunOnAll(BusyLoad()));
    PERSEUS_RETURN_IF_ERROR(LockAll(clocks_.top_mhz));
    const int variants = node_.gpu_count() > 1 ? 2 : 1;
    const double part = kSwitchPart / variants;
    for (int i = 0; i < variants; ++i) {
      PERSEUS_RETURN_IF_ERROR(MeasureSwitchesOf(i == 0 ? std::vector{0} : all_gpus_, i == 1,
                                                kCounterPart + kPowerPart + part * i, part));
    }
    if (has_few_switches_) {
      Limit(
          "Some cases have fewer than 72 switches, too few for an upper bound of their 95th "
          "percentile.");
    }
    PERSEUS_RETURN_IF_ERROR(LockAll(clocks_.top_mhz));
    return RunOnAll(Load::kIdle);
  }

  Result<void> MeasureSwitchesOf(const std::vector<int>& gpus, bool are_all, double from,
                                 double part) {
    const auto [top, near, far] = clocks_;
    std::vector<SwitchCase> cases = {{Direction::kDown, true, top, far, {}, {}},
                                     {Direction::kUp, true, far, top, {}, {}},
                                     {Direction::kDown, false, top, near, {}, {}},
                                     {Direction::kUp, false, near, top, {}, {}}};
    // The last lock may still be on its way.
    Sleep(node_.clock(), kLongestSwitch);
    const Nanoseconds begin = node_.clock().Now();
    const double budget = options_.duration_s * part * kSecond;
    for (int round = 0; round < kMostRounds; ++round) {
      const double spent = static_cast<double>(node_.clock().Now() - begin) / budget;
      if (round >= kLeastRounds && spent >= 1) break;
      options_.progress(are_all ? "switches of all GPUs" : "switches of one GPU",
                        from + part * std::min(spent, 1.0));
      for (SwitchCase& one : cases) PERSEUS_RETURN_IF_ERROR(MeasureSwitch(gpus, one));
      const int unseen = std::accumulate(cases.begin(), cases.end(), 0,
                                         [](int sum, const auto& c) { return sum + c.unseen; });
      if (unseen >= kMostUnseen && cases[0].latencies_ms.empty()) break;
    }
    for (SwitchCase& one : cases) AddSwitchFacts(one, are_all);
    return {};
  }

  // One switch. Of several GPUs, the slowest counts, so that samples are independent.
  Result<void> MeasureSwitch(const std::vector<int>& gpus, SwitchCase& one) {
    PERSEUS_RETURN_IF_ERROR(CheckStop());
    PERSEUS_ASSIGN_OR_RETURN(auto records, Pass(node_.Switch(gpus, Setting{one.to_mhz, one.to_mhz},
                                                             kBeforeSwitch, kAfterSwitch)));
    const double ratio = static_cast<double>(one.to_mhz) / one.from_mhz;
    Nanoseconds watched = kAfterSwitch;
    std::optional<Nanoseconds> slowest;
    while (true) {
      slowest = 0;
      for (const SwitchRecord& record : records) {
        const auto landing = FindLanding(record.samples, {record.call_begin, ratio});
        // Without work after the landing, the landing may be noise of the last samples.
        const bool is_sure = landing && record.samples.back().at - *landing >= kBeforeSwitch;
        if (!is_sure) {
          slowest.reset();
          break;
        }
        slowest = std::max(*slowest, *landing - record.call_begin);
      }
      if (slowest || watched >= kLongestSwitch) break;
      PERSEUS_ASSIGN_OR_RETURN(const auto more, Pass(node_.Watch(gpus, watched)));
      for (std::size_t i = 0; i < records.size(); ++i) {
        records[i].samples.insert(records[i].samples.end(), more[i].begin(), more[i].end());
      }
      watched *= 2;
    }
    Nanoseconds call = 0;
    for (const SwitchRecord& record : records) {
      call = std::max(call, record.call_end - record.call_begin);
      const auto& samples = record.samples;
      if (samples.size() < 2) continue;
      const double distance_ms =
          AsMs(samples.back().at - samples.front().at) / static_cast<double>(samples.size() - 1);
      sample_distance_ms_ = std::max(sample_distance_ms_, distance_ms);
    }
    one.calls_ms.push_back(AsMs(call));
    if (slowest) {
      one.latencies_ms.push_back(AsMs(*slowest));
    } else {
      ++one.unseen;
    }
    return {};
  }

  void AddSwitchFacts(SwitchCase& one, bool are_all) {
    const std::string name = fmt::format("{} switches {} of {}", one.is_far ? "far" : "near",
                                         one.direction == Direction::kUp ? "up" : "down",
                                         are_all ? "all GPUs" : "one GPU");
    if (one.unseen > 0) {
      Limit(fmt::format("{} of {} {} were not seen in the work of the GPU within {:.0f} s.",
                        one.unseen, one.calls_ms.size(), name, ToSeconds(kLongestSwitch)));
    }
    auto latency = MedianOf(one.latencies_ms);
    const auto call = MedianOf(one.calls_ms);
    if (!latency || !call) return;
    // A landing lies between two samples.
    latency->low = std::max(0.0, latency->low - sample_distance_ms_);
    latency->high += sample_distance_ms_;
    if (!IsEnclosed(static_cast<int>(one.latencies_ms.size()), 0.95)) has_few_switches_ = true;
    result_.facts.switches.push_back({.direction = one.direction,
                                      .is_far = one.is_far,
                                      .all_gpus = are_all,
                                      .latency_ms = *latency,
                                      .p95_latency_ms = QuantileOf(one.latencies_ms, 0.95)->value,
                                      .call_ms = *call});
    result_.latencies.push_back({one.direction, one.is_far, are_all, std::move(one.latencies_ms)});
  }

  // ---- Interference ----

  Result<void> MeasureInterference() {
    double from = kCounterPart + kPowerPart + kSwitchPart;
    const double part = (1 - from) / static_cast<double>(std::size(kAllOperations));
    std::optional<double> greatest;
    for (const Operation operation : kAllOperations) {
      options_.progress(fmt::format("interference: {}", NameOf(operation)), from);
      from += part;
      const std::string why = node_.WhyNot(operation);
      if (!why.empty()) {
        Limit(fmt::format("The operation \"{}\" was not measured: {}.", NameOf(operation), why));
        continue;
      }
      if (operation == Operation::kHostFunction) {
        PERSEUS_RETURN_IF_ERROR(MeasureHostFunction());
        continue;
      }
      PERSEUS_ASSIGN_OR_RETURN(const auto rates, MeasureOperation(operation));
      if (rates.empty()) continue;
      const double harmless = GreatestHarmlessRate(rates);
      if (harmless == 0) {
        Limit(fmt::format("Even {:.3g} changes a second harm the operation \"{}\".",
                          rates.front().changes_per_s, NameOf(operation)));
      }
      greatest = std::min(greatest.value_or(harmless), harmless);
    }
    result_.facts.max_changes_per_s = greatest;
    return {};
  }

  int Pairs() const {
    const double pairs = kUsualPairs * options_.duration_s / kUsualDuration;
    return std::max(kLeastPairs, static_cast<int>(std::lround(pairs)));
  }

  // The clocks between which the changes alternate are neighbors.
  Disturbance Quiet() const {
    if (!can_set_) return {};
    const auto& clocks_mhz = node_.device(0).info().sm_clocks_mhz;
    return {.change_period = 0,
            .first_mhz = clocks_mhz.back(),
            .second_mhz = clocks_mhz[clocks_mhz.size() - 2],
            .reads_per_s = 0};
  }

  Result<std::optional<Estimate>> Compare(Operation operation, const Disturbance& quiet,
                                          const Disturbance& disturbed) {
    std::vector<BlockPair> pairs;
    // Whole periods, so that every block has the same number of changes.
    const Nanoseconds period = std::max<Nanoseconds>(disturbed.change_period, 1);
    const Nanoseconds block =
        period == 1 ? kQuietBlock : period * std::max<Nanoseconds>(2, kQuietBlock / period);
    for (int i = 0; i < Pairs(); ++i) {
      PERSEUS_RETURN_IF_ERROR(CheckStop());
      BlockPair pair;
      PERSEUS_ASSIGN_OR_RETURN(pair.quiet_ns, node_.Time(operation, quiet, kQuietBlock));
      PERSEUS_ASSIGN_OR_RETURN(pair.disturbed_ns, node_.Time(operation, disturbed, block));
      pairs.push_back(pair);
    }
    auto slowdown = SlowdownOf(pairs);
    if (slowdown) slowdown->low = std::max(-1.0, slowdown->low);
    return slowdown;
  }

  // The node's rate: every GPU changes once a period.
  double ChangesPerSecond(Nanoseconds period) const {
    return period == 0 ? 0 : node_.gpu_count() / ToSeconds(period);
  }

  Result<std::vector<RateSlowdown>> MeasureOperation(Operation operation) {
    std::vector<RateSlowdown> rates;
    const Disturbance quiet = Quiet();
    const auto add = [&](const Disturbance& disturbed) -> Result<void> {
      PERSEUS_ASSIGN_OR_RETURN(const auto slowdown, Compare(operation, quiet, disturbed));
      if (!slowdown) return {};
      const double changes_per_s = ChangesPerSecond(disturbed.change_period);
      result_.facts.interference.push_back({.kind = std::string(NameOf(operation)),
                                            .changes_per_s = changes_per_s,
                                            .reads_per_s = disturbed.reads_per_s,
                                            .slowdown = *slowdown});
      if (disturbed.change_period > 0) rates.push_back({changes_per_s, *slowdown});
      return {};
    };
    Disturbance disturbed = quiet;
    disturbed.reads_per_s = options_.reads_per_s;
    PERSEUS_RETURN_IF_ERROR(add(disturbed));
    disturbed.reads_per_s = 0;
    if (!can_set_) return rates;
    for (const Nanoseconds period : kChangePeriods) {
      disturbed.change_period = period;
      PERSEUS_RETURN_IF_ERROR(add(disturbed));
    }
    return rates;
  }

  // What a launch behind a host function costs more than a launch.
  Result<void> MeasureHostFunction() {
    const Disturbance quiet = Quiet();
    std::vector<BlockPair> pairs;
    for (int i = 0; i < Pairs(); ++i) {
      PERSEUS_RETURN_IF_ERROR(CheckStop());
      BlockPair pair;
      PERSEUS_ASSIGN_OR_RETURN(pair.quiet_ns, node_.Time(Operation::kLaunch, quiet, kQuietBlock));
      PERSEUS_ASSIGN_OR_RETURN(pair.disturbed_ns,
                               node_.Time(Operation::kHostFunction, quiet, kQuietBlock));
      pairs.push_back(pair);
    }
    if (auto slowdown = SlowdownOf(pairs)) {
      slowdown->low = std::max(-1.0, slowdown->low);
      result_.facts.interference.push_back({.kind = std::string(NameOf(Operation::kHostFunction)),
                                            .changes_per_s = 0,
                                            .reads_per_s = 0,
                                            .slowdown = *slowdown});
    }
    return {};
  }

  MeasuredNode& node_;
  const QualifyOptions& options_;
  std::vector<int> all_gpus_;
  bool can_set_;
  SwitchClocks clocks_;
  double sample_distance_ms_ = 0;
  bool has_few_switches_ = false;
  // Of the latest readings:
  bool is_integrated_ = false;
  int seen_mhz_ = 0;
  device::ClockLimits seen_limits_;
  Qualification result_;
};

}  // namespace

Result<Qualification> Qualify(MeasuredNode& node, const QualifyOptions& options) {
  return Qualifying(node, options).Run();
}

}  // namespace perseus::qualifier
