#include "perseus/runtime/agent/settings_guard.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "perseus/runtime/agent/saved_state_file.h"

namespace perseus::agent {
namespace {

constexpr auto kBetweenAttempts = std::chrono::milliseconds(100);

device::DeviceResult<void> PutBack(device::Device& device, const SettingBefore& before,
                                   int attempts) {
  const auto wanted = before.is_known ? before.setting : std::nullopt;
  device::DeviceResult<void> result;
  for (int i = 0; i < attempts; ++i) {
    if (i > 0) std::this_thread::sleep_for(kBetweenAttempts);
    result = device.Apply(device::Control::kSmClock, wanted);
    if (!result) continue;
    const auto reading = device.ReadSetting(device::Control::kSmClock);
    if (!reading) {
      result = Fail(reading);
    } else if (reading->is_known && reading->setting != wanted) {
      result = device::DeviceFail(device::DeviceErrorKind::kFailed, "it reads {}",
                                  device::Describe(device::Control::kSmClock, reading->setting));
    } else {
      return {};
    }
  }
  return result;
}

// Blocks the signals that would end the process until the GPUs are restored.
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

class SettingsGuard::Held {
 public:
  Held(FileDescriptor lock, SavedStateFile file) : lock_(std::move(lock)), file_(std::move(file)) {}

  struct Gpu {
    device::Device* device = nullptr;
    SettingBefore before;
  };

  Result<void> Save(std::vector<Gpu> gpus, const Where& where) {
    SavedState next = file_.state();
    next.boot_id = where.boot_id;
    for (const Gpu& held : gpus) {
      SavedGpu gpu;
      gpu.uuid = held.device->info().uuid;
      gpu.lease = "guard";
      gpu.owner = {{getpid(), 1}, getuid(), where.holder};
      gpu.controls[device::Control::kSmClock] = {held.before, /*is_changed=*/true};
      next.Take(std::move(gpu));
    }
    PERSEUS_RETURN_IF_ERROR(file_.Save(std::move(next)));
    gpus_ = std::move(gpus);
    attempts_ = where.attempts;
    return {};
  }

  Result<void> Forget() {
    SavedState next = file_.state();
    for (const Gpu& gpu : gpus_) {
      next.Restored(gpu.device->info().uuid, device::Control::kSmClock);
      next.GiveBack(gpu.device->info().uuid);
    }
    gpus_.clear();
    return file_.Save(std::move(next));
  }

  Result<void> Restore() {
    SavedState next = file_.state();
    std::vector<Gpu> failed;
    std::string why;
    for (const Gpu& gpu : gpus_) {
      const std::string& uuid = gpu.device->info().uuid;
      if (const auto back = PutBack(*gpu.device, gpu.before, attempts_); !back) {
        failed.push_back(gpu);
        why += fmt::format("{}{} was not restored: {}", why.empty() ? "" : "; ", uuid,
                           back.error().Message());
        continue;
      }
      next.Restored(uuid, device::Control::kSmClock);
      next.GiveBack(uuid);
    }
    const bool has_news = !gpus_.empty();
    gpus_ = std::move(failed);
    const Result<void> saved = has_news ? file_.Save(std::move(next)) : Result<void>();
    if (why.empty()) return saved;
    return FailAs(ErrorKind::kSystem, "{}{} (run perseus gpu restore)", why,
                  saved ? "" : "; " + saved.error().Message());
  }

 private:
  const SignalBlock signal_block_;
  FileDescriptor lock_;  // While the guard holds this lock, no agent can start.
  SavedStateFile file_;
  std::vector<Gpu> gpus_;
  int attempts_ = 1;
};

SettingsGuard::SettingsGuard(std::unique_ptr<Held> held) : held_(std::move(held)) {}
SettingsGuard::SettingsGuard(SettingsGuard&&) noexcept = default;

SettingsGuard::~SettingsGuard() {
  // If the restore fails, the settings stay in the state. The next agent reads the state.
  if (held_) static_cast<void>(held_->Restore());
}

Result<SettingsGuard> SettingsGuard::Take(std::vector<device::Device*> devices,
                                          const Where& where) {
  PERSEUS_ASSIGN_OR_RETURN(FileDescriptor lock, LockSavedState(where.state));
  PERSEUS_ASSIGN_OR_RETURN(auto file, SavedStateFile::Open(where.state, where.boot_id));
  // After a reboot, an agent first decides what to restore. The guard knows only its own GPUs.
  const auto& saved = file.state().gpus;
  const bool has_ours = std::any_of(devices.begin(), devices.end(), [&](device::Device* device) {
    return saved.contains(device->info().uuid);
  });
  if (!saved.empty() && (has_ours || file.state().boot_id != where.boot_id)) {
    return FailAs(ErrorKind::kSystem, "GPUs have to be restored first (run perseus gpu restore)");
  }
  std::vector<Held::Gpu> gpus;
  for (device::Device* device : devices) {
    PERSEUS_ASSIGN_OR_RETURN(const auto found, device->ReadSetting(device::Control::kSmClock));
    if (!found.is_known && found.is_certain) {
      return FailAs(ErrorKind::kSystem,
                    "{}, and the driver does not report the locked clocks (unlock the GPU first)",
                    found.hint);
    }
    gpus.push_back({device, Before(found)});
  }
  auto held = std::make_unique<Held>(std::move(lock), std::move(file));
  PERSEUS_RETURN_IF_ERROR(held->Save(std::move(gpus), where));
  return SettingsGuard(std::move(held));
}

Result<void> SettingsGuard::Restore() { return held_->Restore(); }
Result<void> SettingsGuard::Forget() { return held_->Forget(); }

}  // namespace perseus::agent
