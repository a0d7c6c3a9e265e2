// The flags of `perseus plan` and `perseus tune` that limit clock changes.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

namespace perseus::cli {

// `limit` is --max-switches of the verb.
CLI::Option* AddPerInstructionFlag(CLI::App& verb, bool& per_instruction, CLI::Option* limit);

// For several plans, and what limits cost.
struct SwitchFlags {
  std::optional<int> most_switches;
  bool picks_limit = false;  // --max-switches auto, or by default.
  bool by_default = false;   // No flag and no job file says what to do.
  bool per_instruction = false;
  bool with_tradeoff = false;

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
