#include "perseus/cli/simulated_model.h"

namespace perseus::cli {

qualifier::SimulatedModel ModelOf(const virtual_gpu::VirtualNodeSpec& spec) {
  const virtual_gpu::VirtualGpuModel& gpu = spec.gpu;
  const virtual_gpu::DriverBehavior& driver = spec.driver;
  const double limit_w = gpu.default_power_limit_mw / 1000.0;
  const double usual_busy_w = limit_w > 0 ? limit_w : 4 * gpu.blocking_power_w;
  qualifier::SimulatedModel model;
  model.name = spec.gpu_name;
  model.node_name = spec.name;
  model.sm_clocks_mhz.assign(gpu.sm_clocks.mhz.begin(),
                             gpu.sm_clocks.mhz.begin() + gpu.sm_clocks.count);
  model.call_ms = driver.call_ms;
  model.call_per_other_ms = driver.call_per_other_ms;
  model.landing_ms = gpu.switch_latency_s * kMillisecondsPerSecond;
  model.landing_spread = gpu.switch_latency_spread;
  model.holds_launch_ms = driver.holds_launch_ms;
  model.holds_kernel_ms = driver.holds_kernel_ms;
  model.holds_copy_ms = driver.holds_copy_ms;
  model.holds_collective_ms = driver.holds_collective_ms;
  model.read_holds_launch_ms = driver.read_holds_launch_ms;
  model.time_noise = gpu.time_noise;
  model.counter_period_ms = static_cast<double>(gpu.counter_period) / kMillisecond;
  model.counter_resolution_j = driver.counter_resolution_j;
  model.counter_bias = driver.counter_bias;
  model.power_noise = gpu.power_noise;
  model.idle_power_w = gpu.idle_power_w;
  model.busy_power_w = driver.busy_power_w > 0 ? driver.busy_power_w : usual_busy_w;
  model.blocked_power_w = gpu.blocking_power_w;
  model.blocked_power_lowest_w =
      driver.blocked_power_lowest_w > 0 ? driver.blocked_power_lowest_w : gpu.blocking_power_w;
  model.waiting_mhz = driver.waiting_mhz;
  return model;
}

}  // namespace perseus::cli
