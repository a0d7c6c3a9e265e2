// Profiles without a GPU: a small model of dynamic voltage and frequency scaling (DVFS). It serves
// examples, tests, and planning before anything is measured.
//
// Time. An instruction has compute work and memory work. The time of compute work is inverse to the
// clock. The time of memory work does not depend on the core clock:
//     time(f) = compute * f_highest / f + memory
// Power. It is the sum of static power and dynamic power C * V^2 * f. Below a floor, the voltage
// does not follow the clock down:
//     power(f) = static + dynamic * f * V(f)^2,     V(f) = 1 + slope * max(0, f - f_floor)
// So energy = power * time is least at a clock in the middle. Above the voltage floor, a higher
// clock costs energy with the square of the voltage. Far below the floor, the GPU draws static
// power for longer.
//
// Power limit. A GPU lowers its own clock to stay within its power limit. So all requested clocks
// above this one give the same result, which is why measured curves are flat at the top.
//
// The model leaves out temperature, the memory clock, differences between GPUs of one type, and how
// power varies within an instruction. It is for experiments. A plan for real GPUs needs a measured
// profile.
//
// Work. Every stage has the same layers. The last chunk of the model also has the language-model
// head. A seeded imbalance stands for layers that do not divide evenly. The times of backward_input
// and backward_weight add up to that of backward. recompute is the same as forward.
//
// Noise. It is multiplicative and log-normal, and independent for time and power.
//
// The same spec gives the same profile on every machine. The generator is std::mt19937_64, whose
// output is specified. The sampler is our own, because std::normal_distribution differs between
// libraries. Results are rounded to nanoseconds and microjoules.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/profile.h"

namespace perseus::synthetic {

// The work of one microbatch on one stage.
struct StageWork {
  double compute_s = 0;  // At the highest clock.
  double memory_s = 0;
};

struct GpuModel {
  std::string_view name;         // "a100": like an A100-SXM; "a40": like an A40.
  int lowest_frequency_mhz = 0;  // The lowest clock of the profiles that it makes.
  int highest_frequency_mhz = 0;
  int frequency_step_mhz = 0;
  double blocking_power_w = 0;
  double power_limit_w = 0;
  double static_power_w = 0;
  double dynamic_power_w_per_mhz = 0;  // At the voltage floor.
  double voltage_floor_mhz = 0;
  double voltage_slope_per_mhz = 0;  // Relative to the voltage floor.
  StageWork forward;                 // A stage of a large transformer, tensor parallelism 8.
  StageWork backward;

  // The power at this clock, without the power limit.
  double UnlimitedPowerW(double frequency_mhz) const;
  // The clock at which the GPU runs if `requested_mhz` is requested, within its power limit.
  double ActualFrequencyMhz(double requested_mhz) const;
};

std::vector<GpuModel> GpuModels();
// Fails (kInput) for an unknown name. The message lists the known names.
Result<GpuModel> FindGpuModel(std::string_view name);

// Rounds the energy to microjoules. The result is at least one microjoule.
inline double RoundToMicrojoules(double energy_j) {
  return std::max(1.0, std::round(energy_j * kMicrojoulesPerJoule)) / kMicrojoulesPerJoule;
}

// The place where a model continues after the last rank of a chunk.
enum class ChunkPlacement {
  kLoop,  // On rank 0 again (interleaved schedules).
  kV,     // On the same rank, in the other direction (zb-v, dualpipe-v).
};

// The position of this chunk of this pp_rank in the order of the model's layers. The first is 0.
inline int PartOf(int pp_rank, int chunk, int pp_ranks, ChunkPlacement placement) {
  const bool runs_back = placement == ChunkPlacement::kV && chunk % 2 == 1;
  return chunk * pp_ranks + (runs_back ? pp_ranks - 1 - pp_rank : pp_rank);
}

struct SyntheticProfileSpec {
  std::string gpu = "a100";
  int pp_ranks = 8;
  int chunks = 1;  // The work of a pp_rank is divided evenly among its chunks.
  ChunkPlacement placement = ChunkPlacement::kLoop;
  std::vector<InstructionKind> kinds = {InstructionKind::kForward, InstructionKind::kBackward};
  double work_scale = 1;              // For a microbatch. 2: twice the sequences.
  double language_model_head = 0.07;  // Extra work of the last chunk, as a fraction of a pp_rank.
  double imbalance = 0.02;            // The work of a pp_rank is 1 - imbalance to 1 + imbalance.
  // The standard deviation of the logarithm of time, and of power. The default fits averages over
  // many steps. With more noise a plan is further from its bound, because the hull consists of the
  // luckiest measurements.
  double noise = 0.001;
  std::uint64_t seed = 1;
};

// Fails (kInput) if a field is out of its range. The message names the field and its range.
Result<profile::Profile> SynthesizeProfile(const SyntheticProfileSpec& spec);

// Fails (kInput) if the kinds are not different computations. The message begins with `what`.
Result<void> CheckKinds(std::string_view what, const std::vector<InstructionKind>& kinds);

}  // namespace perseus::synthetic
