// The test's hand on a node of fake NVIDIA GPUs.
//
// libnvidia-ml.so.1 beside this file is a real shared library with NVML's interface, over GPUs that
// live in a file (node_file.h). A process uses them if FAKE_NVML_FILE names that file and its NVML
// is the fake one ("nvml:" + kLibrary, or LD_LIBRARY_PATH). Test and processes see the same GPUs;
// what was set stays set when whoever set it is killed, as on hardware.
//
//   FakeNvml node = FakeNvml::Create(directory + "/node", {.gpus = {{}, {}}});
//   node.UseInThisProcess();
//   ...
//   EXPECT_EQ(node.SmLock(0), (Range{1200, 1200}));
//   node.Fail(0, Function::kSetSmClock, kNoPermission);
//
// NVML's order of GPUs is not that of their UUIDs: the last one has the smallest UUID.
//
// What is faithful: reference-counted Init, handles that die with Shutdown or a driver's reload,
// locks and limits that a reload drops, clock lists from high to low, the length of a list by
// asking with no room, what an idle or capped GPU shows. What is not: there is no physics; power
// and temperature are what the test says.
//
// Thread safety: all of it, from any process.
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
  int mig_instances = 0;  // -1: no such thing as MIG; 0: off; else MIG mode, with so many.
  bool has_energy_counter = true;
  bool is_energy_running = false;  // Counts power over real time; else only what AddEnergy says.
  int power_mw = 100'000;
  int temperature_c = 40;
  bool is_persistent = true;
  bool is_idle = false;
};
struct NodeSpec {
  std::vector<GpuSpec> gpus;
};

struct ClockRange {
  int lower = 0;
  int upper = 0;
  friend bool operator==(const ClockRange&, const ClockRange&) = default;
};

struct LoggedCall {
  Function function;
  std::optional<int> gpu;
  int first = 0;  // The arguments that are numbers.
  int second = 0;
  int pid = 0;
  std::optional<int> result;  // NVML's code; nothing: the process has not come back from it.
};

// NVML's codes that tests inject most.
inline constexpr int kInvalidArgument = 2;
inline constexpr int kNotSupported = 3;
inline constexpr int kNoPermission = 4;
inline constexpr int kUnknown = 999;

class FakeNvml {
 public:
  static constexpr int kEveryGpu = -1;
  static constexpr int kForever = 0xffff;

  // Both throw std::runtime_error if the file cannot be had.
  static FakeNvml Create(const std::string& path, const NodeSpec& spec);
  static FakeNvml Attach(const std::string& path);

  // Sets FAKE_NVML_FILE, for this process and those that it starts. Takes effect at nvmlInit.
  void UseInThisProcess() const;
  const std::string& path() const { return path_; }

  // ---- The hardware ----
  int gpu_count() const { return static_cast<int>(node_->gpu_count); }
  std::string Uuid(int gpu) const;
  int GpuOf(const std::string& uuid) const;  // -1: none.
  std::optional<ClockRange> SmLock(int gpu) const;
  std::optional<ClockRange> MemoryLock(int gpu) const;
  int PowerLimit(int gpu) const;                // mW
  bool IsAsShipped(int gpu) const;              // No lock, default power limit.
  void LockSm(int gpu, ClockRange range);       // As somebody else would.
  void SetPowerLimit(int gpu, int milliwatts);  // Likewise.
  void AddEnergy(int gpu, std::uint64_t millijoules);
  void SetPower(int gpu, int milliwatts);
  void SetIdle(int gpu, bool is_idle);
  void SetTemperature(int gpu, int celsius);

  // ---- The log: the last kLogCapacity calls, in the order in which they began ----
  std::uint64_t LogEnd() const { return node_->log_end.load(); }
  // From a former LogEnd(). Left out: calls whose process was killed while it wrote them down, and
  // those overwritten since.
  std::vector<LoggedCall> Log(std::uint64_t from = 0) const;
  // Of it, the calls that change something.
  std::vector<LoggedCall> Changes(std::uint64_t from = 0) const;
  std::uint64_t Calls(Function function) const;  // Since Create.

  // ---- What goes wrong ----
  // The function answers `code` and does nothing, so many times.
  void Fail(int gpu, Function function, int code, int times = kForever);
  void FailChanges(int gpu, int code);  // All that set or reset something.
  void Heal();                          // Takes back all of this section but reload and unload.
  // Each call takes so long before it does anything; a lower number frees those inside.
  void Slow(int gpu, Function function, int milliseconds);
  void IgnoreChanges(int gpu, bool ignores);  // Success, and nothing changes.
  void HideSetting(int gpu, bool hides);      // A lock is not named as what limits the clock.
  // The SM clock stays at or below, and NVML names these reasons (0x4 power cap, 0x20 thermal).
  void Cap(int gpu, int sm_clock_mhz, std::uint64_t reasons);
  void StickSmClock(int gpu, int mhz);  // A change that has not landed; 0: it moves again.
  void Lose(int gpu);                   // Fell off the bus...
  void Find(int gpu);                   // ...and is back, as after a reset: no locks.
  // The driver is unloaded and loaded: NVML has to be initialized again; locks, limits and energy
  // counters are as new.
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
