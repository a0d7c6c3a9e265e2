// What runs one GPU: a thread that hands clocks to the driver as a client asks for them, and a
// second one that looks at what came of it.
//
// A GPU is nobody's, serves one lease, or is being given back:
//
//        Serve()              Restore()                 all controls taken
//   free ---------> serving ------------> giving back ---------------------> free
//                                           |     ^
//                                           +-----+ some control failed: again, later
//
// Invariants:
//  1. The driver is only ever asked to change something while serving (the SM clock, within the
//     GPU's own list) or giving back.
//  2. Giving back tries every control, whatever became of the others, and goes on until each was
//     accepted and, where the driver tells, read back. No number of failures ends it.
//  3. The latest request wins. What came in between while the driver was busy is counted and
//     dropped; a request for the clock that is set already does not reach the driver, but for one
//     that was seen to be away since and may have forgotten it.
//
// Two threads, since reading a GPU takes up to milliseconds and must not stand in the way of a
// switch: the worker sleeps in poll() until a client's eventfd, an order or a retry wakes it; the
// observer reads power and clocks every so often, and whether the last switch is in effect.
//
// Thread safety: all calls may come from any thread. They only leave an order and return; what they
// answer comes through the function given along, on a thread of the worker's.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/mutex.h"
#include "perseus/base/units.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/protocol/clock_channel.h"

namespace perseus::agent {

struct ControlSetting {
  device::Control control = device::Control::kSmClock;
  std::optional<device::Setting> setting;  // Nothing: the driver's own management.
};

// How long things took, counted by upper bounds.
class LatencyHistogram {
 public:
  static constexpr std::array<Nanoseconds, 14> kBounds = {
      5'000,     10'000,    20'000,    50'000,     100'000,    200'000,       500'000,
      1'000'000, 2'000'000, 5'000'000, 10'000'000, 50'000'000, 1'000'000'000, 10'000'000'000};

  void Add(Nanoseconds latency);
  // [i]: how many were at most kBounds[i] and above kBounds[i - 1]; last: above all of them.
  const std::array<std::uint64_t, kBounds.size() + 1>& counts() const { return counts_; }
  std::uint64_t count() const { return count_; }
  Nanoseconds sum() const { return sum_; }

 private:
  std::array<std::uint64_t, kBounds.size() + 1> counts_{};
  std::uint64_t count_ = 0;
  Nanoseconds sum_ = 0;
};

struct GpuCounts {
  std::uint64_t switches = 0;   // Clocks that the driver accepted from a client.
  std::uint64_t coalesced = 0;  // Requests overtaken by a later one.
  std::uint64_t no_ops = 0;     // Requests for what was set already.
  std::uint64_t refused = 0;    // Requests for clocks that the GPU does not have.
  std::uint64_t failed = 0;     // Requests that the driver did not take.
  std::uint64_t in_effect = 0;  // Switches read back as in effect, of those looked at in time,
  std::uint64_t limited = 0;    // and as held lower by power or temperature.
  std::uint64_t restores = 0;   // GPUs given back whole.
  std::uint64_t restore_failures = 0;  // Attempts on a control that did not take.
};

struct GpuSnapshot {
  std::optional<device::Telemetry> telemetry;  // Nothing: not read yet, or the last reading failed.
  // What failed last, until it works again; empty: nothing.
  std::string reading_trouble;
  std::string setting_trouble;
  std::optional<ControlSetting> setting;  // The SM clock that the driver took from us last.
  std::optional<device::Effect> effect;   // Of that setting, as of the last look.
  bool is_serving = false;
  bool is_restoring = false;
  // CLOCK_MONOTONIC since when the driver has not answered the worker's call; 0: no call is out.
  Nanoseconds in_driver_since = 0;
  GpuCounts counts;
  LatencyHistogram request_to_call;  // From a client's publishing to the call of the driver.
  LatencyHistogram call;             // The driver's call itself.
};

class GpuWorker {
 public:
  struct Periods {
    std::chrono::milliseconds observe_serving{100};
    std::chrono::milliseconds observe_free{1000};
    std::chrono::milliseconds first_retry{50};   // Of a restore; doubles
    std::chrono::milliseconds last_retry{5000};  // up to this.
  };

