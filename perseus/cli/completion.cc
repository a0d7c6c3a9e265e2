// `perseus completion` prints shell completion, generated from the flags.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "perseus/cli/standard_output.h"
#include "perseus/cli/verbs.h"

namespace perseus::cli {
namespace {

constexpr const char* kCompletionAbout =
    "Print a shell completion script for the verbs, flags and choices of perseus.";
constexpr const char* kCompletionExamples =
    "Examples:\n"
    "  source <(perseus completion bash)\n"
    "  perseus completion zsh > ~/.zfunc/_perseus\n"
    "  perseus completion fish > ~/.config/fish/completions/perseus.fish";

// The long and short names, such as "--pp-ranks" and "-o".
std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

// The choices of an option, separated by blanks. Empty if the option has no choices. CLI11 shows
// them only in the name of the type: "NAME:{gpipe,1f1b}".
std::string ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return "";
  std::string choices = type.substr(open + 1, close - open - 1);
  std::replace(choices.begin(), choices.end(), ',', ' ');
  return choices;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// Options without a group are not for users.
std::vector<const CLI::Option*> ShownOptions(const CLI::App& verb) {
  return verb.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

std::string FlagsOf(const CLI::App& verb) {
  std::string flags;
  for (const CLI::Option* option : ShownOptions(verb)) {
    for (const std::string& name : NamesOf(*option)) flags += (flags.empty() ? "" : " ") + name;
  }
  return flags;
}

std::string VerbsOf(const CLI::App& program) {
  std::string verbs;
  for (const CLI::App* verb : program.get_subcommands({})) {
    verbs += (verbs.empty() ? "" : " ") + verb->get_name();
  }
  return verbs;
}

// The first sentence of a description, safe within single quotes, brackets and colons.
std::string Brief(const std::string& description) {
  std::string brief = description.substr(0, description.find('\n'));
  std::erase_if(brief, [](char c) { return c == '\'' || c == '[' || c == ']' || c == ':'; });
  return brief;
}

std::string FormatBash(const CLI::App& program) {
  std::string cases;
  std::string choices;
  for (const CLI::App* verb : program.get_subcommands({})) {
    fmt::format_to(std::back_inserter(cases), "    {}) flags='{}' ;;\n", verb->get_name(),
                   FlagsOf(*verb));
    for (const CLI::Option* option : ShownOptions(*verb)) {
      if (ChoicesOf(*option).empty()) continue;
      std::vector<std::string> before = NamesOf(*option);
      if (before.empty()) before.push_back(verb->get_name());  // An argument follows its verb.
      for (const std::string& name : before) {
        fmt::format_to(std::back_inserter(choices), "    '{} {}') choices='{}' ;;\n",
                       verb->get_name(), name, ChoicesOf(*option));
      }
    }
  }
  return fmt::format(
      R"(# bash completion of perseus; made by: perseus completion bash
_perseus() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} flags='' choices=''
  if [[ $COMP_CWORD -eq 1 ]]; then
    mapfile -t COMPREPLY < <(compgen -W '{} {}' -- "$word")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}" in
{}  esac
  if [[ -n $choices ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word")
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -F _perseus perseus
)",
      VerbsOf(program), FlagsOf(program), cases, choices);
}

std::string FormatZsh(const CLI::App& program) {
  std::string verbs;
  std::string cases;
  for (const CLI::App* verb : program.get_subcommands({})) {
    fmt::format_to(std::back_inserter(verbs), "    '{}:{}'\n", verb->get_name(),
                   Brief(verb->get_description()));
    fmt::format_to(std::back_inserter(cases), "    {})\n      _arguments \\\n", verb->get_name());
    std::string argument = "'*:file:_files'";
    for (const CLI::Option* option : ShownOptions(*verb)) {
      const std::string choices = ChoicesOf(*option);
      const std::string values = choices.empty() ? "_files" : fmt::format("({})", choices);
      const std::string value = TakesValue(*option) ? ":value:" + values : "";
      if (option->get_positional() && !choices.empty()) {
        argument = fmt::format("'1:{}:{}'", option->get_name(), values);
      }
      for (const std::string& name : NamesOf(*option)) {
        fmt::format_to(std::back_inserter(cases), "        '*{}[{}]{}' \\\n", name,
                       Brief(option->get_description()), value);
      }
    }
    cases += fmt::format("        {} ;;\n", argument);
  }
  return fmt::format(
      R"(#compdef perseus
# zsh completion of perseus; made by: perseus completion zsh
_perseus() {{
  local -a verbs=(
{}  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
{}  esac
}}
_perseus "$@"
)",
      verbs, cases);
}

std::string FormatFish(const CLI::App& program) {
  std::string text = "# fish completion of perseus; made by: perseus completion fish\n";
  for (const CLI::App* verb : program.get_subcommands({})) {
    fmt::format_to(std::back_inserter(text),
                   "complete -c perseus -n __fish_use_subcommand -f -a {} -d '{}'\n",
                   verb->get_name(), Brief(verb->get_description()));
    for (const CLI::Option* option : ShownOptions(*verb)) {
      const std::string choices = ChoicesOf(*option);
      if (NamesOf(*option).empty() && choices.empty()) continue;
      fmt::format_to(std::back_inserter(text),
                     "complete -c perseus -n '__fish_seen_subcommand_from {}'", verb->get_name());
      for (const std::string& name : option->get_snames()) text += " -s " + name;
      for (const std::string& name : option->get_lnames()) text += " -l " + name;
      if (!choices.empty()) {
        text += fmt::format("{} -a '{}'", NamesOf(*option).empty() ? " -f" : " -x", choices);
      } else if (TakesValue(*option)) {
        text += " -r";
      }
      text += fmt::format(" -d '{}'\n", Brief(option->get_description()));
    }
  }
  return text;
}

}  // namespace

Verb AddCompletionVerb(CLI::App& program) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = program.add_subcommand("completion", kCompletionAbout);
  verb->footer(kCompletionExamples);
  verb->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>{"bash", "zsh", "fish"}));
  return {verb, [shell, &program]() -> Result<void> {
            const auto format = *shell == "bash"  ? FormatBash
                                : *shell == "zsh" ? FormatZsh
                                                  : FormatFish;
            return Print(format(program));
          }};
}

}  // namespace perseus::cli
