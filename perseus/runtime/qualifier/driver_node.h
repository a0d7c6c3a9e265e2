// Real GPUs by their driver only: clocks, energy, power and the duration of calls. It runs no
// kernels, so it sees a clock only in the driver's readings, which an idle GPU may not show.
//
// cuda_node.h adds kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "perseus/runtime/qualifier/measured_node.h"

namespace perseus::qualifier {

class DriverNode : public MeasuredNode {
 public:
  // The devices have to outlive the node; at least one. `why_no_kernels` is what WhyNot() says.
  DriverNode(std::vector<device::Device*> devices, std::string why_no_kernels);

  int gpu_count() const override { return static_cast<int>(devices_.size()); }
  device::Device& device(int gpu) override { return *devices_[static_cast<std::size_t>(gpu)]; }
  Clock& clock() override { return clock_; }
  std::string WhyNot(Load load) const override;
  std::string WhyNot(Operation operation) const override;
  Result<void> Run(int gpu, Load load) override;
  device::DeviceResult<std::vector<SwitchRecord>> Switch(const std::vector<int>& gpus,
                                                         const device::Setting& setting,
                                                         Nanoseconds before,
                                                         Nanoseconds after) override;
  device::DeviceResult<std::vector<std::vector<WorkSample>>> Watch(const std::vector<int>& gpus,
                                                                   Nanoseconds duration) override;
  device::DeviceResult<std::vector<std::vector<device::Telemetry>>> Read(
      const std::vector<int>& gpus, Nanoseconds duration) override;
  Result<Timing> Time(Operation operation, const Disturbance& disturbance,
                      Nanoseconds duration) override;

 protected:
  // Samples the work of a GPU until that time, which another thread may set meanwhile. Here, work
  // is the integral of the clock that the driver reports. One thread of each GPU calls it.
  virtual device::DeviceResult<std::vector<WorkSample>> Sample(
      int gpu, const std::atomic<Nanoseconds>& until);

 private:
  const std::vector<device::Device*> devices_;
  const std::string why_no_kernels_;
  RealClock clock_;
};

// Changes and reads the clocks of all GPUs of a node, each on a thread of its own, from its
// construction to Stop().
class Disturber {
 public:
  Disturber(MeasuredNode& node, const Disturbance& disturbance);
  ~Disturber();
  Disturber(const Disturber&) = delete;
  Disturber& operator=(const Disturber&) = delete;
  // How many changes the drivers made. Fails (kSystem) with the first failure of a driver.
  Result<std::int64_t> Stop();

 private:
  struct Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace perseus::qualifier
