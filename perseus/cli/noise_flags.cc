#include "perseus/cli/noise_flags.h"

#include <fmt/format.h>

#include "perseus/cli/flag_checks.h"

namespace perseus::cli {

std::optional<noise::Noise> NoiseFlags::noise() const {
  if (!percent) return std::nullopt;
  return noise::Noise{*percent / 100, common_percent / 100};
}

void AddNoiseFlags(CLI::App& verb, NoiseFlags& flags, const char* purpose) {
  constexpr Range kPercent = {0, 100 * noise::kMostNoise};
  verb.add_option("--noise", flags.percent,
                  fmt::format("{}: the relative standard deviation of the time of each "
                              "instruction, in percent",
                              purpose))
      ->type_name("PERCENT")
      ->check(NumberIn(kPercent, "percent"));
  verb.add_option("--common-noise", flags.common_percent,
                  "Further noise that all instructions of a pp_rank share in an iteration")
      ->type_name("PERCENT")
      ->check(NumberIn(kPercent, "percent"));
}

Result<void> CheckNoise(const NoiseFlags& flags) {
  if (flags.common_percent == 0 || flags.percent) return {};
  return Fail("--common-noise needs the noise of single instructions (add --noise 0, or more)");
}

}  // namespace perseus::cli
