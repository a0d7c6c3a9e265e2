// GPUs in virtual time. The caller gives their behavior. Tests check that the measurements find
// this behavior.
//
// The node has only what qualification.h can see: clocks that land late, and that a power limit
// lowers; calls that take longer the more GPUs are set at once; changes, readings and late launches
// that delay work; an energy counter with a period and a bias, which takes long to read; power by
// load and clock. The defaults are those of an H100 where one was measured (docs/hardware.md). The
// node has no temperature and no instructions. simulation/virtual_gpu, which runs plans, has them.
//
// The node's clock is a FakeClock, and the node's own calls advance it. So a measurement of minutes
// takes milliseconds, and the same seed gives the same result.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "perseus/runtime/qualifier/measured_node.h"

namespace perseus::qualifier {

struct SimulatedModel {
  std::string name = "Simulated GPU";
  std::vector<int> sm_clocks_mhz;  // Ascending.

  // How a switch behaves. Times begin at the call.
  double call_ms = 1;  // The duration of the call, if one GPU is set.
  // The additional duration for each other GPU that is set at the same time.
  double call_per_other_ms = 0;
  double landing_ms = 10;          // The median time from the driver's answer to the new clock.
  double landing_spread = 0;       // The standard deviation of the logarithm of this time.
  double landing_down_factor = 1;  // A factor on landing_ms, if the clock falls.
  bool can_set_clocks = true;      // False: the driver refuses with "permission denied".
  bool can_read = true;            // False: the driver refuses readings with "not supported".

  // How long one change of a clock delays work. During this time, no work of that kind proceeds. A
  // kernel stops when the clock lands.
  double holds_launch_ms = 0;
  double holds_kernel_ms = 0;
  double holds_copy_ms = 0;
  double holds_collective_ms = 0;
  double read_holds_launch_ms = 0;  // How long one reading of one GPU delays work.
  double launch_us = 5;
  double time_noise = 0;  // The noise of the mean time of a block, and of a work sample.
  // Launches that the host delays by 0.25 to 20 ms, with a heavy tail.
  double late_launches_per_s = 0;

  double read_ms = 3;  // The median duration of a reading. 1 % take 6 times as long.

  double counter_period_ms = 100;
  double counter_resolution_j = 0.001;
  double counter_bias = 0;
  // The noise of the power itself, which changes at each tick of the counter, and of each power
  // reading.
  double power_noise = 0;

  double idle_power_w = 50;
  double busy_power_w = 400;    // At the highest clock, without a limit.
  double power_limit_w = 0;     // A busy GPU lowers its clock to keep this limit. 0: no limit.
  double blocked_power_w = 84;  // At the highest clock.
  // At the lowest clock. Between the two clocks, the power is linear.
  double blocked_power_lowest_w = 84;
  // The clock of a GPU that only waits, if the lock is a range. 0: the upper end of the range.
  int waiting_mhz = 0;

  // The index of a GPU that differs from the others. -1: none.
  int odd_gpu = -1;
  std::string odd_name;  // Empty: the same name as the others.
  bool odd_can_set_clocks = true;
  double odd_power_factor = 1;
  double odd_period_factor = 1;
};

class SimulatedNode final : public MeasuredNode {
 public:
  // Requires at least one GPU and one clock.
  SimulatedNode(SimulatedModel model, int gpus, std::uint64_t seed);
  ~SimulatedNode() override;

  int gpu_count() const override;
  device::Device& device(int gpu) override;
  Clock& clock() override;
  Result<void> Run(int gpu, Load load) override;
  device::DeviceResult<std::vector<SwitchRecord>> Record(
      const std::vector<int>& gpus, const std::optional<device::Setting>& setting,
      Nanoseconds before, Nanoseconds after) override;
  device::DeviceResult<std::vector<std::vector<device::Telemetry>>> Read(
      const std::vector<int>& gpus, Nanoseconds duration) override;
  Result<Timing> Time(Operation operation, const Disturbance& disturbance,
                      Nanoseconds duration) override;

  // The lock that was requested last, for tests. Empty if the driver manages the clock.
  std::optional<device::Setting> RequestedLock(int gpu) const;
  // How many settings were requested.
  int writes() const;

 private:
  class Gpu;
  struct Shared;
  void Sample(int gpu, Nanoseconds from, Nanoseconds to, std::vector<WorkSample>& samples);
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
};

}  // namespace perseus::qualifier
