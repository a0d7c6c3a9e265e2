// The threads of one GPU: the worker passes the clocks that a client requests to the driver, and
// the observer reads the result.
//
// A GPU is free, serves one lease, or is being restored:
//
//        Serve()              Restore()                 all controls succeeded
//   free ---------> serving ------------> restoring ------------------------> free
//                                           |     ^
//                                           +-----+ a control failed: again, later
//
// Invariants:
//  1. The driver changes a setting only in two states of the GPU: serving and restoring. While
//     serving, it changes only the SM clock, and only to a clock that the GPU lists.
//  2. Restoring tries every control, even if others fail. It continues until the driver has
//     accepted each setting. If the driver can report the control, the setting was also read back.
//     No number of failures ends restoring.
//  3. The latest request wins. Requests that arrive while the driver is busy are counted and
//     dropped. A request for the current clock does not reach the driver, unless the driver was
//     away meanwhile and may have forgotten the clock.
//  4. If another program has set the clock since, that clock is not overwritten silently
//     (ForeignClock).
//
// Other programs may set the same clock: an administrator's nvidia-smi, a health check, a power
// manager. The observer judges three readings in a row, each at least `landing` after the last
// switch. There are three findings:
//
//   ours      the driver reports our lock, or the clock is where our lock puts it
//   reset     nothing is locked: another program removed our lock, or the driver confirmed a write
//             that it did not perform. No program holds the clock, so the worker sets it again.
//   foreign   another lock is in force. With kYield, the worker sets nothing until that lock is
//             gone. With kInsist, the worker sets our clock again.
//
// A driver that reports locks (virtual, ROCm) makes these findings certain. NVML does not report
// locks. With NVML, a busy GPU counts as having a foreign lock in one case: its clock differs from
// ours, and the driver names a clock setting as the only reason. If the clock is below ours, a
// foreign lock is likely but not certain, because our own lock is a clock setting too. A foreign
// lock that is not certain ends with the lease: to leave our own lock behind would be worse. A plan
// may change the clock more often than `landing`. Then, on any driver, it overwrites other locks
// before they can be seen.
//
// Limit on changes. An operator may limit the changes of the clock per second, for hardware or
// drivers whose clock should not change often. The limit must not make a job slower than its plan.
// So only a change to a lower clock waits. While it waits, the job runs faster and loses a part of
// its saving. A change to a higher clock never waits. Each change takes a token from a bucket. The
// bucket holds the tokens for one second of changes, and at least one token. The number of tokens
// may become negative, so the limit holds in the long run. A request that arrives while another
// request waits replaces the waiting request, as always (invariant 3). So a short phase at a low
// clock is skipped and costs no change. A restore takes no token. If another program has changed
// the clock, setting it again takes no token.
//
// The limit of a GPU is its share of the node's limit (gpu_manager.h). When the share changes, the
// bucket stays as full as it was: its tokens grow or shrink with its size. So however often leases
// come and go, the tokens of all buckets are never more than one second of the node's limit (or one
// token for each GPU).
//
// If a plan is made for the limit (perseus plan --facts or --max-switches), almost no request
// waits. A lease is over the limit if more than a tenth of its requests wait.
//
// There are two threads because reading a GPU takes up to milliseconds, and a reading must not
// delay a switch. The worker sleeps in poll() until a client's eventfd, a command or a retry wakes
// it. From time to time, the observer reads power and clocks, and whether the last switch is in
// effect.
//
// Thread safety: any thread may call. A call stores a command and returns. The answer is passed to
// the given function, on a thread of the worker.
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
#include "perseus/runtime/protocol/clock_channel/clock_channel.h"

namespace perseus::agent {

struct ControlSetting {
  device::Control control = device::Control::kSmClock;
  std::optional<device::Setting> setting;  // Empty: the driver manages it.
};

// A histogram of durations: one count for each upper bound.
class LatencyHistogram {
 public:
  static constexpr std::array<Nanoseconds, 14> kBounds = {
      5'000,     10'000,    20'000,    50'000,     100'000,    200'000,       500'000,
      1'000'000, 2'000'000, 5'000'000, 10'000'000, 50'000'000, 1'000'000'000, 10'000'000'000};

  void Add(Nanoseconds latency);
  // counts()[i] is the number of durations that are at most kBounds[i] and above kBounds[i - 1].
  // The last count is the number of durations above all bounds.
  const std::array<std::uint64_t, kBounds.size() + 1>& counts() const { return counts_; }
  std::uint64_t count() const { return count_; }
  Nanoseconds sum() const { return sum_; }

