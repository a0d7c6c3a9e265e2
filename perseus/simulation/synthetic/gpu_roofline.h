// What a kernel takes and costs on a GPU at a clock: a roofline with voltage and frequency.
//
// For profiles of workloads that nobody has measured (model_zoo.h says which kernels a model runs).
// It stands beside GpuModel (synthetic_profile.h), whose curves are of two given stages: there the
// work is a number, here it follows from an architecture.
//
// Time. A kernel computes and moves data; the slower of the two decides. The core clock f changes
// the first alone, for the memory has a clock of its own:
//     compute(f) = flops / (efficiency * peak) * ((1 - stalls) * f_highest / f + stalls)
//     memory     = bytes / (efficiency * memory bandwidth)
//     time(f)    = max(compute(f), memory)     then what tensor parallelism sends, which no clock
//                                              changes and nothing overlaps
// `stalls`: even a large matrix product waits for its operands now and then (a tenth of the time on
// the A100, nearly half on the A40 with its small cache and slow memory).
// Power. Static power, the switching of the SMs, and the memory's energy for each byte:
//     power(f) = static + activity * c * f * V(f)^2 + energy per byte * bytes / time(f)
//     V(f)     = 1 + slope * max(0, f - f_floor)
//     activity = 1 while the SMs compute, kWaitingActivity while they wait for memory or stall
// A GPU that waits for others (all-reduce, pipeline neighbours) draws the blocking power.
// Limit. The GPU keeps its *average* power within the limit (it looks every few milliseconds, and
// kernels are shorter): a clock that would break it is lowered until the instruction as a whole
// fits. Clocks requested beyond that point all run alike, as in GpuModel.
//
// Rivals. (1) A stage time of our own invention for each model: no source, nothing to check.
// (2) One roofline point a layer: it makes every transformer layer compute-bound, while in eager
// frameworks half of a small layer's time is softmax, dropout and the like, which the clock leaves
// alone; the savings of small models hang on that. (3) A smooth sum of the two times instead of
// the maximum: one more parameter, and no measurement at hand to set it. So: the maximum, kernel by
// kernel; what a layer is made of gives the mixture.
//
// Where the figures come from. Clocks, SMs, peaks, bandwidths and limits: NVIDIA's data sheets and
// white papers, named at each GPU in gpu_roofline.cc. Efficiency, stalls, static power, dynamic
// power and voltage of the A100 and the A40: the least-squares fit to two measured profiles of what
// clocks cost, GPT-3 175B on A100-SXM and Bloom 176B on A40 (bench/roofline_calibration prints
// both). Their large, fused layers are nearly all matrix products, and are taken as such. Nothing
// was fitted to any workload's savings. The H100 is uncalibrated: the A100's curve, stretched.
//
// What is left out: kernel launches, wave quantisation and small-matrix inefficiency (time is too
// short for small microbatches), caches, a memory bandwidth that falls at the lowest clocks,
// temperature, and data-dependent power.
//
// Thread safety: values; no shared state.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::synthetic {

// Work of one GPU.
struct KernelWork {
  double flops = 0;             // Of the tensor cores, FP16 or BF16.
  double memory_bytes = 0;      // To and from the GPU's memory.
  double all_reduce_bytes = 0;  // What the GPU sends, and receives, for tensor parallelism.
};

struct TimeAndEnergy {
  double time_s = 0;
  double energy_j = 0;
};

struct GpuRoofline {
  std::string_view name;            // "a100-sxm"
  double lowest_frequency_mhz = 0;  // Of those the driver offers.
  double highest_frequency_mhz = 0;
  double frequency_step_mhz = 0;
  int multiprocessors = 0;
  double flops_per_cycle = 0;     // Of one multiprocessor: FP16 tensor, dense.
  double compute_efficiency = 0;  // What large matrix products reach of the peak.
  double stall_share = 0;         // Of their time, at the highest clock.
  double memory_bytes_per_s = 0;
  double memory_efficiency = 0;
  double interconnect_bytes_per_s = 0;  // Each way, between the GPUs of a stage.
  double power_limit_w = 0;
  double blocking_power_w = 0;
  double static_power_w = 0;
  double dynamic_power_w_per_mhz = 0;  // At the voltage floor, all SMs computing.
  double voltage_floor_mhz = 0;
  double voltage_slope_per_mhz = 0;  // Relative to the voltage floor.
  double memory_energy_j_per_byte = 0;

  // At the highest clock; the data sheet's figure.
  double PeakFlops() const {
    return multiprocessors * flops_per_cycle * highest_frequency_mhz * 1e6;
  }

  // One kernel after the other, were there no power limit. Requires frequency_mhz > 0.
  TimeAndEnergy RunUnlimited(std::span<const KernelWork> kernels, double frequency_mhz) const;
  // The clock that the GPU runs these kernels at when this one is requested. A limit that no clock
  // keeps (memory and static power alone break it) gives the lowest one.
  double ActualFrequencyMhz(std::span<const KernelWork> kernels, double requested_mhz) const;
  // One kernel after the other at the clock that the limit allows.
  TimeAndEnergy Run(std::span<const KernelWork> kernels, double requested_mhz) const;
};

std::vector<GpuRoofline> GpuRooflines();
// Fails for a name that is not among them, and lists those that are.
Result<GpuRoofline> FindGpuRoofline(std::string_view name);

}  // namespace perseus::synthetic
