// A model of the time and the energy of a kernel on a GPU at a clock: a roofline with voltage and
// frequency.
//
// It makes profiles of workloads that nobody has measured (model_zoo.h lists the kernels that a
// model runs). GpuModel (synthetic_profile.h) is simpler: its curves describe two given stages, and
// the work is only a number. Here, the work follows from the architecture of the model.
//
// Time. A kernel computes and moves data, and the slower of the two determines its time. The core
// clock f changes only the time of computing, because the memory has its own clock:
//     compute(f) = flops / (efficiency * peak) * ((1 - stalls) * f_highest / f + stalls)
//     memory     = bytes / (efficiency * memory bandwidth)
//     time(f)    = max(compute(f), memory)
// The communication of tensor parallelism comes after that. No clock changes its time, and nothing
// overlaps with it. `stalls` is the part of the time in which even a large matrix product waits for
// its operands: a tenth on the A100, nearly half on the A40 with its small cache and slow memory.
//
// Power. It is the sum of three parts: static power, the switching of the SMs, and the energy of
// the memory for each byte:
//     power(f) = static + activity * c * f * V(f)^2 + energy per byte * bytes / time(f)
//     V(f)     = 1 + slope * max(0, f - f_floor)
//     activity = 1 while the SMs compute, kWaitingActivity while they wait for memory or stall
// A GPU that waits for others (all-reduce, pipeline neighbors) draws the blocking power.
//
// Power limit. The GPU keeps only its *average* power within the limit, because it checks every few
// milliseconds, and kernels are shorter. If a clock would exceed the limit, it is lowered until the
// whole instruction fits. So all requested clocks above this one give the same result, as in
// GpuModel.
//
// Alternatives that we rejected:
// (1) An invented stage time for each model. Such a time has no source, and nothing can check it.
// (2) One roofline point for each layer. Every transformer layer becomes compute-bound. In eager
//     frameworks, however, half of a small layer's time is softmax, dropout and similar kernels,
//     whose time does not depend on the clock. The savings of small models depend on such kernels.
// (3) A smooth sum of the two times instead of the maximum. The sum needs one more parameter, and
//     no available measurement sets it.
//
// Sources. Clocks, SMs, peaks, bandwidths and limits come from NVIDIA's data sheets and white
// papers, which gpu_roofline.cc names at each GPU. Efficiency, stalls, static power, dynamic power
// and voltage of the A100 and the A40 are the least-squares fit to two measured profiles: GPT-3
// 175B on A100-SXM and Bloom 176B on A40 (docs/reproduction.md). The large, fused
// layers of these profiles are nearly all matrix products, and the fit treats them as such. No
// value was fitted to the savings of a workload. The H100 is not calibrated: it uses the scaled
// curve of the A100.
//
// The model leaves out kernel launches, wave quantization and the inefficiency of small matrices
// (so times of small microbatches are too short), caches, a memory bandwidth that falls at the
// lowest clocks, temperature, and data-dependent power.
//
// Thread safety: all types are values without shared state.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"

namespace perseus::synthetic {

// The work of one kernel on one GPU.
struct KernelWork {
  double flops = 0;             // On tensor cores, FP16 or BF16.
  double memory_bytes = 0;      // Read from and written to the GPU's memory.
  double all_reduce_bytes = 0;  // Sent, and also received, for tensor parallelism.
};

struct TimeAndEnergy {
  double time_s = 0;
  double energy_j = 0;
};

struct GpuRoofline {
  std::string_view name;         // "a100-sxm"
  int lowest_frequency_mhz = 0;  // The lowest clock that the driver offers.
  int highest_frequency_mhz = 0;
  int frequency_step_mhz = 0;
  int multiprocessors = 0;
  double flops_per_cycle = 0;     // For one multiprocessor: FP16 on tensor cores, dense.
  double compute_efficiency = 0;  // The fraction of the peak that large matrix products reach.
  double stall_share = 0;         // The fraction of their time at the highest clock.
  double memory_bytes_per_s = 0;
  double memory_efficiency = 0;
  double interconnect_bytes_per_s = 0;  // Each way, between the GPUs of a stage.
  double power_limit_w = 0;
  double blocking_power_w = 0;
  double static_power_w = 0;
  double dynamic_power_w_per_mhz = 0;  // At the voltage floor, while all SMs compute.
  double voltage_floor_mhz = 0;
  double voltage_slope_per_mhz = 0;  // Relative to the voltage floor.
  double memory_energy_j_per_byte = 0;

  // The flops/s at the highest clock, as in the data sheet.
  double PeakFlops() const {
    return multiprocessors * flops_per_cycle * highest_frequency_mhz * kHertzPerMegahertz;
  }

  // Runs the kernels one after another, without the power limit. Requires frequency_mhz > 0.
  TimeAndEnergy RunUnlimited(std::span<const KernelWork> kernels, double frequency_mhz) const;
  // The clock at which the GPU runs these kernels if `requested_mhz` is requested. If memory and
  // static power alone exceed the power limit, this is the lowest clock.
  double ActualFrequencyMhz(std::span<const KernelWork> kernels, double requested_mhz) const;
  // Runs the kernels one after another at the clock that the power limit allows.
  TimeAndEnergy Run(std::span<const KernelWork> kernels, double requested_mhz) const;
};

std::vector<GpuRoofline> GpuRooflines();
// Fails (kInput) for an unknown name. The message lists the known names.
Result<GpuRoofline> FindGpuRoofline(std::string_view name);

}  // namespace perseus::synthetic
