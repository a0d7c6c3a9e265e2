// What an instruction takes and costs at each clock, in a block of memory of fixed size: how a
// virtual GPU is told what to run.
#pragma once

#include <array>
#include <cstdint>

#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/simulation/synthetic/gpu_roofline.h"

namespace perseus::virtual_gpu {

// More than any GPU's driver offers within a memory clock (an H100 has 110).
inline constexpr int kMostClocks = 128;

struct InstructionTable {
  int count = 0;                                   // 1 to kMostClocks.
  std::array<int, kMostClocks> frequencies_mhz{};  // Ascending.
  std::array<synthetic::TimeAndEnergy, kMostClocks> rows{};

  // At a row's clock that row. Between two rows, time and energy are each interpolated linearly in
  // the clock; outside of all, it is the nearest row. Requires count > 0.
  synthetic::TimeAndEnergy At(int frequency_mhz) const;
};

// What the profile says of that instruction. Profiles of a model (SynthesizeProfile) do as well as
// measured ones. Fails if it lacks the instruction, has knobs besides the clock, or has more than
// kMostClocks clocks; the message says which.
Result<InstructionTable> MakeInstructionTable(const profile::Profile& profile, int stage, int chunk,
                                              InstructionKind kind);

// The same at every clock: a transfer, an all-reduce, a load. Requires time_s > 0.
InstructionTable FixedInstruction(synthetic::TimeAndEnergy cost);

}  // namespace perseus::virtual_gpu
