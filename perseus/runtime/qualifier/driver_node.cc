#include "perseus/runtime/qualifier/driver_node.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace perseus::qualifier {
namespace {

using device::Control;
using device::DeviceError;
using device::DeviceResult;
using device::Setting;

constexpr Nanoseconds kBetweenClockReadings = 200 * kMicrosecond;

// Calls measure(gpu) for each of the GPUs, each on a thread of its own. Returns all results, or the
// first failure in the order of `gpus`.
template <typename T, typename Measure>
DeviceResult<std::vector<T>> OnThreads(const std::vector<int>& gpus, Measure measure) {
  std::vector<DeviceResult<T>> measured(gpus.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      threads.emplace_back([&, i] { measured[i] = measure(gpus[i]); });
    }
  }
  std::vector<T> results;
  for (auto& one : measured) {
    if (!one) return tl::unexpected<DeviceError>(one.error());
    results.push_back(*std::move(one));
  }
  return results;
}

}  // namespace

DriverNode::DriverNode(std::vector<device::Device*> devices, std::string why_no_kernels)
    : devices_(std::move(devices)), why_no_kernels_(std::move(why_no_kernels)) {}

std::string DriverNode::WhyNot(Load load) const {
  return load == Load::kIdle ? "" : why_no_kernels_;
}

std::string DriverNode::WhyNot(Operation /*operation*/) const { return why_no_kernels_; }

Result<void> DriverNode::Run(int /*gpu*/, Load load) {
  if (load == Load::kIdle) return {};
  return FailAs(ErrorKind::kSystem, "{}", why_no_kernels_);
}

Result<Timing> DriverNode::Time(Operation /*operation*/, const Disturbance& /*disturbance*/,
                                Nanoseconds /*duration*/) {
  return FailAs(ErrorKind::kSystem, "{}", why_no_kernels_);
}

DeviceResult<std::vector<WorkSample>> DriverNode::Sample(int gpu,
                                                         const std::atomic<Nanoseconds>& until) {
  std::vector<WorkSample> samples;
  double work = 0;
  while (clock_.Now() < until.load()) {
    const auto telemetry = device(gpu).Read();
    if (!telemetry) return tl::unexpected<DeviceError>(telemetry.error());
    if (!samples.empty() && telemetry->at <= samples.back().at) continue;
    if (!samples.empty()) {
      work += static_cast<double>(telemetry->at - samples.back().at) * telemetry->sm_clock_mhz;
    }
    samples.push_back({telemetry->at, work});
    Sleep(clock_, kBetweenClockReadings);
  }
  return samples;
}

DeviceResult<std::vector<SwitchRecord>> DriverNode::Switch(const std::vector<int>& gpus,
                                                           const Setting& setting,
                                                           Nanoseconds before, Nanoseconds after) {
  std::vector<SwitchRecord> records(gpus.size());
  std::vector<DeviceResult<void>> applied(gpus.size());
  std::vector<DeviceResult<std::vector<WorkSample>>> sampled(gpus.size());
  std::atomic<Nanoseconds> until = Clock::kNever;
  const Nanoseconds call_at = clock_.Now() + before;
  {
    std::vector<std::jthread> samplers, setters;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      samplers.emplace_back([&, i] { sampled[i] = Sample(gpus[i], until); });
      setters.emplace_back([&, i] {
        Sleep(clock_, call_at - clock_.Now());
        records[i].call_begin = clock_.Now();
        applied[i] = device(gpus[i]).Apply(Control::kSmClock, setting);
        records[i].call_end = clock_.Now();
      });
    }
    setters.clear();  // Joins them.
    until = clock_.Now() + after;
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (!applied[i]) return tl::unexpected<DeviceError>(applied[i].error());
    if (!sampled[i]) return tl::unexpected<DeviceError>(sampled[i].error());
    records[i].samples = *std::move(sampled[i]);
  }
  return records;
}

DeviceResult<std::vector<std::vector<WorkSample>>> DriverNode::Watch(const std::vector<int>& gpus,
                                                                     Nanoseconds duration) {
  const std::atomic<Nanoseconds> until = clock_.Now() + duration;
  return OnThreads<std::vector<WorkSample>>(gpus, [&](int gpu) { return Sample(gpu, until); });
}

DeviceResult<std::vector<std::vector<device::Telemetry>>> DriverNode::Read(
    const std::vector<int>& gpus, Nanoseconds duration) {
  using Readings = std::vector<device::Telemetry>;
  const Nanoseconds until = clock_.Now() + duration;
  return OnThreads<Readings>(gpus, [&](int gpu) -> DeviceResult<Readings> {
    Readings readings;
    while (clock_.Now() < until) {
      const auto telemetry = device(gpu).Read();
      if (!telemetry) return tl::unexpected<DeviceError>(telemetry.error());
      readings.push_back(*telemetry);
      Sleep(clock_, kBetweenReadings);
    }
    return readings;
  });
}

struct Disturber::Threads {
  std::mutex mutex;                    // Guards `failure`.
  std::optional<DeviceError> failure;  // The first one.
  std::atomic<std::uint32_t> is_over = 0;
  std::atomic<std::int64_t> changes = 0;
  std::vector<std::jthread> threads;

  void Keep(const DeviceError& error) {
    const std::lock_guard lock(mutex);
    if (!failure) failure = error;
  }
  // Calls `act` once a period, and skips periods that `act` did not leave time for.
  template <typename Act>
  void Repeat(Clock& clock, Nanoseconds period, Act act) {
    for (Nanoseconds next = clock.Now() + period / 2; is_over.load() == 0;) {
      while (clock.Now() < next && is_over.load() == 0) clock.WaitWhile(is_over, 0, next);
      if (is_over.load() != 0 || !act()) return;
      next = std::max(next + period, clock.Now());
    }
  }
};

Disturber::Disturber(MeasuredNode& node, const Disturbance& disturbance)
    : threads_(std::make_unique<Threads>()) {
  Threads& shared = *threads_;
  for (int gpu = 0; gpu < node.gpu_count(); ++gpu) {
    device::Device& device = node.device(gpu);
    Clock& clock = node.clock();
    if (disturbance.change_period > 0) {
      shared.threads.emplace_back([&shared, &device, &clock, disturbance] {
        bool is_second = false;
        shared.Repeat(clock, disturbance.change_period, [&] {
          is_second = !is_second;
          const int mhz = is_second ? disturbance.second_mhz : disturbance.first_mhz;
          const auto applied = device.Apply(Control::kSmClock, Setting{mhz, mhz});
          if (applied) {
            ++shared.changes;
          } else {
            shared.Keep(applied.error());
          }
          return applied.has_value();
        });
      });
    }
    if (disturbance.reads_per_s > 0) {
      shared.threads.emplace_back([&shared, &device, &clock, disturbance] {
        shared.Repeat(clock, ToNanoseconds(1 / disturbance.reads_per_s), [&] {
          const auto read = device.Read();
          if (!read) shared.Keep(read.error());
          return read.has_value();
        });
      });
    }
  }
}

Disturber::~Disturber() { static_cast<void>(Stop()); }

Result<std::int64_t> Disturber::Stop() {
  threads_->is_over = 1;
  WakeAll(threads_->is_over);
  threads_->threads.clear();
  const std::lock_guard lock(threads_->mutex);
  if (threads_->failure) return FailAs(ErrorKind::kSystem, "{}", threads_->failure->message);
  return threads_->changes.load();
}

}  // namespace perseus::qualifier
