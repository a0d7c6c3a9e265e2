#include "target_flags.h"

#include <fmt/format.h>

#include "flag_checks.h"
#include "perseus/base/units.h"

namespace perseus::cli {

void AddTargetFlags(CLI::App& verb, TargetFlags& flags) {
  // Each takes one value at a time, so that `--slowdown 5 profile.csv` leaves the profile alone.
  auto add = [&](const char* name, auto& values, const char* type, const char* help) {
    return verb.add_option(name, values, help)
        ->allow_extra_args(false)
        ->type_name(type)
        ->group("Targets");
  };
  add("--slowdown", flags.slowdowns_percent, "PCT",
      "At most this much slower than at maximum frequency")
      ->check(NumberIn({0, 10'000}, "percent"));
  add("--deadline", flags.deadlines_s, "S", "At most this iteration time")
      ->check(NumberIn({0, kLongestSeconds}, "seconds"));
  add("--energy-budget", flags.energy_budgets_j, "J",
      "The fastest plan of at most this energy per iteration (of one pipeline)")
      ->check(NumberIn({0, kMostJoules}, "joules"));
  add("--power-cap", flags.power_caps_w, "W",
      "The fastest plan of at most this average power (of one pipeline)")
      ->check(NumberIn({0, kMostJoules}, "watts"));
  add("--price", flags.prices, "KWH GPUHOUR",
      "The cheapest plan at $/kWh and $/GPU-hour, such as 0.12 2")
      ->check(NumberIn({0, 1e6}, "dollars"));
  verb.add_flag("--min-energy", flags.min_energy, "Least energy, however long it takes")
      ->group("Targets");
  verb.add_flag("--edp", flags.edp, "Least product of energy and time")->group("Targets");
}

std::vector<Target> AskedTargets(const TargetFlags& flags, int gpus) {
  using Kind = Target::Kind;
  std::vector<Target> targets;
  auto add = [&](Kind kind, const std::vector<double>& values) {
    for (double value : values) targets.push_back({.kind = kind, .value = value});
  };
  add(Kind::kSlowdown, flags.slowdowns_percent);
  add(Kind::kDeadline, flags.deadlines_s);
  add(Kind::kEnergyBudget, flags.energy_budgets_j);
  add(Kind::kPowerCap, flags.power_caps_w);
  if (flags.min_energy) targets.push_back({.kind = Kind::kMinEnergy});
  if (flags.edp) targets.push_back({.kind = Kind::kEdp});
  for (const auto& [kwh, gpu_hour] : flags.prices) {
    targets.push_back({.kind = Kind::kPrice, .value = kwh, .gpu_hour = gpu_hour, .gpus = gpus});
  }
  if (targets.empty()) targets.push_back({.kind = Kind::kSlowdown, .value = 0});
  return targets;
}

std::string Slug(const Target& target) {
  switch (target.kind) {
    case Target::Kind::kSlowdown:
      return target.value == 0 ? "no-slowdown" : fmt::format("slowdown-{}", target.value);
    case Target::Kind::kDeadline:
      return fmt::format("deadline-{}s", target.value);
    case Target::Kind::kEnergyBudget:
      return fmt::format("energy-budget-{}j", target.value);
    case Target::Kind::kPowerCap:
      return fmt::format("power-cap-{}w", target.value);
    case Target::Kind::kMinEnergy:
      return "least-energy";
    case Target::Kind::kEdp:
      return "least-energy-delay";
    case Target::Kind::kPrice:
      return fmt::format("price-{}-{}", target.value, target.gpu_hour);
  }
  return "plan";
}

}  // namespace perseus::cli
