#include "perseus/cli/flags/target_flags.h"

#include <fmt/core.h>

#include <string_view>

#include "perseus/cli/flags/flag_checks.h"

namespace perseus::cli {

void AddTargetFlags(CLI::App& verb, TargetFlags& flags, Targets count) {
  // Each flag takes one value (--price two), so that in `--slowdown 5 profile.csv` the profile is
  // not a value of the flag.
  const auto add = [targets = FlagAdder(verb, "Targets")](plan::Target::Kind kind, const char* name,
                                                          auto& values, const char* type,
                                                          const char* help) {
    const NumberRange range = plan::ValueRange(kind);
    targets.Repeatable(
        name, values, type, help,
        kind == plan::Target::Kind::kSlowdown ? SlowdownUpTo(range.most) : NumberIn(range));
  };
  add(plan::Target::Kind::kSlowdown, "--slowdown", flags.slowdowns_percent, "PCT",
      count == Targets::kOne ? "At most this much slower than at maximum frequency"
                             : "At most this much slower than at maximum frequency; may be "
                               "repeated, as the other targets");
  add(plan::Target::Kind::kDeadline, "--deadline", flags.deadlines_s, "S",
      "At most this iteration time");
  add(plan::Target::Kind::kEnergyBudget, "--energy-budget", flags.energy_budgets_j, "J",
      "The fastest plan of at most this energy per iteration (of one pipeline)");
  add(plan::Target::Kind::kPowerCap, "--power-cap", flags.power_caps_w, "W",
      "The fastest plan of at most this average power (of one pipeline)");
  add(plan::Target::Kind::kPrice, "--price", flags.prices, "KWH GPUHOUR",
      "The cheapest plan at $/kWh and $/GPU-hour, such as 0.12 2");
  verb.add_flag("--min-energy", flags.min_energy, "Least energy, with any iteration time")
      ->group("Targets");
  verb.add_flag("--edp", flags.edp, "Least product of energy and time")->group("Targets");
}

bool AsksForTarget(const TargetFlags& flags) {
  return !flags.slowdowns_percent.empty() || !flags.deadlines_s.empty() ||
         !flags.energy_budgets_j.empty() || !flags.power_caps_w.empty() || !flags.prices.empty() ||
         flags.min_energy || flags.edp;
}

Result<plan::Target> AskedTarget(const TargetFlags& flags, int gpus) {
  const std::vector<plan::Target> asked = AskedTargets(flags, gpus);
  if (asked.size() > 1) return Fail("a job has only one target (give one target flag)");
  return asked.front();
}

std::vector<plan::Target> AskedTargets(const TargetFlags& flags, int gpus) {
  using Kind = plan::Target::Kind;
  std::vector<plan::Target> targets;
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

void WarnOfLikelyUnits(const Streams& streams, const std::vector<plan::Target>& asked,
                       const plan::Evaluation* baseline) {
  using Kind = plan::Target::Kind;
  constexpr double kMostLikelyTimes = 10;
  constexpr double kMostLikelyPrice = 2;
  const auto warn_above = [&](std::string_view flag, double value, double usual,
                              std::string_view unit) {
    if (value <= usual) return;
    streams.Warn(
        fmt::format("{} {:g} is above the {:.6g} {} of one pipeline at maximum frequency, so it "
                    "has no effect (give {} of one pipeline)",
                    flag, value, usual, unit, unit == "J" ? "joules" : "watts"));
  };
  for (const plan::Target& target : asked) {
    const double value = target.value;
    if (target.kind == Kind::kPrice && target.gpu_hour > 0 &&
        value > kMostLikelyPrice * target.gpu_hour) {
      streams.Warn(
          fmt::format("{:g} for a kWh is much beside {:g} for a GPU-hour (give both in the same "
                      "currency, not one in cents)",
                      value, target.gpu_hour));
    }
    if (baseline == nullptr) continue;
    const double usual_s = ToSeconds(baseline->time);
    if (target.kind == Kind::kDeadline && value > kMostLikelyTimes * usual_s) {
      streams.Warn(
          fmt::format("--deadline {:g} is far above {:.6g} s, the iteration time at maximum "
                      "frequency (give seconds)",
                      value, usual_s));
    }
    if (target.kind == Kind::kEnergyBudget) {
      warn_above("--energy-budget", value, baseline->energy_j, "J");
    }
    if (target.kind == Kind::kPowerCap) {
      warn_above("--power-cap", value, baseline->average_power_w(), "W");
    }
  }
}

}  // namespace perseus::cli
