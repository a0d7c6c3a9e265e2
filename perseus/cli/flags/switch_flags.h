// The flags of `perseus plan` and `perseus tune` that limit clock changes.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "perseus/planning/recipe/recipe.h"

namespace perseus::cli {

// `limit` is --max-switches of the verb.
CLI::Option* AddPerInstructionFlag(CLI::App& verb, bool& per_instruction, CLI::Option* limit);

// Of `perseus plan`.
struct SwitchFlags {
  std::optional<int> most_switches;
  bool picks_limit = false;  // --max-switches auto
  bool per_instruction = false;
  bool with_tradeoff = false;

  recipe::ChangeRules rules() const;
};

void AddSwitchFlags(CLI::App& verb, SwitchFlags& flags);

}  // namespace perseus::cli
