// NVML as all its devices share it: loaded once, and started again when the driver went away and
// came back.
//
// Handles die with nvmlShutdown, so nobody may be inside the driver then. Each call into NVML is
// therefore a Visit; a restart waits until all visits have ended, and new ones wait for it. Visits
// do not wait for one another: no lock is held while a driver's call runs, and a slow GPU delays no
// other.
//
// A call that hangs inside the driver would hold a restart up for ever, and with it all other GPUs.
// So a restart gives up after kLongestDrain, and is not tried again for kRestartPause.
// A single GPU that fell off the bus fails at each call; so that its attempts do not keep
// interrupting the healthy ones, restarts for a GPU's sake are kRestartPause apart as well.
//
// Thread safety: all calls may come from several threads at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/device/nvml_api.h"

namespace perseus::device {

// Time as devices stamp it; steady. Tests bring their own.
using DeviceClock = std::function<Nanoseconds()>;
Nanoseconds SteadyNow();

class NvmlLibrary {
 public:
  static constexpr std::chrono::seconds kLongestDrain{2};
  static constexpr Nanoseconds kRestartPause = 5'000'000'000;

  // Loads and initializes. Fails with kSystem, cause and remedy.
  static Result<std::shared_ptr<NvmlLibrary>> Open(
      std::string_view file, DeviceClock clock,
      std::chrono::milliseconds longest_drain = kLongestDrain);
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  // Somebody inside the driver; while it lives, handles of its generation mean something.
  class Visit {
   public:
    Visit(Visit&& other) noexcept
        : library_(std::exchange(other.library_, nullptr)), generation_(other.generation_) {}
    Visit& operator=(Visit&&) = delete;
    ~Visit();

    const nvml::Functions& nvml() const { return library_->api_.functions; }
    // Of the initialization; handles of another one are void.
    std::uint64_t generation() const { return generation_; }

   private:
    friend class NvmlLibrary;
    Visit(NvmlLibrary* library, std::uint64_t generation)
        : library_(library), generation_(generation) {}
    NvmlLibrary* library_;
    std::uint64_t generation_;
  };

  // Restarts NVML first if somebody reported it gone. Fails with kGone if that fails.
  DeviceResult<Visit> Enter();

  // Tells that a call of this generation found nobody at home, so that the next visit begins with a
  // restart: one for all devices, since reports of an older generation are late and mean nothing.
  enum class Gone { kGpu, kDriver };
  void ReportGone(std::uint64_t generation, Gone what);

  Nanoseconds Now() const { return clock_(); }
  // "Insufficient Permissions (NVML error 4)".
  std::string Describe(int code) const;

 private:
  NvmlLibrary(nvml::Api api, DeviceClock clock, std::chrono::milliseconds longest_drain);
  bool IsRestartDue() const;  // With the lock held.
  void Restart(std::unique_lock<std::mutex>& lock);

  const nvml::Api api_;
  const DeviceClock clock_;
  const std::chrono::milliseconds longest_drain_;

  std::mutex mutex_;  // Never held during a driver's call. Guards:
  std::condition_variable changed_;
  int visits_ = 0;
  std::uint64_t generation_ = 1;
  bool is_initialized_ = true;
  bool is_restarting_ = false;
  std::optional<Gone> gone_;  // Reported, and not restarted since.
  Nanoseconds next_restart_;  // Not before this, after one that had to give up.
  Nanoseconds next_restart_for_gpu_;
  std::string trouble_;  // Why it is not initialized.
};

// What a code means for whoever called. `kChange`: a call that sets something, whose arguments may
// be wrong; of one that only reads, an "invalid argument" is a handle that is no longer one.
enum class NvmlUse { kRead, kChange };
DeviceErrorKind KindOfNvmlCode(int code, NvmlUse use);

}  // namespace perseus::device
