#include "perseus/runtime/qualifier/qualification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include "perseus/base/median.h"
#include "perseus/planning/hardware_facts/combine.h"
#include "perseus/runtime/qualifier/energy_counter.h"
#include "perseus/runtime/qualifier/interference.h"
#include "perseus/runtime/qualifier/siblings.h"
#include "perseus/runtime/qualifier/statistics.h"

namespace perseus::qualifier {
namespace {

using device::Control;
using device::DeviceErrorKind;
using device::Setting;
using hardware_facts::Direction;

// Parts of the duration; the comment of the header has the same numbers.
constexpr double kCounterPart = 0.10;
constexpr double kPowerPart = 0.25;
constexpr double kSwitchPart = 0.25;

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
// A load kernel ends by itself after ten minutes (cuda_node.h), so it is started again before that.
constexpr int kRoundsOfALoad = 10;
constexpr Nanoseconds kLongestWindow = 300 * kSecond;

constexpr int kPowerClocks = 5;
// NVML averages the power of some GPUs over a second.
constexpr Nanoseconds kPowerSettles = 1'500 * kMillisecond;
constexpr Nanoseconds kBetweenChecks = 500 * kMillisecond;  // Of should_stop().
constexpr Nanoseconds kLeastPowerWindow = 1'500 * kMillisecond;
constexpr int kPowerBlocks = 10;

constexpr Nanoseconds kChangePeriods[] = {
    1000 * kMillisecond, 500 * kMillisecond, 200 * kMillisecond, 100 * kMillisecond,
    50 * kMillisecond,   20 * kMillisecond,  10 * kMillisecond};
constexpr Nanoseconds kQuietBlock = 250 * kMillisecond;
constexpr int kLeastPairs = 4;
constexpr double kUsualPairs = 6;
constexpr double kUsualDuration = 300;
constexpr double kReachedPart = 0.9;  // Of a rate of changes, so that it counts as tried.

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

// The telemetry of each GPU.
using GpuReadings = std::vector<std::vector<device::Telemetry>>;

std::vector<CounterReading> CountersOf(const std::vector<device::Telemetry>& readings) {
  std::vector<CounterReading> counters;
  counters.reserve(readings.size());
  for (const auto& one : readings) counters.push_back({one.at, one.energy_j, one.power_w});
  return counters;
}

// The clock of each GPU in its last reading, ascending.
std::vector<int> LastClocks(const GpuReadings& readings) {
  std::vector<int> clocks_mhz;
  for (const auto& one : readings) {
    if (!one.empty()) clocks_mhz.push_back(one.back().sm_clock_mhz);
  }
  std::sort(clocks_mhz.begin(), clocks_mhz.end());
  return clocks_mhz;
}

// The mean power of one GPU. Empty without readings.
std::optional<Estimate> MeanPower(const std::vector<device::Telemetry>& readings) {
  if (readings.empty()) return std::nullopt;
  std::optional<Estimate> power;
  if (!readings.front().is_energy_integrated) {
    power = PowerByCounter(CountersOf(readings), kPowerBlocks);
  }
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

// Several disturbances of one operation, each compared with the quiet operation.
struct DisturbedCase {
  Operation operation;
  Disturbance disturbance;
  bool is_reached = true;   // False: the driver did not manage so many changes.
  double disturbed_ns = 0;  // In the current round.
  std::vector<BlockPair> pairs = {};
};

// The whole measurement. A step returns an error only if the whole measurement has to end.
class Qualifying {
 public:
  Qualifying(MeasuredNode& node, const QualifyOptions& options)
      : node_(node), options_(options), can_set_(options.sets_clocks), siblings_(NamesOf(node)) {
    all_gpus_.resize(static_cast<std::size_t>(node.gpu_count()));
    std::iota(all_gpus_.begin(), all_gpus_.end(), 0);
  }

  Result<Qualification> Run() {
    const device::DeviceInfo& info = node_.device(0).info();
    result_.facts.gpu_name = info.name;
    result_.facts.gpu_count = node_.gpu_count();
    PERSEUS_RETURN_IF_ERROR(CheckKinds());
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

    PERSEUS_RETURN_IF_ERROR(CheckReadings());
    options_.progress("energy counter", 0);
    if (can_read_) {
      PERSEUS_RETURN_IF_ERROR(MeasureCounter());
      PERSEUS_RETURN_IF_ERROR(MeasurePowers(info));
    }
    // Without a kernel, a switch shows only in readings.
    const bool is_seen = can_read_ || node_.WhyNot(Load::kCompute).empty();
    if (can_set_ && is_seen) PERSEUS_RETURN_IF_ERROR(MeasureSwitches());
    PERSEUS_RETURN_IF_ERROR(MeasureInterference());
    for (std::string& difference : siblings_.Differences()) Limit(std::move(difference));
    options_.progress("done", 1);
    return std::move(result_);
  }

 private:
  static std::vector<std::string> NamesOf(MeasuredNode& node) {
    std::vector<std::string> names;
    names.reserve(static_cast<std::size_t>(node.gpu_count()));
    for (int gpu = 0; gpu < node.gpu_count(); ++gpu) names.push_back(node.device(gpu).info().uuid);
    return names;
  }

  // Facts are of one kind of GPU, and all GPUs are locked to the same clocks.
  Result<void> CheckKinds() {
    const device::DeviceInfo& first = node_.device(0).info();
    for (const int gpu : all_gpus_) {
      const device::DeviceInfo& info = node_.device(gpu).info();
      if (info.name == first.name && info.sm_clocks_mhz == first.sm_clocks_mhz) continue;
      return FailAs(ErrorKind::kSystem,
                    "{} ({}) and {} ({}) are different kinds of GPU, or have different clocks "
                    "(measure each kind alone: --gpu UUID)",
                    first.uuid, first.name, info.uuid, info.name);
    }
    return {};
  }

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
    if constexpr (std::is_void_v<T>) {
      return {};
    } else {
      return *std::move(result);
    }
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
      for (int set = 0; set < gpu; ++set) {
        PERSEUS_RETURN_IF_ERROR(Pass(node_.device(set).Apply(Control::kSmClock, std::nullopt)));
      }
      Limit(fmt::format("This user may not set clocks, so no clock was set: {}.",
                        why.empty() ? "the driver lists no clocks" : why));
      return {};
    }
    return {};
  }

