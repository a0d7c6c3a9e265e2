#include "perseus/simulation/virtual_gpu/instruction_table.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "perseus/base/units.h"

namespace perseus::virtual_gpu {

synthetic::TimeAndEnergy InstructionTable::At(int frequency_mhz) const {
  const auto* const begin = frequencies_mhz.begin();
  const auto* const end = begin + count;
  const auto* const above = std::lower_bound(begin, end, frequency_mhz);
  if (above == end) return rows[static_cast<std::size_t>(count - 1)];
  const auto index = static_cast<std::size_t>(above - begin);
  if (*above == frequency_mhz || index == 0) return rows[index];
  const synthetic::TimeAndEnergy& slow = rows[index - 1];
  const synthetic::TimeAndEnergy& fast = rows[index];
  const double part = static_cast<double>(frequency_mhz - frequencies_mhz[index - 1]) /
                      static_cast<double>(*above - frequencies_mhz[index - 1]);
  return {std::lerp(slow.time_s, fast.time_s, part), std::lerp(slow.energy_j, fast.energy_j, part)};
}

Result<InstructionTable> MakeInstructionTable(const profile::Profile& profile, int stage, int chunk,
                                              InstructionKind kind) {
  const profile::ProfileEntry* entry = profile.Find(stage, chunk, kind);
  if (entry == nullptr) {
    return Fail("{}: has no {} of stage {}, chunk {} (measure it, or run another instruction)",
                profile.name(), Name(kind), stage, chunk);
  }
  if (!profile.other_knob_names().empty()) {
    return Fail("{}: has the knob {}, but a virtual GPU has only clocks (remove the column)",
                profile.name(), profile.other_knob_names().front());
  }
  if (entry->options.size() > kMostClocks) {
    return Fail("{}: {} of stage {} has {} clocks (a virtual GPU has at most {})", profile.name(),
                Name(kind), stage, entry->options.size(), kMostClocks);
  }
  InstructionTable table;
  // The table is ascending by clock. A profile is descending.
  const std::vector<profile::Option> options(entry->options.rbegin(), entry->options.rend());
  for (const profile::Option& option : options) {
    const int frequency_mhz = static_cast<int>(
        std::lround(std::clamp(option.frequency_mhz, 0.0, 1.0 * kHighestFrequencyMhz)));
    const auto index = static_cast<std::size_t>(table.count);
    if (frequency_mhz < 1 || (index > 0 && table.frequencies_mhz[index - 1] == frequency_mhz)) {
      return Fail(
          "{}: {} of stage {} has the clock {} MHz (a virtual GPU has different clocks of whole "
          "MHz)",
          profile.name(), Name(kind), stage, option.frequency_mhz);
    }
    table.frequencies_mhz[index] = frequency_mhz;
    table.rows[index] = {ToSeconds(option.time), option.energy_j};
    ++table.count;
  }
  return table;
}

InstructionTable FixedInstruction(synthetic::TimeAndEnergy cost) {
  InstructionTable table;
  table.count = 1;
  table.frequencies_mhz[0] = 1;
  table.rows[0] = cost;
  return table;
}

}  // namespace perseus::virtual_gpu
