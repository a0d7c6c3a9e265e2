// The flags of `perseus plan` and `perseus tune` that limit clock changes.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "perseus/planning/few_switches/change_rate.h"

namespace perseus::cli {

// One plan for the whole job, as `perseus tune` makes it.
struct ChangeLimitFlags {
  std::optional<int> most_switches;
  bool per_instruction = false;
};

void AddChangeLimitFlags(CLI::App& verb, ChangeLimitFlags& flags);

// The limit of these flags, or else that of the job file, or else the rate of the hardware facts.
few_switches::ChangeLimit ChangeLimitOf(const ChangeLimitFlags& flags,
                                        const std::optional<int>& most_switches_of_job,
                                        const std::optional<double>& most_changes_per_s);

// Several plans, and what limits cost.
struct SwitchFlags {
  std::optional<int> most_switches;
  bool picks_limit = false;  // --max-switches auto, or by default.
  bool by_default = false;   // No flag and no job file says what to do.
  bool per_instruction = false;
  bool with_tradeoff = false;

  // Whether the user limits clock changes.
  bool are_given() const { return most_switches || (needs_tradeoff() && !by_default); }
  bool needs_tradeoff() const { return with_tradeoff || picks_limit; }
  // Takes the limit of the job file, unless a flag says otherwise.
  void UseJob(const std::optional<int>& limit);
  // Whether neither a flag nor the job file says anything about clock changes.
  bool AreOpen() const { return !most_switches && !needs_tradeoff() && !per_instruction; }
  // Picks a limit by default. Requires AreOpen().
  void PickByDefault() { picks_limit = by_default = true; }
  // Of the searches for the trade-off, and for the plans of all targets. By default, they are
  // shorter, because they make every run of `perseus plan` longer.
  double tradeoff_effort(std::size_t instructions) const;
  double plan_effort(std::size_t instructions) const;
};

void AddSwitchFlags(CLI::App& verb, SwitchFlags& flags);

}  // namespace perseus::cli
