// The help texts of `perseus`: the list of all verbs, and the layout of the help of one verb.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "perseus/cli/verbs/verbs.h"

namespace perseus::cli {

// A line of `perseus help --all`.
struct ListedVerb {
  std::string_view group;
  std::string_view name;
  std::string_view brief;  // At most 64 characters, so that a line has at most 80 characters.
  Verb (*add)(CLI::App& program);
};

// Returns all verbs, group by group.
std::span<const ListedVerb> ListedVerbs();

// Formats `perseus --help`: the purpose of the program, and its verbs. kCommon: the verbs that most
// users need. kAll: all verbs.
enum class HelpVerbs { kCommon, kAll };
std::string FormatProgramHelp(HelpVerbs verbs);

// Returns the layout of `perseus VERB --help`, with lines of at most 80 characters.
std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter();

// Returns ", did you mean --slowdown?" for an unknown word that is similar to a flag or a verb
// below `verb`. Returns an empty text if nothing is similar.
std::string Suggestion(const CLI::App& verb, const std::string& word);

}  // namespace perseus::cli
