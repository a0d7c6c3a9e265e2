#include "perseus/simulation/synthetic/gpu_roofline.h"

#include <fmt/format.h>

#include <algorithm>

namespace perseus::synthetic {
namespace {

// While the SMs wait for memory, their switching activity is this fraction of their activity while
// they compute. The value is an assumption: with it, a stream through memory draws 245 W of the 400
// W of an A100-SXM. The measured profiles cannot confirm it, because their kernels hardly wait for
// memory. docs/reproduction.md shows the results with 0.6.
constexpr double kWaitingActivity = 0.3;
// Kernels that stream data reach about this fraction of the data sheet's bandwidth.
constexpr double kMemoryEfficiency = 0.85;
// The energy of one byte, in the memory and on the link to it. HBM2e needs about 5 pJ for a bit
// (3.9 pJ of these in the memory; O'Connor et al., MICRO 2017). GDDR6 needs 7.5 pJ.
constexpr double kHbmJoulesPerByte = 40e-12;
constexpr double kGddr6JoulesPerByte = 60e-12;
constexpr double kPcie4BytesPerSecond = 31.5e9;  // 16 lanes, each way.

// The chip of both A100 modules, from NVIDIA's A100 white paper and the A100 80 GB data sheet: 108
// SMs of 2,048 dense FP16 flops a cycle at 1,410 MHz are 312 TFLOP/s. Supported clocks: 210 to
// 1,410 MHz in steps of 15. The values from compute_efficiency to voltage_slope_per_mhz are
// calibrated. The static power is the fitted one minus what the memory traffic of matrix products
// draws.
GpuRoofline Ga100() {
  return {.name = {},
          .lowest_frequency_mhz = 210,
          .highest_frequency_mhz = 1410,
          .frequency_step_mhz = 15,
          .multiprocessors = 108,
          .flops_per_cycle = 2048,
          .compute_efficiency = 0.8,
          .stall_share = 0.10,
          .memory_efficiency = kMemoryEfficiency,
          .blocking_power_w = 83.64,  // Published with the measured workloads.
          .static_power_w = 23,
          .dynamic_power_w_per_mhz = 0.25,
          .voltage_floor_mhz = 1110,
          .voltage_slope_per_mhz = 0.00068,
          .memory_energy_j_per_byte = kHbmJoulesPerByte};
}

// The 80 GB PCIe module: 1,935 GB/s, 300 W. (The 40 GB module has 1,555 GB/s and 250 W.)
GpuRoofline A100Pcie() {
  GpuRoofline gpu = Ga100();
  gpu.name = "a100-pcie";
  gpu.memory_bytes_per_s = 1935e9;
  gpu.interconnect_bytes_per_s = kPcie4BytesPerSecond;
  gpu.power_limit_w = 300;
  return gpu;
}

// The 80 GB SXM module: 2,039 GB/s, 400 W (500 W in some systems), NVLink with 300 GB/s each way.
GpuRoofline A100Sxm() {
  GpuRoofline gpu = Ga100();
  gpu.name = "a100-sxm";
  gpu.memory_bytes_per_s = 2039e9;
  gpu.interconnect_bytes_per_s = 300e9;
  gpu.power_limit_w = 400;
  return gpu;
}

// NVIDIA A40 data sheet: 149.7 TFLOP/s dense (84 SMs of 1,024 flops a cycle at 1,740 MHz), 696 GB/s
// of GDDR6, 300 W. Supported clocks: 210 to 1,740 MHz in steps of 15. The stall share comes from
// the backward passes alone: the times of the forward passes of that profile jump by a tenth
// between neighboring clocks.
GpuRoofline A40() {
  return {.name = "a40",
          .lowest_frequency_mhz = 210,
          .highest_frequency_mhz = 1740,
          .frequency_step_mhz = 15,
          .multiprocessors = 84,
          .flops_per_cycle = 1024,
          .compute_efficiency = 0.65,
          .stall_share = 0.45,
          .memory_bytes_per_s = 696e9,
          .memory_efficiency = kMemoryEfficiency,
          .interconnect_bytes_per_s = kPcie4BytesPerSecond,
          .power_limit_w = 300,
          .blocking_power_w = 70.38,  // Published with the measured workloads.
          .static_power_w = 63,
          .dynamic_power_w_per_mhz = 0.16,
          .voltage_floor_mhz = 1140,
          .voltage_slope_per_mhz = 0.00038,
          .memory_energy_j_per_byte = kGddr6JoulesPerByte};
}

// NVIDIA H100 white paper and data sheet: 132 SMs of 4,096 dense FP16 flops a cycle (989 TFLOP/s at
// the boost clock of 1,830 MHz), 3.35 TB/s of HBM3, 700 W, NVLink with 450 GB/s each way. Supported
// clocks: 345 to 1,980 MHz in steps of 15. The compute efficiency is calibrated: with it, 8 layers
// of Llama 3 8B take as long as on one H100 (docs/hardware.md). The other values are assumptions.
// Stalls are those of the A100. The voltage curve has the A100's shape relative to the highest
// clock. The dynamic power is such that matrix products reach the power limit at nine tenths of the
// highest clock, as on the A100-SXM. Blocking power and static power are in proportion to what idle
// modules draw.
GpuRoofline H100Sxm() {
  return {.name = "h100-sxm",
          .lowest_frequency_mhz = 345,
          .highest_frequency_mhz = 1980,
          .frequency_step_mhz = 15,
          .multiprocessors = 132,
          .flops_per_cycle = 4096,
          .compute_efficiency = 0.58,
          .stall_share = 0.10,
          .memory_bytes_per_s = 3350e9,
          .memory_efficiency = kMemoryEfficiency,
          .interconnect_bytes_per_s = 450e9,
          .power_limit_w = 700,
          .blocking_power_w = 120,
          .static_power_w = 70,
          .dynamic_power_w_per_mhz = 0.30,
          .voltage_floor_mhz = 1560,
          .voltage_slope_per_mhz = 0.00048,
          .memory_energy_j_per_byte = kHbmJoulesPerByte};
}

}  // namespace

TimeAndEnergy GpuRoofline::RunUnlimited(std::span<const KernelWork> kernels,
                                        double frequency_mhz) const {
  const double flops_per_s = compute_efficiency * PeakFlops();
  const double voltage =
      1 + voltage_slope_per_mhz * std::max(0.0, frequency_mhz - voltage_floor_mhz);
  const double switching_w = dynamic_power_w_per_mhz * frequency_mhz * voltage * voltage;
  TimeAndEnergy sum;
  for (const KernelWork& kernel : kernels) {
    const double full_s = kernel.flops / flops_per_s;
    const double switching_s = full_s * (1 - stall_share) * highest_frequency_mhz / frequency_mhz;
    const double compute_s = switching_s + full_s * stall_share;
    const double memory_s = kernel.memory_bytes / (memory_efficiency * memory_bytes_per_s);
    const double busy_s = std::max(compute_s, memory_s);
    const double active_s = switching_s + kWaitingActivity * (busy_s - switching_s);
    const double waiting_s = kernel.all_reduce_bytes / interconnect_bytes_per_s;
    sum.time_s += busy_s + waiting_s;
    sum.energy_j += static_power_w * busy_s + switching_w * active_s +
                    memory_energy_j_per_byte * kernel.memory_bytes + blocking_power_w * waiting_s;
  }
  return sum;
}

double GpuRoofline::ActualFrequencyMhz(std::span<const KernelWork> kernels,
                                       double requested_mhz) const {
  const auto fits = [&](double frequency_mhz) {
    const TimeAndEnergy run = RunUnlimited(kernels, frequency_mhz);
    return run.energy_j <= power_limit_w * run.time_s;
  };
  if (fits(requested_mhz)) return requested_mhz;
  // Average power grows with the clock, so bisection finds the limit. 50 steps reach the precision
  // of a double.
  double within = lowest_frequency_mhz;
  double beyond = requested_mhz;
  for (int i = 0; i < 50; ++i) {
    const double middle = (within + beyond) / 2;
    (fits(middle) ? within : beyond) = middle;
  }
  return within;
}

TimeAndEnergy GpuRoofline::Run(std::span<const KernelWork> kernels, double requested_mhz) const {
  return RunUnlimited(kernels, ActualFrequencyMhz(kernels, requested_mhz));
}

std::vector<GpuRoofline> GpuRooflines() { return {A40(), A100Pcie(), A100Sxm(), H100Sxm()}; }

Result<GpuRoofline> FindGpuRoofline(std::string_view name) {
  std::vector<std::string_view> names;
  for (const GpuRoofline& gpu : GpuRooflines()) {
    if (gpu.name == name) return gpu;
    names.push_back(gpu.name);
  }
  return Fail("model profile: GPU \"{}\" is unknown (choose one of {})", name,
              fmt::join(names, ", "));
}

}  // namespace perseus::synthetic
