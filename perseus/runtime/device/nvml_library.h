// NVML, shared by all its devices. This class loads it once, and restarts it if the driver has gone
// away.
//
// nvmlShutdown invalidates all handles, so no call may be inside the driver during nvmlShutdown. So
// each call into NVML is a Visit. A restart waits until all visits have ended, and new visits wait
// for the restart. Visits do not wait for one another, because no lock is held during a call of the
// driver. So a slow GPU delays no other GPU.
//
// A call that hangs inside the driver would block a restart, and so all other GPUs. So a restart
// gives up after kLongestDrain, and is not tried again for kRestartPause. A single GPU that fell
// off the bus fails at each call. Restarts for such a GPU must not keep interrupting the healthy
// GPUs. So restarts for a single GPU are also at least kRestartPause apart.
//
// Thread safety: all calls may come from several threads at the same time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/nvml_api.h"

namespace perseus::device {

class NvmlLibrary {
 public:
  static constexpr std::chrono::seconds kLongestDrain{2};
  static constexpr Nanoseconds kRestartPause = 5 * kSecond;

  // Loads and initializes NVML. Fails (kSystem) with cause and remedy.
  static Result<std::shared_ptr<NvmlLibrary>> Open(
      std::string_view file, DeviceClock clock,
      std::chrono::milliseconds longest_drain = kLongestDrain);
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  // A period inside the driver. While a Visit exists, handles of its generation are valid.
  class Visit {
   public:
    Visit(Visit&& other) noexcept
        : library_(std::exchange(other.library_, nullptr)), generation_(other.generation_) {}
    Visit& operator=(Visit&&) = delete;
    ~Visit();

    const nvml::Functions& nvml() const { return library_->nvml_; }
    // The number of the initialization. Handles of another initialization are invalid.
    std::uint64_t generation() const { return generation_; }

   private:
    friend class NvmlLibrary;
    Visit(NvmlLibrary* library, std::uint64_t generation)
        : library_(library), generation_(generation) {}
    NvmlLibrary* library_;
    std::uint64_t generation_;
  };

  // First restarts NVML if a call has reported Gone. Fails (kGone) if the restart fails.
  DeviceResult<Visit> Enter();

  // Reports that the GPU or the driver did not answer in this generation. The next visit begins
  // with a restart. Reports of an older generation are ignored, so one restart is enough for all
  // devices.
  enum class Gone { kGpu, kDriver };
  void ReportGone(std::uint64_t generation, Gone what);

  Nanoseconds Now() const { return clock_(); }
  // Such as "Insufficient Permissions (NVML error 4)".
  std::string Describe(int code) const;

 private:
  NvmlLibrary(nvml::Functions nvml, DeviceClock clock, std::chrono::milliseconds longest_drain);
  bool IsRestartDue() const PERSEUS_REQUIRES(mutex_);
  // Releases the mutex during calls of the driver. Meanwhile, is_restarting_ blocks new visits.
  void Restart() PERSEUS_REQUIRES(mutex_);

  const nvml::Functions nvml_;
  const DeviceClock clock_;
  const std::chrono::milliseconds longest_drain_;

  Mutex mutex_;  // Never held during a call of the driver.
  std::condition_variable_any changed_;
  int visits_ PERSEUS_GUARDED_BY(mutex_) = 0;
  std::uint64_t generation_ PERSEUS_GUARDED_BY(mutex_) = 1;
  bool is_initialized_ PERSEUS_GUARDED_BY(mutex_) = true;
  bool is_restarting_ PERSEUS_GUARDED_BY(mutex_) = false;
  // The report since the last restart. Empty: none.
  std::optional<Gone> gone_ PERSEUS_GUARDED_BY(mutex_);
  // The earliest time of the next restart, after a restart that gave up.
  Nanoseconds next_restart_ PERSEUS_GUARDED_BY(mutex_);
  Nanoseconds next_restart_for_gpu_ PERSEUS_GUARDED_BY(mutex_);
  std::string trouble_ PERSEUS_GUARDED_BY(mutex_);  // Why NVML is not initialized.
};

// The meaning of a code. `kChange` is a call that sets something. In such a call, "invalid
// argument" means that an argument is invalid. In a call that only reads, it means that the handle
// is no longer valid.
enum class NvmlUse { kRead, kChange };
DeviceErrorKind KindOfNvmlCode(int code, NvmlUse use);

// Returns what to do about NVML's "unknown error" (999). In a container, its usual cause is
// systemd: when it reloads on the host (systemctl daemon-reload, or an update of a package), it
// applies the device rules of the container's cgroup again, and does not know the GPUs that were
// added to them by a hook of NVIDIA's container runtime. Then the kernel refuses to open the GPUs'
// files (EPERM). `control_file_error` is the errno of opening /dev/nvidiactl, or 0.
std::string_view RemedyOfUnknownError(int control_file_error);
// Returns RemedyOfUnknownError for the code of this error, and `otherwise` for all other codes.
std::string_view RemedyOf(int code, std::string_view otherwise);

}  // namespace perseus::device
