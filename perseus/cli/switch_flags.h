// The flags of `perseus plan` that limit clock changes.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/few_switches/change_rules.h"

namespace perseus::cli {

struct SwitchFlags {
  std::optional<int> most_switches;
  bool picks_limit = false;  // --max-switches auto.
  bool per_instruction = false;
  bool with_tradeoff = false;
  double min_dwell_ms = 0;
  std::vector<std::string> quiet_zones;  // Each NAME=MS, checked.

  // Whether any plan has a limit.
  bool are_given() const { return most_switches || needs_tradeoff(); }
  bool needs_tradeoff() const { return with_tradeoff || picks_limit; }
  few_switches::ChangeRules rules() const;
  // Takes the limit of the job file, unless a flag says otherwise.
  void UseDefault(const std::optional<int>& limit);
};

void AddSwitchFlags(CLI::App& verb, SwitchFlags& flags);

// Fails if rules are given without plans that they could apply to.
Result<void> CheckSwitches(const SwitchFlags& flags);

}  // namespace perseus::cli
