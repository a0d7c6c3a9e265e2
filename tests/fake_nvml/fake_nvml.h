// Controls a node of fake NVIDIA GPUs in tests.
//
// libnvidia-ml.so.1 in this directory is a real shared library with NVML's interface. The state of
// its GPUs is in a file (node_file.h). A process uses these GPUs if FAKE_NVML_FILE names this file,
// and the process loads the fake library ("nvml:" + FAKE_NVML_LIBRARY, or LD_LIBRARY_PATH). The
// test and all processes see the same GPUs. As on hardware, settings stay when the process that
// made them is killed.
//
//   FakeNvml node = FakeNvml::Create(directory + "/node", {.gpus = {{}, {}}});
//   node.UseInThisProcess();
//   ...
//   EXPECT_EQ(node.SmLock(0), (Range{1200, 1200}));
//   node.Fail(0, Function::kSetSmClock, kNoPermission);
//
// The order of GPUs in NVML differs from the order of their UUIDs: the last GPU has the smallest
// UUID.
//
// Like the real library, the fake counts references of Init, and invalidates handles at Shutdown
// and at a driver reload. At a reload, it drops locks and limits. It lists clocks from high to low,
// and returns the length of a list to a caller without a buffer. It shows the clocks of an idle or
// capped GPU. Unlike the real library, the fake has no physics: tests set the power.
//
// Thread-safe, also across processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/fake_nvml/node_file.h"

namespace perseus::fake_nvml {

struct GpuSpec {
  std::string name = "Fake A100";
  std::vector<int> sm_clocks_mhz = {210, 1200, 1305, 1410};
  std::vector<int> memory_clocks_mhz = {810, 1215};
  int default_power_limit_mw = 400'000;  // 0: no power limit.
  int least_power_limit_mw = 100'000;
  int most_power_limit_mw = 400'000;
  int mig_instances = 0;  // -1: no MIG support; 0: MIG is off; otherwise the number of instances.
  bool has_energy_counter = true;
  // True: the counter adds up power over real time, and changes ten times a second. False: only
  // AddEnergy() adds energy.
  bool is_energy_running = false;
  bool has_power = true;
  int power_mw = 100'000;
  int temperature_c = 40;
  bool is_persistent = true;
};
struct NodeSpec {
  std::vector<GpuSpec> gpus;
  std::string driver_version = "570.124.06";
};

struct ClockRange {
  int lower = 0;
  int upper = 0;
  friend bool operator==(const ClockRange&, const ClockRange&) = default;
};

struct LoggedCall {
  Function function;
  std::optional<int> gpu;
  int first = 0;  // The numeric arguments of the call.
  int second = 0;
  int pid = 0;
  std::optional<int> result;  // NVML's code. nullopt if the call has not returned.
};

// The NVML codes that tests inject most often.
inline constexpr int kInvalidArgument = 2;
inline constexpr int kNotSupported = 3;
inline constexpr int kNoPermission = 4;
inline constexpr int kUnknown = 999;

class FakeNvml {
 public:
  static constexpr int kEveryGpu = -1;
  static constexpr int kForever = 0xffff;

  // Both functions throw std::runtime_error if they cannot create or open the file.
  static FakeNvml Create(const std::string& path, const NodeSpec& spec);
  static FakeNvml Attach(const std::string& path);

  // Sets FAKE_NVML_FILE for this process and its children. The new value takes effect at the next
  // nvmlInit.
  void UseInThisProcess() const;
  const std::string& path() const { return path_; }

  // ---- The hardware ----
  int gpu_count() const { return static_cast<int>(node_->gpu_count); }
  std::string Uuid(int gpu) const;
  int GpuOf(const std::string& uuid) const;  // -1: no GPU has this UUID.
  std::optional<ClockRange> SmLock(int gpu) const;
  std::optional<ClockRange> MemoryLock(int gpu) const;
  int PowerLimit(int gpu) const;                // mW
  bool IsAsShipped(int gpu) const;              // No lock, default power limit.
  void LockSm(int gpu, ClockRange range);       // As an administrator would do.
  void SetPowerLimit(int gpu, int milliwatts);  // As an administrator would do.
  void AddEnergy(int gpu, std::uint64_t millijoules);
  void ResetEnergy(int gpu);  // As a reset of the GPU does.
  void SetPower(int gpu, int milliwatts);
  void SetIdle(int gpu, bool is_idle);
  void SetPrograms(int gpu, const std::vector<int>& pids);
  // NVML's drivers 535.43 to 535.86 list programs in entries of 32 bytes instead of 24.
  void UseLongPrograms(int gpu, bool uses);

  // ---- The log: the last kLogCapacity calls, in the order in which they began ----
  std::uint64_t LogEnd() const { return node_->log_end.load(); }
  // The calls since an earlier LogEnd(). Leaves out calls whose process was killed while it logged
  // them, and calls that newer calls have overwritten.
  std::vector<LoggedCall> Log(std::uint64_t from = 0) const;
  // Only the calls of the log that change a setting.
  std::vector<LoggedCall> Changes(std::uint64_t from = 0) const;
  std::uint64_t Calls(Function function) const;  // The number since Create().

  // ---- Faults ----
  // Makes the next `times` calls of the function return `code` and do nothing.
  void Fail(int gpu, Function function, int code, int times = kForever);
  void FailChanges(int gpu, int code);  // For all functions that change a setting.
  void Heal();                          // Ends all faults of this section except reload and unload.
  // Makes each call wait this long first. A lower number also shortens the waits of calls in
  // progress.
  void Slow(int gpu, Function function, int milliseconds);
  // During such a wait, a process holds a lock of the library, and all calls of the process take
  // this lock. So a child that is forked during the wait hangs in its first call.
  void SetSerial(bool is_serial) { node_->is_serial = is_serial ? 1 : 0; }
  void IgnoreChanges(int gpu, bool ignores);  // Changes return success but have no effect.
  void HideSetting(int gpu, bool hides);  // NVML does not report a lock as a reason for the clock.
  // Limits the SM clock; NVML then reports these reasons (0x4 power cap, 0x20 thermal).
  void Cap(int gpu, int sm_clock_mhz, std::uint64_t reasons);
  void StickSmClock(int gpu, int mhz);  // The clock stays at this value. 0: it can change again.
  void Lose(int gpu);                   // The GPU falls off the bus.
  void Find(int gpu);                   // The GPU returns without locks, as after a reset.
  // Unloads and loads the driver. Processes must then initialize NVML again. Locks, limits and
  // energy counters are reset.
  void ReloadDriver();
  void UnloadDriver();
  void LoadDriver();

 private:
  FakeNvml(std::string path, std::shared_ptr<Node> node)
      : path_(std::move(path)), node_(std::move(node)) {}
  Gpu& At(int gpu) const;
  void ResetHardware(Gpu& gpu);

  std::string path_;
  std::shared_ptr<Node> node_;
};

}  // namespace perseus::fake_nvml
