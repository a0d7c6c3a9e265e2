// The flags --noise and --common-noise.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "perseus/base/result.h"
#include "perseus/planning/noise/noisy_execution.h"

namespace perseus::cli {

struct NoiseFlags {
  std::optional<double> percent;
  double common_percent = 0;
};

// Returns the noise of the flags. Without these flags, returns the noise of the profile. Returns
// nullopt if neither has noise, or if the flags say 0.
std::optional<noise::Noise> NoiseOf(const NoiseFlags& flags,
                                    const std::optional<noise::Noise>& of_profile);

// Adds the flags. The help of --noise begins with `purpose`, such as "Keep the mean time under
// noise".
void AddNoiseFlags(CLI::App& verb, NoiseFlags& flags, const char* purpose);

// Fails if --common-noise is given without --noise.
Result<void> CheckNoise(const NoiseFlags& flags);

}  // namespace perseus::cli
