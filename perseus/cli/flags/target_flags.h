// The flags of targets, such as --slowdown and --deadline.
#pragma once

#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/plan/target.h"

namespace perseus::cli {

struct TargetFlags {
  std::vector<double> slowdowns_percent;
  std::vector<double> deadlines_s;
  std::vector<double> energy_budgets_j;
  std::vector<double> power_caps_w;
  std::vector<std::pair<double, double>> prices;  // Pairs of ($/kWh, $/GPU-hour).
  bool min_energy = false;
  bool edp = false;
};

// Whether the verb takes one target or several.
enum class Targets { kOne, kMany };

void AddTargetFlags(CLI::App& verb, TargetFlags& flags, Targets count);

bool AsksForTarget(const TargetFlags& flags);

// Returns the requested targets, in the order of the members of TargetFlags. Without flags, the
// target is "no slowdown". `gpus` is the number of GPUs of one pipeline.
std::vector<plan::Target> AskedTargets(const TargetFlags& flags, int gpus);

// Warns on standard error about values that are probably in another unit: a price of a kWh above
// twice the price of a GPU-hour. `baseline` is the iteration at maximum frequency. If `baseline` is
// given, also warns about a deadline of more than ten times its time, an energy budget above its
// energy, and a power cap above its power.
void WarnOfLikelyUnits(const Streams& streams, const std::vector<plan::Target>& asked,
                       const plan::Evaluation* baseline = nullptr);

// The same as AskedTargets, for a verb that takes one target. Fails (kInput) if the flags give
// several.
Result<plan::Target> AskedTarget(const TargetFlags& flags, int gpus);

}  // namespace perseus::cli
