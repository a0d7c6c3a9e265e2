// The time and the energy of an instruction at each clock, in a block of memory of fixed size. A
// virtual GPU receives its instructions in this form.
#pragma once

#include <array>
#include <cstdint>

#include "perseus/base/result.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/simulation/synthetic/gpu_roofline.h"

namespace perseus::virtual_gpu {

// No GPU's driver offers more for one memory clock (an H100 has 110).
inline constexpr int kMostClocks = 128;

struct InstructionTable {
  int count = 0;                                   // 1 to kMostClocks.
  std::array<int, kMostClocks> frequencies_mhz{};  // Ascending.
  std::array<synthetic::TimeAndEnergy, kMostClocks> rows{};

  // The row of that clock. Between two rows, time and energy are each interpolated linearly in the
  // clock. Outside of all rows, it is the nearest row. Requires count > 0.
  synthetic::TimeAndEnergy At(int frequency_mhz) const;
};

// The table of an instruction of the profile, which may be measured or synthetic. Fails (kInput) if
// the profile lacks the instruction, has knobs besides the clock, or has more than kMostClocks
// clocks. The message says which.
Result<InstructionTable> MakeInstructionTable(const profile::Profile& profile, int stage, int chunk,
                                              InstructionKind kind);

// An instruction that is the same at every clock: a transfer, an all-reduce, a load. Requires
// time_s > 0.
InstructionTable FixedInstruction(synthetic::TimeAndEnergy cost);

}  // namespace perseus::virtual_gpu