  // A driver without readings of power or clocks cannot say more later either.
  Result<void> CheckReadings() {
    for (const int gpu : all_gpus_) {
      const auto read = node_.device(gpu).Read();
      if (read) continue;
      const DeviceErrorKind kind = read.error().kind;
      if (kind != DeviceErrorKind::kPermission && kind != DeviceErrorKind::kNotSupported) {
        return FailAs(ErrorKind::kSystem, "{}", read.error().message);
      }
      can_read_ = false;
      Limit(
          fmt::format("The driver refuses readings, so neither power nor energy was measured: {}.",
                      read.error().message));
      return {};
    }
    return {};
  }

  Result<void> LockAll(const Setting& setting) {
    for (const int gpu : all_gpus_) {
      PERSEUS_RETURN_IF_ERROR(Pass(node_.device(gpu).Apply(Control::kSmClock, setting)));
    }
    return {};
  }
  Result<void> LockAll(int mhz) { return LockAll(Setting{mhz, mhz}); }

  Result<void> RunOnAll(Load load) {
    for (const int gpu : all_gpus_) PERSEUS_RETURN_IF_ERROR(node_.Run(gpu, load));
    return {};
  }

  Load BusyLoad() const {
    return node_.WhyNot(Load::kCompute).empty() ? Load::kCompute : Load::kIdle;
  }

  // ---- Energy counter and power ----

