// `perseus completion`: shell completion, made from the flags themselves.
#include <fmt/format.h>

#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "standard_output.h"
#include "verbs.h"

namespace perseus::cli {
namespace {

constexpr const char* kAbout = "Print the completion of perseus's verbs and flags for a shell.";
constexpr const char* kExamples =
    "Examples:\n"
    "  source <(perseus completion bash)\n"
    "  perseus completion zsh > ~/.zfunc/_perseus\n"
    "  perseus completion fish > ~/.config/fish/completions/perseus.fish";

// "--stages", and "-o" where there is a short name.
std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

std::string FlagsOf(const CLI::App& verb) {
  std::string flags;
  for (const CLI::Option* option : verb.get_options()) {
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
  for (const CLI::App* verb : program.get_subcommands({})) {
    fmt::format_to(std::back_inserter(cases), "    {}) flags='{}' ;;\n", verb->get_name(),
                   FlagsOf(*verb));
  }
  return fmt::format(
      R"(# bash completion of perseus; made by: perseus completion bash
_perseus() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} flags=''
  if [[ $COMP_CWORD -eq 1 ]]; then
    mapfile -t COMPREPLY < <(compgen -W '{} {}' -- "$word")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -F _perseus perseus
)",
      VerbsOf(program), FlagsOf(program), cases);
}

std::string FormatZsh(const CLI::App& program) {
  std::string verbs;
  std::string cases;
  for (const CLI::App* verb : program.get_subcommands({})) {
    fmt::format_to(std::back_inserter(verbs), "    '{}:{}'\n", verb->get_name(),
                   Brief(verb->get_description()));
    fmt::format_to(std::back_inserter(cases), "    {})\n      _arguments \\\n", verb->get_name());
    for (const CLI::Option* option : verb->get_options()) {
      const bool takes_value = option->get_items_expected_max() > 0;
      for (const std::string& name : NamesOf(*option)) {
        fmt::format_to(std::back_inserter(cases), "        '*{}[{}]{}' \\\n", name,
                       Brief(option->get_description()), takes_value ? ":value:_files" : "");
      }
    }
    cases += "        '*:file:_files' ;;\n";
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
    for (const CLI::Option* option : verb->get_options()) {
      if (option->get_lnames().empty()) continue;
      fmt::format_to(std::back_inserter(text),
                     "complete -c perseus -n '__fish_seen_subcommand_from {}'", verb->get_name());
      for (const std::string& name : option->get_snames()) text += " -s " + name;
      for (const std::string& name : option->get_lnames()) text += " -l " + name;
      if (option->get_items_expected_max() > 0) text += " -r";
      text += fmt::format(" -d '{}'\n", Brief(option->get_description()));
    }
  }
  return text;
}

}  // namespace

Verb AddCompletionVerb(CLI::App& program) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = program.add_subcommand("completion", kAbout);
  verb->footer(kExamples);
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
