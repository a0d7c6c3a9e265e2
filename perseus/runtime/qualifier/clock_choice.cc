#include "perseus/runtime/qualifier/clock_choice.h"

#include <algorithm>
#include <cmath>

namespace perseus::qualifier {
namespace {

// A near switch is large enough to see in the rate of a kernel, whose noise is about half a percent
// per sample. A far one stays above the clocks at which GPUs change the memory clock, too.
constexpr double kNearPart = 0.97;
constexpr double kFarPart = 0.4;

constexpr int kPowerClocks = 5;

// The clock of the list that is nearest to the wanted one.
int NearestClock(const std::vector<int>& clocks_mhz, double wanted_mhz) {
  return *std::min_element(clocks_mhz.begin(), clocks_mhz.end(), [&](int a, int b) {
    return std::abs(a - wanted_mhz) < std::abs(b - wanted_mhz);
  });
}

}  // namespace

std::optional<SwitchClocks> ChooseSwitchClocks(const std::vector<int>& clocks_mhz) {
  if (clocks_mhz.size() < 3) return std::nullopt;
  SwitchClocks clocks;
  clocks.top_mhz = clocks_mhz.back();
  // The first clock below the top that is at least 3 % lower.
  const auto above =
      std::upper_bound(clocks_mhz.begin(), clocks_mhz.end(), kNearPart * clocks.top_mhz);
  clocks.near_mhz = above == clocks_mhz.begin() ? clocks_mhz.front() : *(above - 1);
  clocks.far_mhz = NearestClock(clocks_mhz, kFarPart * clocks.top_mhz);
  if (clocks.far_mhz >= clocks.near_mhz) clocks.far_mhz = clocks_mhz.front();
  if (clocks.near_mhz <= clocks.far_mhz) return std::nullopt;
  return clocks;
}

std::vector<int> ChoosePowerClocks(const std::vector<int>& clocks_mhz) {
  std::vector<int> chosen_mhz;
  for (int i = 0; i < kPowerClocks; ++i) {
    const double part = 1 - (1 - kFarPart) * i / (kPowerClocks - 1);
    chosen_mhz.push_back(NearestClock(clocks_mhz, part * clocks_mhz.back()));
  }
  chosen_mhz.erase(std::unique(chosen_mhz.begin(), chosen_mhz.end()), chosen_mhz.end());
  return chosen_mhz;
}

}  // namespace perseus::qualifier
