// GPUs whose behavior the caller gives, in virtual time: the measurements find what was given, or
// they are wrong.
//
// It has only what qualification.h can see: clocks that land late, calls that take longer the more
// GPUs are set at once, changes and readings that hold up work, an energy counter with a period and
// a bias, and power by load and clock. Temperature and instructions are the matter of
// simulation/virtual_gpu, which runs plans.
//
// The node's clock is a FakeClock that its own calls advance. So a measurement of minutes takes
// milliseconds, and the same seed gives the same result.
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

  // A switch, from the call.
  int highest_reached_mhz = 0;     // The clock stays at or below this. 0: it reaches all clocks.
  double call_ms = 1;              // The call, with one GPU set.
  double call_per_other_ms = 0;    // More for each other GPU that is set at the same time.
  double landing_ms = 10;          // From the driver's answer to the new clock: the median.
  double landing_spread = 0;       // The standard deviation of its logarithm.
  double landing_down_factor = 1;  // Times landing_ms, if the clock falls.
  bool can_set_clocks = true;      // False: the driver refuses with "permission denied".
  bool can_read = true;            // False: the driver refuses readings with "not supported".

  // What one change of a clock holds up: nothing of that kind goes on for this long.
  double holds_launch_ms = 0;
  double holds_kernel_ms = 0;
  double holds_copy_ms = 0;
  double holds_collective_ms = 0;
  double read_holds_launch_ms = 0;  // What one reading of one GPU holds up.
  double launch_us = 5;
  double host_function_us = 15;  // More for a launch behind a host function.
  double time_noise = 0;         // In the mean time of a block, and in a work sample.

  double counter_period_ms = 100;
  double counter_resolution_j = 0.001;
  double counter_bias = 0;
  // In the power itself, which changes at each tick of the counter, and in each power reading.
  double power_noise = 0;

  double idle_power_w = 50;
  double busy_power_w = 400;           // At the highest clock.
  double blocked_power_w = 84;         // At the highest clock.
  double blocked_power_lowest_w = 84;  // At the lowest clock; linear between.
  // With a lock from min to max, a GPU that only waits runs at this clock. 0: at the upper end.
  int waiting_mhz = 0;

  // This GPU differs from the others. -1: none.
  int odd_gpu = -1;
  std::string odd_name;  // Empty: the name of the others.
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

  // The lock that was requested last, for tests: empty if the driver is in control.
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
