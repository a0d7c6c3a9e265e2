#include "perseus/runtime/device/nvml_library.h"

#include <fcntl.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "perseus/base/file_descriptor.h"

namespace perseus::device {

DeviceErrorKind KindOfNvmlCode(int code, NvmlUse use) {
  switch (code) {
    case nvml::kNoPermission:
    case nvml::kOperatingSystem:
      return DeviceErrorKind::kPermission;
    case nvml::kNotSupported:
    case nvml::kFunctionNotFound:
    case nvml::kArgumentVersionMismatch:
    case nvml::kDeprecated:
      return DeviceErrorKind::kNotSupported;
    case nvml::kInvalidArgument:
      return use == NvmlUse::kChange ? DeviceErrorKind::kInvalid : DeviceErrorKind::kGone;
    case nvml::kFrequencyNotSupported:
      return DeviceErrorKind::kInvalid;
    case nvml::kUninitialized:
    case nvml::kNotFound:
    case nvml::kDriverNotLoaded:
    case nvml::kLibraryNotFound:
    case nvml::kGpuIsLost:
    case nvml::kResetRequired:
    case nvml::kVersionMismatch:
    case nvml::kGpuNotFound:
      return DeviceErrorKind::kGone;
    default:
      return DeviceErrorKind::kFailed;
  }
}

std::string_view RemedyOfUnknownError(int control_file_error) {
  if (control_file_error == EPERM) {
    return "the kernel no longer lets this container open /dev/nvidiactl, because systemd reloaded "
           "on the host (systemctl daemon-reload) and reset the container's device rules: start "
           "the container again, with its GPUs from CDI or --device so that they stay";
  }
  return "see dmesg for an Xid; in a container, start it again: a systemctl daemon-reload on the "
         "host may have taken its GPUs away";
}

std::string_view RemedyOf(int code, std::string_view otherwise) {
  if (code != nvml::kUnknown) return otherwise;
  const FileDescriptor file(::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
  return RemedyOfUnknownError(file ? 0 : errno);
}

NvmlLibrary::NvmlLibrary(nvml::Functions nvml, DeviceClock clock,
                         std::chrono::milliseconds longest_drain)
    : nvml_(std::move(nvml)),
      clock_(std::move(clock)),
      longest_drain_(longest_drain),
      next_restart_(std::numeric_limits<Nanoseconds>::min()),
      next_restart_for_gpu_(next_restart_) {}

NvmlLibrary::~NvmlLibrary() {
  if (is_initialized_) nvml_.Shutdown();
}

Result<std::shared_ptr<NvmlLibrary>> NvmlLibrary::Open(std::string_view file, DeviceClock clock,
                                                       std::chrono::milliseconds longest_drain) {
  PERSEUS_ASSIGN_OR_RETURN(nvml::Functions nvml, nvml::Load(file));
  if (const int code = nvml.Init(); code != nvml::kSuccess) {
    return FailAs(
        ErrorKind::kSystem, "cannot start NVML: {} (NVML error {}): {}", nvml.ErrorString(code),
        code,
        RemedyOf(code,
                 "see whether nvidia-smi works; load the kernel module (modprobe nvidia), or "
                 "reboot after an upgrade of the driver"));
  }
  return std::shared_ptr<NvmlLibrary>(
      new NvmlLibrary(std::move(nvml), std::move(clock), longest_drain));
}

std::string NvmlLibrary::Describe(int code) const {
  return fmt::format("{} (NVML error {})", nvml_.ErrorString(code), code);
}

NvmlLibrary::Visit::~Visit() {
  if (library_ == nullptr) return;
  const MutexLock lock(library_->mutex_);
  if (--library_->visits_ == 0) library_->changed_.notify_all();
}

DeviceResult<NvmlLibrary::Visit> NvmlLibrary::Enter() {
  const MutexLock lock(mutex_);
  while (is_restarting_) changed_.wait(mutex_);
  if (IsRestartDue()) Restart();
  if (!is_initialized_) return DeviceFail(DeviceErrorKind::kGone, "{}", trouble_);
  ++visits_;
  return Visit(this, generation_);
}

bool NvmlLibrary::IsRestartDue() const {
  if (!gone_) return false;
  const Nanoseconds now = clock_();
  return now >= next_restart_ && (*gone_ == Gone::kDriver || now >= next_restart_for_gpu_);
}

void NvmlLibrary::Restart() {
  is_restarting_ = true;
  if (changed_.wait_for(mutex_, longest_drain_,
                        [this]() PERSEUS_REQUIRES(mutex_) { return visits_ == 0; })) {
    const bool was_initialized = is_initialized_;
    mutex_.unlock();
    if (was_initialized) nvml_.Shutdown();
    const int code = nvml_.Init();
    mutex_.lock();
    is_initialized_ = code == nvml::kSuccess;
    gone_ = is_initialized_ ? std::nullopt : std::optional(Gone::kDriver);
    ++generation_;
    next_restart_for_gpu_ = clock_() + kRestartPause;
    if (!is_initialized_) {
      trouble_ = fmt::format(
          "NVIDIA's driver is gone: {} ({})", Describe(code),
          RemedyOf(code, "the next call looks for it again; check whether nvidia-smi works"));
    }
  } else {
    next_restart_ = clock_() + kRestartPause;
  }
  is_restarting_ = false;
  changed_.notify_all();
}

void NvmlLibrary::ReportGone(std::uint64_t generation, Gone what) {
  const MutexLock lock(mutex_);
  if (generation != generation_) return;
  if (gone_ != Gone::kDriver) gone_ = what;
}

}  // namespace perseus::device
