#include "perseus/runtime/agent/latency_check.h"

#include <signal.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "perseus/runtime/agent/saved_state_file.h"

namespace perseus::agent {
namespace {

constexpr int kAttempts = 50;
constexpr auto kBetweenAttempts = std::chrono::milliseconds(100);

device::DeviceResult<void> PutBack(device::Device& device, const SettingBefore& before) {
  const auto wanted = before.is_known ? before.setting : std::nullopt;
  device::DeviceResult<void> result;
  for (int i = 0; i < kAttempts; ++i) {
    if (i > 0) std::this_thread::sleep_for(kBetweenAttempts);
    result = device.Apply(device::Control::kSmClock, wanted);
    if (!result) continue;
    const auto reading = device.ReadSetting(device::Control::kSmClock);
    if (!reading) {
      result = tl::unexpected<device::DeviceError>(reading.error());
    } else if (reading->is_known && reading->setting != wanted) {
      result = device::DeviceFail(device::DeviceErrorKind::kFailed, "it reads {}",
                                  device::Describe(device::Control::kSmClock, reading->setting));
    } else {
      return {};
    }
  }
  return result;
}

// Blocks the signals that would end the process, until the GPU is restored.
class SignalBlock {
 public:
  SignalBlock() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Result<device::SwitchLatency> MeasureSafely(device::Device& device, const LatencyCheck& check) {
  const std::string& uuid = device.info().uuid;
  // No agent may start until this function returns.
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor lock, LockSavedState(check.state));
  PERSEUS_ASSIGN_OR_RETURN(auto file, SavedStateFile::Open(check.state, check.boot_id));
  // After a reboot, an agent has to decide first what to restore. This function knows one GPU only.
  if (!file.state().gpus.empty() &&
      (file.state().gpus.contains(uuid) || file.state().boot_id != check.boot_id)) {
    return FailAs(ErrorKind::kSystem, "GPUs have to be restored first (run perseus gpu restore)");
  }
  const auto found = device.ReadSetting(device::Control::kSmClock);
  if (!found) return FailAs(ErrorKind::kSystem, "{}", found.error().message);
  if (!found->is_known && found->is_certain) {
    return FailAs(ErrorKind::kSystem,
                  "{}, and the driver does not report the locked clocks (unlock the GPU first)",
                  found->hint);
  }

  const SignalBlock signal_block;
  SavedState next = file.state();
  next.boot_id = check.boot_id;
  SavedGpu gpu;
  gpu.uuid = uuid;
  gpu.lease = "doctor";
  gpu.owner = {{getpid(), 1}, getuid(), "perseus doctor"};
  gpu.controls[device::Control::kSmClock] = {Before(*found), /*is_changed=*/true};
  next.Take(std::move(gpu));
  PERSEUS_RETURN_IF_ERROR(file.Save(std::move(next)));

  RealClock clock;
  const auto measured = device::MeasureSwitchLatency(device, device::ClocksToMeasure(device.info()),
                                                     check.rounds, check.timeout, clock);
  if (const auto back = PutBack(device, Before(*found)); !back) {
    return FailAs(ErrorKind::kSystem, "{} was not restored: {} (run perseus gpu restore)", uuid,
                  back.error().message);
  }
  SavedState without = file.state();
  without.Restored(uuid, device::Control::kSmClock);
  without.GiveBack(uuid);
  PERSEUS_RETURN_IF_ERROR(file.Save(std::move(without)));
  if (!measured) return FailAs(ErrorKind::kSystem, "{}", measured.error().message);
  return *measured;
}

}  // namespace perseus::agent