  Result<GpuReadings> ReadFor(Nanoseconds window) {
    GpuReadings all(all_gpus_.size());
    const Nanoseconds end = node_.clock().Now() + window;
    for (Nanoseconds left = window; left > 0; left = end - node_.clock().Now()) {
      PERSEUS_RETURN_IF_ERROR(CheckStop());
      PERSEUS_ASSIGN_OR_RETURN(const auto read,
                               Pass(node_.Read(all_gpus_, std::min(left, kBetweenChecks))));
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].insert(all[i].end(), read[i].begin(), read[i].end());
      }
    }
    return all;
  }

  Result<void> MeasureCounter() {
    PERSEUS_RETURN_IF_ERROR(RunOnAll(BusyLoad()));
    Sleep(node_.clock(), kPowerSettles);
    const auto window = static_cast<Nanoseconds>(options_.duration_s * kCounterPart * kSecond);
    PERSEUS_ASSIGN_OR_RETURN(const auto readings,
                             ReadFor(std::clamp(window, 2 * kSecond, kLongestWindow)));
    PERSEUS_RETURN_IF_ERROR(RunOnAll(Load::kIdle));
    std::vector<std::optional<Estimate>> periods_ms, biases;
    std::vector<double> resolutions_j;
    for (const auto& of_gpu : readings) {
      if (!of_gpu.empty() && of_gpu.front().is_energy_integrated) {
        Limit("A GPU has no energy counter. Energy is integrated from power readings.");
        return {};
      }
      const auto findings = ExamineCounter(CountersOf(of_gpu));
      if (!findings) {
        Limit("The energy counter changed too rarely to be examined.");
        return {};
      }
      periods_ms.emplace_back(findings->period_ms);
      biases.emplace_back(findings->bias);
      resolutions_j.push_back(findings->resolution_j);
    }
    const auto period_ms = siblings_.Combine("period of the energy counter",
                                             Siblings::Unit::kMilliseconds, periods_ms);
    const auto bias =
        siblings_.Combine("bias of the energy counter", Siblings::Unit::kFraction, biases);
    result_.facts.energy_counter = hardware_facts::EnergyCounterFacts{
        .period_ms = *period_ms, .resolution_j = Median(resolutions_j), .bias = *bias};
    return {};
  }

  // What the GPUs did under one load: the power of each, and their readings.
  struct PowerWindow {
    std::vector<std::optional<Estimate>> powers_w;
    GpuReadings readings;
  };

  Result<PowerWindow> MeasurePower(Nanoseconds window) {
    Sleep(node_.clock(), kPowerSettles);
    PERSEUS_ASSIGN_OR_RETURN(auto readings, ReadFor(window));
    PowerWindow measured;
    for (const auto& of_gpu : readings) measured.powers_w.push_back(MeanPower(of_gpu));
    measured.readings = std::move(readings);
    return measured;
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
        std::clamp(static_cast<Nanoseconds>(options_.duration_s * kPowerPart * kSecond / windows) -
                       kPowerSettles,
                   kLeastPowerWindow, kLongestWindow);
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
    if (clock_mhz != 0) PERSEUS_RETURN_IF_ERROR(LockAll(clock_mhz));
    const std::string at = clock_mhz == 0 ? "" : fmt::format(" at {} MHz", clock_mhz);
    std::vector<int> seen_mhz;
    for (const Load load : {Load::kIdle, Load::kBlocked, Load::kCompute}) {
      if (!node_.WhyNot(load).empty()) continue;
      PERSEUS_RETURN_IF_ERROR(RunOnAll(load));
      PERSEUS_ASSIGN_OR_RETURN(const auto measured, MeasurePower(window));
      const auto combine = [&](const char* what) {
        return siblings_.Combine(what + at, Siblings::Unit::kWatts, measured.powers_w);
      };
      if (load == Load::kIdle) power.idle_w = combine("idle power");
      if (load == Load::kBlocked) power.blocked_w = combine("blocking power");
      if (load == Load::kCompute) {
        power.busy_w = combine("busy power");
        NoteLimits(at, measured.readings);
      }
      seen_mhz = LastClocks(measured.readings);
    }
    PERSEUS_RETURN_IF_ERROR(RunOnAll(Load::kIdle));
    if (clock_mhz == 0 && !seen_mhz.empty()) {
      power.sm_clock_mhz = seen_mhz[seen_mhz.size() / 2];
      Limit(fmt::format("Power was measured without a locked clock, which stood at {} MHz.",
                        power.sm_clock_mhz));
    }
    if (power.sm_clock_mhz > 0) result_.facts.power.push_back(power);
    return {};
  }

  void NoteLimits(const std::string& at, const GpuReadings& readings) {
    device::ClockLimits others;
    for (const auto& of_gpu : readings) {
      for (const device::Telemetry& one : of_gpu) {
        for (const auto limit : {device::ClockLimit::kPowerCap, device::ClockLimit::kThermal,
                                 device::ClockLimit::kPowerBrake, device::ClockLimit::kOther}) {
          if (one.limits.Has(limit)) others.Add(limit);
        }
      }
    }
    const std::vector<int> clocks_mhz = LastClocks(readings);
    if (others.bits == 0 || clocks_mhz.empty()) return;
    Limit(fmt::format("Under load{}, the clock of a GPU is lowered (to {} MHz at last) by: {}.", at,
                      clocks_mhz.front(), device::Describe(others)));
  }

  // Whether a lock from the lowest to the top clock draws less than a lock at the top clock, while
  // the GPUs wait: on every GPU.
  Result<void> CompareRangeLock(Nanoseconds window) {
    if (!node_.WhyNot(Load::kBlocked).empty()) return {};
    const int lowest_mhz = node_.device(0).info().sm_clocks_mhz.front();
    PERSEUS_RETURN_IF_ERROR(RunOnAll(Load::kBlocked));
    PERSEUS_RETURN_IF_ERROR(LockAll(clocks_.top_mhz));
    PERSEUS_ASSIGN_OR_RETURN(const auto exact, MeasurePower(window));
    PERSEUS_RETURN_IF_ERROR(LockAll(Setting{lowest_mhz, clocks_.top_mhz}));
    PERSEUS_ASSIGN_OR_RETURN(const auto range, MeasurePower(window));
    PERSEUS_RETURN_IF_ERROR(LockAll(clocks_.top_mhz));
    PERSEUS_RETURN_IF_ERROR(RunOnAll(Load::kIdle));
    std::vector<double> exact_w, range_w;
    bool saves = true;
    for (std::size_t i = 0; i < all_gpus_.size(); ++i) {
      const auto& with_exact = exact.powers_w[i];
      const auto& with_range = range.powers_w[i];
      if (!with_exact || !with_range) return {};
      saves = saves && with_range->high < with_exact->low;
      exact_w.push_back(with_exact->value);
      range_w.push_back(with_range->value);
    }
    result_.facts.range_lock_saves = saves;
    if (saves) {
      Limit(fmt::format(
          "A waiting GPU draws {:.1f} W with a lock from {} to {} MHz, and {:.1f} W "
          "with a lock at {} MHz.",
          Median(range_w), lowest_mhz, clocks_.top_mhz, Median(exact_w), clocks_.top_mhz));
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
    PERSEUS_RETURN_IF_ERROR(LockAll(top));
    const Nanoseconds begin = node_.clock().Now();
    const double budget = options_.duration_s * part * kSecond;
    for (int round = 0; round < kMostRounds; ++round) {
      const double spent = static_cast<double>(node_.clock().Now() - begin) / budget;
      if (round >= kLeastRounds && spent >= 1) break;
      if (round % kRoundsOfALoad == 0) {
        PERSEUS_RETURN_IF_ERROR(RunOnAll(BusyLoad()));
        // The last lock may still be on its way.
        if (round == 0) Sleep(node_.clock(), kLongestSwitch);
      }
      options_.progress(are_all ? "switches of all GPUs" : "switches of one GPU",
                        from + part * std::min(spent, 1.0));
      // Many GPUs do not reach the highest clock of their list, so they show no switch near it.
      const bool shows_near = cases[2].latencies_ms.size() + cases[3].latencies_ms.size() > 0 ||
                              cases[2].unseen + cases[3].unseen < kMostUnseen;
      for (SwitchCase& one : cases) {
        if (one.is_far || shows_near) PERSEUS_RETURN_IF_ERROR(MeasureSwitch(gpus, one));
      }
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
    std::vector<Estimate> harmless;
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
      harmless.push_back(HarmlessRate(rates));
      if (harmless.back().value == 0) NoteNoHarmlessRate(operation, rates.front());
    }
    if (!harmless.empty()) result_.facts.max_changes_per_s = hardware_facts::LeastOf(harmless);
    if (most_changes_per_s_ > 0) {
      Limit(
          fmt::format("The driver managed at most {:.3g} changes a second of the whole node, so "
                      "higher rates were not measured.",
                      most_changes_per_s_));
    }
    return {};
  }

  void NoteNoHarmlessRate(Operation operation, const RateSlowdown& least) {
    if (least.slowdown.low > kHarmfulSlowdown) {
      Limit(fmt::format("Even {:.3g} changes a second harm the operation \"{}\".",
                        least.changes_per_s, NameOf(operation)));
    } else {
      Limit(fmt::format(
          "No rate is shown to be harmless for the operation \"{}\": at {:.3g} changes "
          "a second, it may take up to {:.2g} % longer (a longer --duration tells more).",
          NameOf(operation), least.changes_per_s, 100 * least.slowdown.high));
    }
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

  // Fills in the pairs of the cases. A round is one block of each case, between two quiet blocks of
  // `quiet_operation`, which are shared with the rounds before and after. So a slow drift (heat)
  // affects both sides of a pair.
  Result<void> RunRounds(Operation quiet_operation, std::vector<DisturbedCase>& cases) {
    if (cases.empty()) return {};
    const Disturbance quiet = Quiet();
    PERSEUS_ASSIGN_OR_RETURN(auto before, node_.Time(quiet_operation, quiet, kQuietBlock));
    for (int round = 0; round < Pairs(); ++round) {
      bool is_reached = true;  // Higher rates come later.
      for (DisturbedCase& one : cases) {
        PERSEUS_RETURN_IF_ERROR(CheckStop());
        one.is_reached = one.is_reached && is_reached;
        if (!one.is_reached) continue;
        // Whole periods, so that every block has the same number of changes.
        const Nanoseconds period = one.disturbance.change_period;
        const Nanoseconds block =
            period == 0 ? kQuietBlock : period * std::max<Nanoseconds>(2, kQuietBlock / period);
        PERSEUS_ASSIGN_OR_RETURN(const auto timed,
                                 node_.Time(one.operation, one.disturbance, block));
        one.disturbed_ns = timed.mean_ns;
        if (timed.changes_per_s < kReachedPart * ChangesPerSecond(period)) {
          most_changes_per_s_ = std::max(most_changes_per_s_, timed.changes_per_s);
          one.is_reached = is_reached = false;
        }
      }
      PERSEUS_RETURN_IF_ERROR(CheckStop());
      PERSEUS_ASSIGN_OR_RETURN(const auto after, node_.Time(quiet_operation, quiet, kQuietBlock));
      for (DisturbedCase& one : cases) {
        if (!one.is_reached) continue;
        one.pairs.push_back(
            {.quiet_ns = (before.mean_ns + after.mean_ns) / 2, .disturbed_ns = one.disturbed_ns});
      }
      before = after;
    }
    return {};
  }

  // The node's rate: every GPU changes once a period.
  double ChangesPerSecond(Nanoseconds period) const {
    return period == 0 ? 0 : node_.gpu_count() / ToSeconds(period);
  }

  // Adds the result of a case to the facts, and returns it. Empty if the rate was not reached.
  std::optional<Estimate> AddInterference(const DisturbedCase& one) {
    if (!one.is_reached) return std::nullopt;
    auto slowdown = SlowdownOf(one.pairs);
    if (!slowdown) return std::nullopt;
    slowdown->low = std::max(-1.0, slowdown->low);
    const double changes_per_s = ChangesPerSecond(one.disturbance.change_period);
    result_.facts.interference.push_back({.kind = std::string(NameOf(one.operation)),
                                          .changes_per_s = changes_per_s,
                                          .reads_per_s = one.disturbance.reads_per_s,
                                          .slowdown = *slowdown});
    return slowdown;
  }

  Result<std::vector<RateSlowdown>> MeasureOperation(Operation operation) {
    std::vector<DisturbedCase> cases;
    Disturbance disturbed = Quiet();
    disturbed.reads_per_s = options_.reads_per_s;
    if (can_read_) cases.push_back({operation, disturbed});
    disturbed.reads_per_s = 0;
    for (const Nanoseconds period : kChangePeriods) {
      if (!can_set_) break;
      disturbed.change_period = period;
      cases.push_back({operation, disturbed});
    }
    PERSEUS_RETURN_IF_ERROR(RunRounds(operation, cases));
    std::vector<RateSlowdown> rates;
    for (const DisturbedCase& one : cases) {
      const auto slowdown = AddInterference(one);
      if (!slowdown || one.disturbance.change_period == 0) continue;
      rates.push_back({ChangesPerSecond(one.disturbance.change_period), *slowdown});
    }
    return rates;
  }

  // What a launch behind a host function costs more than a launch.
  Result<void> MeasureHostFunction() {
    std::vector<DisturbedCase> cases = {{Operation::kHostFunction, Quiet()}};
    PERSEUS_RETURN_IF_ERROR(RunRounds(Operation::kLaunch, cases));
    AddInterference(cases.front());
    return {};
  }

  MeasuredNode& node_;
  const QualifyOptions& options_;
  std::vector<int> all_gpus_;
  bool can_set_;
  bool can_read_ = true;
  SwitchClocks clocks_;
  double sample_distance_ms_ = 0;
  bool has_few_switches_ = false;
  double most_changes_per_s_ = 0;  // That the driver managed, if it was fewer than asked for.
  Siblings siblings_;
  Qualification result_;
};

}  // namespace

Result<Qualification> Qualify(MeasuredNode& node, const QualifyOptions& options) {
  return Qualifying(node, options).Run();
}

}  // namespace perseus::qualifier