 private:
  std::array<std::uint64_t, kBounds.size() + 1> counts_{};
  std::uint64_t count_ = 0;
  Nanoseconds sum_ = 0;
};

// What the worker does if another program sets the clock during a lease.
enum class WhenOverridden { kYield, kInsist };

// A lock of another program that replaced ours.
struct ForeignClock {
  // Empty: the driver cannot report this setting.
  std::optional<device::Setting> setting;
  int sm_clock_mhz = 0;  // The clock at the reading that showed this lock.
  // True: this lock cannot be our own, so it is not removed when the lease ends.
  bool is_certain = false;
  bool has_yielded = false;  // The worker sets no clock while this lock is in force.
};

struct GpuCounts {
  std::uint64_t switches = 0;   // Clocks that the driver accepted from a client.
  std::uint64_t coalesced = 0;  // Requests that a later one replaced.
  std::uint64_t no_ops = 0;     // Requests for the current clock.
  std::uint64_t refused = 0;    // Requests for clocks that the GPU does not have.
  std::uint64_t failed = 0;     // Requests that the driver did not accept.
  std::uint64_t in_effect = 0;  // Switches that a reading showed to be in effect.
  std::uint64_t limited = 0;    // Switches that a reading showed to be limited by power or heat.
  std::uint64_t postponed = 0;  // Requests of a lower clock that waited for the limit on changes.
  std::uint64_t foreign_locks = 0;     // How often another program's lock replaced ours.
  std::uint64_t foreign_resets = 0;    // How often our lock was gone.
  std::uint64_t yielded = 0;           // Requests that changed nothing because of a foreign lock.
  std::uint64_t restores = 0;          // GPUs that were restored completely.
  std::uint64_t restore_failures = 0;  // Failed attempts to restore a control.
};

struct GpuSnapshot {
  // Empty before the first reading, and after a failed reading.
  std::optional<device::Telemetry> telemetry;
  // The last failure, until a call succeeds. Empty: none.
  std::string reading_trouble;
  std::string setting_trouble;
  std::optional<ControlSetting> setting;  // The last SM clock that the driver accepted.
  std::optional<device::Effect> effect;   // The effect of that setting at the last reading.
  std::optional<ForeignClock> foreign;    // Empty: no foreign lock is in force.
  bool is_serving = false;
  bool is_over_limit = false;  // More than a tenth of the requests of this lease waited.
  bool is_restoring = false;
  // The time (CLOCK_MONOTONIC) since which a call of the driver by the worker has not returned. 0:
  // no call runs.
  Nanoseconds in_driver_since = 0;
  GpuCounts counts;
  LatencyHistogram request_to_call;  // From a client's request to the call of the driver.
  LatencyHistogram call;             // The duration of the driver's call.
};

class GpuWorker {
 public:
  struct Periods {
    std::chrono::milliseconds observe_serving{100};
    std::chrono::milliseconds observe_free{1000};
    // The wait before a restore is tried again. It starts at first_retry, and doubles with each
    // retry until it is last_retry.
    std::chrono::milliseconds first_retry{50};
    std::chrono::milliseconds last_retry{5000};
    // The time after a switch from which a reading shows who holds the clock.
    std::chrono::milliseconds landing{250};
  };

  explicit GpuWorker(std::unique_ptr<device::Device> device)
      : GpuWorker(std::move(device), Periods{}) {}
  // `clock` is the clock of the GPU (device::DeviceList).
  GpuWorker(std::unique_ptr<device::Device> device, Periods periods,
            std::shared_ptr<Clock> clock = std::make_shared<RealClock>(),
            WhenOverridden when_overridden = WhenOverridden::kYield);
  // The destructor restores nothing. Before it, call Restore() and wait for `done`. The destructor
  // waits for a running call of the driver.
  ~GpuWorker();
  GpuWorker(const GpuWorker&) = delete;
  GpuWorker& operator=(const GpuWorker&) = delete;

  const device::DeviceInfo& info() const { return device_->info(); }

  // Reads the current setting of every control.
  using Found = std::array<device::SettingReading, std::size(device::kAllControls)>;  // By Control.
  void Find(std::function<void(device::DeviceResult<Found>)> done);

