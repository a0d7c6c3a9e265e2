#include "perseus/cli/flags/noise_flags.h"

#include <fmt/core.h>

#include "perseus/cli/flags/flag_checks.h"

namespace perseus::cli {
namespace {

constexpr NumberRange kPercent{0, 100 * noise::kMostNoise, "percent"};
// A smaller value is hardly noise, and probably a fraction: 0.01 for 1 %.
constexpr double kLeastPercent = 0.1;

CLI::Validator CheckPercent() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        std::string problem = NumberIn(kPercent)(text);
        if (!problem.empty()) return problem;
        const double percent = std::stod(text);
        if (percent == 0 || percent >= kLeastPercent) return {};
        const std::string as_fraction =
            100 * percent >= kLeastPercent
                ? fmt::format("for {:g} % as a fraction, give {:g}; ", 100 * percent, 100 * percent)
                : "";
        return fmt::format(
            "{} is in percent, and plans need no margin for less than {:g} % ({}give 0 for no "
            "noise)",
            text, kLeastPercent, as_fraction);
      },
      "");
}

}  // namespace

std::optional<noise::Noise> NoiseOf(const NoiseFlags& flags,
                                    const std::optional<noise::Noise>& of_profile) {
  if (!flags.percent) return of_profile;
  const noise::Noise noise{*flags.percent / 100, flags.common_percent / 100};
  return noise == noise::Noise{} ? std::nullopt : std::optional(noise);
}

void AddNoiseFlags(CLI::App& verb, NoiseFlags& flags, const char* purpose) {
  const FlagAdder add(verb);
  add("--noise", flags.percent, "PERCENT",
      fmt::format("{}: the relative standard deviation of the time of each instruction, in percent "
                  "(default: that of the profile; 0: none)",
                  purpose),
      CheckPercent());
  add("--common-noise", flags.common_percent, "PERCENT",
      "Further noise that all instructions of a pp_rank share in an iteration", CheckPercent());
}

Result<void> CheckNoise(const NoiseFlags& flags) {
  if (flags.common_percent == 0 || flags.percent) return {};
  return Fail("--common-noise needs the noise of single instructions (add --noise 0, or more)");
}

}  // namespace perseus::cli
