// Profiles without a GPU: a small model of dynamic voltage and frequency scaling (DVFS), for
// examples, tests, and planning before anything was measured.
//
// Time. An instruction has compute work, whose time is inverse to the clock, and memory work, whose
// time the core clock does not change:
//     time(f) = compute * f_highest / f + memory
// Power. Static power, and dynamic power C * V^2 * f. The voltage follows the clock down only to a
// floor, below which it stays:
//     power(f) = static + dynamic * f * V(f)^2,     V(f) = 1 + slope * max(0, f - f_floor)
// So energy = power * time has its least at an intermediate clock: above the voltage floor a higher
// clock costs voltage squared; far below it, static power is paid for longer.
// Limit. A GPU lowers its own clock to stay within its power limit. Clocks requested beyond that
// point all run alike, which is why measured curves are flat at the top.
//
// What the model leaves out: temperature, the memory clock, differences between GPUs of one type,
// and how power varies within an instruction. It is for trying things out; a plan for real GPUs
// needs a measured profile.
//
// Work. A model's own layers are the same on each stage; its last chunk also has the language-model
// head, and a seeded imbalance stands for layers that do not divide evenly. backward_input and
// backward_weight add up to backward; recompute is forward again.
// Noise is multiplicative and log-normal, on time and on power apart. The same spec gives the same
// profile everywhere: the generator is std::mt19937_64, whose output is specified, the sampler is
// our own (std::normal_distribution differs between libraries), and results are rounded to
// nanoseconds and microjoules.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/simulation/synthetic/chunk_placement.h"

namespace perseus::synthetic {

// The work of one microbatch of one stage.
struct StageWork {
  double compute_s = 0;  // At the highest clock.
  double memory_s = 0;
};

struct GpuModel {
  std::string_view name;            // "a100": like an A100-SXM; "a40": like an A40.
  double lowest_frequency_mhz = 0;  // Of those a profile is made for.
  double highest_frequency_mhz = 0;
  double frequency_step_mhz = 0;
  double blocking_power_w = 0;
  double power_limit_w = 0;
  double static_power_w = 0;
  double dynamic_power_w_per_mhz = 0;  // At the voltage floor.
  double voltage_floor_mhz = 0;
  double voltage_slope_per_mhz = 0;  // Relative to the voltage floor.
  StageWork forward;                 // Of a stage of a large transformer, tensor parallel 8.
  StageWork backward;

  // At that clock, were there no power limit.
  double UnlimitedPowerW(double frequency_mhz) const;
  // The clock that the GPU runs at when this one is requested, within its power limit.
  double ActualFrequencyMhz(double requested_mhz) const;
};

std::vector<GpuModel> GpuModels();
// Fails for a name that is not among them, and lists those that are.
Result<GpuModel> FindGpuModel(std::string_view name);

struct SyntheticProfileSpec {
  std::string gpu = "a100";
  int stages = 8;
  int chunks = 1;  // Each stage's work is divided evenly among its chunks.
  ChunkPlacement placement = ChunkPlacement::kLoop;
  std::vector<InstructionKind> kinds = {InstructionKind::kForward, InstructionKind::kBackward};
  double work_scale = 1;              // Of a microbatch: twice the sequences, twice the work.
  double language_model_head = 0.07;  // Extra work of the model's last chunk, as a part of a stage.
  double imbalance = 0.02;            // Stages have 1 - imbalance to 1 + imbalance times the work.
  // Standard deviation of the logarithm of time, and of power: as of averages over many steps. The
  // more noise, the further any plan is from its bound, for the hull clings to lucky measurements.
  double noise = 0.001;
  std::uint64_t seed = 1;
};

// Fails if a field is out of its range; the message says which and what the range is.
Result<profile::Profile> SynthesizeProfile(const SyntheticProfileSpec& spec);

}  // namespace perseus::synthetic
