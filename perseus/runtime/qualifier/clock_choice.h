// Which clocks a qualification sets.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <vector>

namespace perseus::qualifier {

// A near switch is between top and near, a far one between top and far.
struct SwitchClocks {
  int top_mhz = 0, near_mhz = 0, far_mhz = 0;
};

// `clocks_mhz`: all clocks of a GPU, ascending. Empty if there are fewer than three different ones.
std::optional<SwitchClocks> ChooseSwitchClocks(const std::vector<int>& clocks_mhz);

// The clocks at which power is measured, from the highest one down to the far one. Requires clocks.
std::vector<int> ChoosePowerClocks(const std::vector<int>& clocks_mhz);

}  // namespace perseus::qualifier