  explicit GpuWorker(std::unique_ptr<device::Device> device)
      : GpuWorker(std::move(device), Periods{}) {}
  // `clock`: the GPU's (device::DeviceList).
  GpuWorker(std::unique_ptr<device::Device> device, Periods periods,
            std::shared_ptr<Clock> clock = std::make_shared<RealClock>());
  // Gives nothing back: call Restore first and wait for it. Waits for a driver's call that is out.
  ~GpuWorker();
  GpuWorker(const GpuWorker&) = delete;
  GpuWorker& operator=(const GpuWorker&) = delete;

  const device::DeviceInfo& info() const { return device_->info(); }

  // What every control is set to now.
  using Found = std::array<device::SettingReading, std::size(device::kAllControls)>;  // By Control.
  void Find(std::function<void(device::DeviceResult<Found>)> done);

  // From now on this slot of the channel sets the SM clock. `before`: what request 0 returns to.
  void Serve(std::shared_ptr<protocol::ClockChannel> channel, int gpu_of_channel,
             std::optional<device::Setting> before);
  // Ends serving at once, and puts every one of these back. `done`: all have taken.
  void Restore(std::vector<ControlSetting> settings, std::function<void()> done);

  GpuSnapshot snapshot() const;

 private:
  class Doorbell;  // An eventfd.

  void Work(const std::stop_token& stop);
  void Observe(const std::stop_token& stop);
  void Order(std::function<void()> order);
  bool RunAssignment();
  bool HasRequest() const;
  void ServeRequest();
  void SwitchTo(const protocol::ClockRequest& request,
                const std::optional<device::Setting>& target);
  void AttemptRestore();
  device::DeviceResult<void> PutBack(const ControlSetting& wanted);
  void SleepUntilNeeded(const std::stop_token& stop);
  void LookAtEffect();

  // Calls the driver, and notes since when.
  device::DeviceResult<void> Apply(const ControlSetting& wanted);
  void Answer(const protocol::ClockRequest& request, protocol::ClockOutcome outcome);

  const std::unique_ptr<device::Device> device_;
  const Periods periods_;
  const std::shared_ptr<Clock> clock_;
  const std::unique_ptr<Doorbell> bell_;           // Wakes the worker.
  const std::unique_ptr<Doorbell> observer_bell_;  // Wakes the observer, to stop.

  // The worker's own.
  std::shared_ptr<protocol::ClockChannel> channel_;
  int slot_ = 0;
  std::optional<device::Setting> before_;
  std::uint32_t dealt_with_ = 0;  // Sequence.
  protocol::ClockAnswer answer_;
  // Of what is set, whatever was refused since.
  protocol::ClockOutcome setting_outcome_ = protocol::ClockOutcome::kNone;
  std::uint32_t last_switch_ = 0;  // Counted from 1.
  std::vector<ControlSetting> to_restore_;
  std::function<void()> restored_;
  Nanoseconds next_attempt_ = 0;
  Nanoseconds retry_after_ = 0;

  mutable Mutex mutex_;
  std::vector<std::function<void()>> assignment_ PERSEUS_GUARDED_BY(mutex_);
  GpuSnapshot snapshot_ PERSEUS_GUARDED_BY(mutex_);
  // The switch that the observer is to look at; 0: none.
  std::uint32_t unobserved_ PERSEUS_GUARDED_BY(mutex_) = 0;

  // Last, so that they end first.
  std::jthread observer_;
  std::jthread worker_;
};

// CLOCK_MONOTONIC, which is what requests are stamped with.
Nanoseconds MonotonicNow();

}  // namespace perseus::agent