  // Limits the clock changes per second from now on. 0: no limit. At first, no limit applies.
  void LimitChanges(double most_per_s);

  // Lets this slot of the channel set the SM clock from now on. A request of 0 returns to `before`.
  void Serve(std::shared_ptr<protocol::ClockChannel> channel, int gpu_of_channel,
             std::optional<device::Setting> before);
  // Stops serving at once, and restores these settings. Calls `done` when all have succeeded.
  void Restore(std::vector<ControlSetting> settings, std::function<void()> done);

  GpuSnapshot snapshot() const;

 private:
  class Doorbell;  // An eventfd.

  void Work(const std::stop_token& stop);
  void Observe(const std::stop_token& stop);
  void Command(std::function<void()> command);
  void RunCommands();
  bool HasRequest() const;
  void ServeRequest();
  void SwitchTo(const protocol::ClockRequest& request,
                const std::optional<device::Setting>& target);
  // Returns whether the limit on changes makes this request wait. Sets wait_until_.
  bool MustWait(const protocol::ClockRequest& request);
  void RefillChanges();
  void AttemptRestore();
  device::DeviceResult<void> PutBack(const ControlSetting& wanted);
  void SleepUntilNeeded(const std::stop_token& stop);
  void LookAtEffect();
  enum class Holder { kUnknown, kPerseus, kNobody, kOther };
  struct Judgement {
    Holder holder = Holder::kUnknown;
    ForeignClock foreign;  // Set only for kOther.
  };
  void LookAtHolder(const device::Telemetry& telemetry);
  Judgement Judge(const device::Telemetry& telemetry, const device::Setting& ours);
  bool ActOn(const Judgement& judgement) PERSEUS_REQUIRES(mutex_);
  void SetAgain();
  std::optional<device::Setting> TargetOf(const protocol::ClockRequest& request) const;

  // Calls the driver, and records when the call began.
  device::DeviceResult<void> Apply(const ControlSetting& wanted);
  void Answer(const protocol::ClockRequest& request, protocol::ClockOutcome outcome);

  const std::unique_ptr<device::Device> device_;
  const Periods periods_;
  const std::shared_ptr<Clock> clock_;
  const WhenOverridden when_overridden_;
  const std::unique_ptr<Doorbell> bell_;           // Wakes the worker.
  const std::unique_ptr<Doorbell> observer_bell_;  // Wakes the observer.

  // Only the worker thread uses these.
  std::shared_ptr<protocol::ClockChannel> channel_;
  int slot_ = 0;
  std::optional<device::Setting> before_;
  std::uint32_t handled_ = 0;  // The sequence number of the last handled request.
  protocol::ClockAnswer answer_;
  // The outcome of the current setting. Refused requests do not change it.
  protocol::ClockOutcome setting_outcome_ = protocol::ClockOutcome::kNone;
  std::uint32_t last_switch_ = 0;  // Counted from 1.
  std::vector<ControlSetting> to_restore_;
  std::function<void()> restored_;
  Nanoseconds next_attempt_ = 0;
  Nanoseconds retry_after_ = 0;
  double most_changes_per_s_ = 0;
  double changes_left_ = 0;  // The tokens of the limit on changes.
  Nanoseconds changes_left_at_ = 0;
  Nanoseconds wait_until_ = 0;  // The latest request waits until then. 0: it does not.
  // The last postponed request that was counted.
  std::uint32_t postponed_request_ = 0;
  std::uint32_t postponed_ = 0;  // The number of postponed requests of this lease.

  // Only the observer thread uses these.
  bool reports_locks_ = true;  // False: the driver has said that it cannot.
  Holder last_holder_ = Holder::kUnknown;
  int same_in_a_row_ = 0;

  mutable Mutex mutex_;
  std::vector<std::function<void()>> commands_ PERSEUS_GUARDED_BY(mutex_);
  GpuSnapshot snapshot_ PERSEUS_GUARDED_BY(mutex_);
  // The switch for which the observer has to read the effect. 0: none.
  std::uint32_t unobserved_ PERSEUS_GUARDED_BY(mutex_) = 0;
  Nanoseconds switched_at_ PERSEUS_GUARDED_BY(mutex_) = 0;
  // Our clock that a foreign lock has replaced.
  std::optional<device::Setting> overridden_ PERSEUS_GUARDED_BY(mutex_);

  // Declared last, so that they end first.
  std::jthread observer_;
  std::jthread worker_;
};

}  // namespace perseus::agent
