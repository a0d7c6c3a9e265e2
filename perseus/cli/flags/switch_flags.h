// The flags of verbs that limit clock changes.
#pragma once

#include <CLI/CLI.hpp>

#include "perseus/planning/recipe/recipe.h"

namespace perseus::cli {

// Adds --max-switches N. `about` says what the flag limits.
CLI::Option* AddMaxSwitchesFlag(CLI::App& verb, recipe::ChangeRules& rules, const char* about);

// Adds --max-switches N and --per-instruction, which exclude each other.
void AddLimitFlags(CLI::App& verb, recipe::ChangeRules& rules);

// Adds the flags of `perseus plan`: the flags of AddLimitFlags, with --max-switches auto, and
// --switch-tradeoff.
void AddSwitchFlags(CLI::App& verb, recipe::ChangeRules& rules);

}  // namespace perseus::cli
