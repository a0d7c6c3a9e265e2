// `perseus completion` prints shell completion, generated from the flags.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/cli/flag_checks.h"
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

// What may be typed after "perseus": a verb, or a verb and its part, such as "job show".
struct Command {
  std::string name;
  const CLI::App* app;
};

std::vector<Command> CommandsOf(const CLI::App& program) {
  std::vector<Command> commands;
  for (const CLI::App* verb : program.get_subcommands({})) {
    commands.push_back({verb->get_name(), verb});
    for (const CLI::App* part : verb->get_subcommands({})) {
      commands.push_back({verb->get_name() + " " + part->get_name(), part});
    }
  }
  return commands;
}

// The verbs of the program, or the parts of a verb. A verb is an argument of `help`.
std::vector<const CLI::App*> PartsOf(const CLI::App& app) {
  const bool is_help = app.get_parent() != nullptr && app.get_name() == "help";
  return (is_help ? *app.get_parent() : app).get_subcommands({});
}

std::string NamesOf(const std::vector<const CLI::App*>& parts) {
  std::string names;
  for (const CLI::App* part : parts) names += (names.empty() ? "" : " ") + part->get_name();
  return names;
}

// The names of all commands that have two words, in single quotes.
std::string PairsOf(const std::vector<Command>& commands, std::string_view separator) {
  std::string pairs;
  for (const Command& command : commands) {
    if (command.name.find(' ') == std::string::npos) continue;
    fmt::format_to(std::back_inserter(pairs), "{}'{}'", pairs.empty() ? "" : separator,
                   command.name);
  }
  return pairs;
}

// The first sentence of a description, safe within single quotes, brackets and colons.
std::string Brief(const std::string& description) {
  std::string brief;
  for (const char letter : description.substr(0, description.find('\n'))) {
    if (letter == '\'') {
      brief += "’";
    } else if (letter != '[' && letter != ']' && letter != ':') {
      brief += letter;
    }
  }
  return brief.substr(0, brief.find(". "));
}

std::string FormatBash(const CLI::App& program) {
  const std::vector<Command> commands = CommandsOf(program);
  std::string cases;
  std::string choices;
  for (const auto& [name, app] : commands) {
    fmt::format_to(std::back_inserter(cases), "    '{}') parts='{}' flags='{}' ;;\n", name,
                   NamesOf(PartsOf(*app)), FlagsOf(*app));
    for (const CLI::Option* option : ShownOptions(*app)) {
      if (ChoicesOf(*option).empty()) continue;
      std::vector<std::string> before = NamesOf(*option);
      if (before.empty()) before.push_back(app->get_name());  // An argument follows its verb.
      for (const std::string& word : before) {
        fmt::format_to(std::back_inserter(choices), "    '{} {}') choices='{}' ;;\n", name, word,
                       ChoicesOf(*option));
      }
    }
  }
  return fmt::format(
      R"(# bash completion of perseus; made by: perseus completion bash
_perseus() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} parts='' flags='' choices=''
  if [[ $COMP_CWORD -eq 1 ]]; then
    mapfile -t COMPREPLY < <(compgen -W '{} {}' -- "$word")
    return
  fi
  if [[ $COMP_CWORD -gt 2 ]]; then
    case "$command ${{COMP_WORDS[2]}}" in
      {}) command+=" ${{COMP_WORDS[2]}}" ;;
    esac
  fi
  case $command in
{}  esac
  case "$command ${{COMP_WORDS[COMP_CWORD-1]}}" in
{}  esac
  if [[ -n $choices ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word")
    return
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
    return
  elif [[ $COMP_CWORD -eq 2 && -n $parts ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$parts" -- "$word")
    [[ ${{#COMPREPLY[@]}} -eq 0 ]] || return 0
  fi
  mapfile -t COMPREPLY < <(compgen -f -- "$word")
}}
complete -o filenames -F _perseus perseus
)",
      NamesOf(PartsOf(program)), FlagsOf(program), PairsOf(commands, " | "), cases, choices);
}

std::string FormatZshArguments(const CLI::App& app) {
  std::string text = "      _arguments \\\n";
  std::string argument = "'*:file:_files'";
  if (!PartsOf(app).empty()) {
    argument = fmt::format("'1:part:({})' {}", NamesOf(PartsOf(app)), argument);
  }
  for (const CLI::Option* option : ShownOptions(app)) {
    const std::string choices = ChoicesOf(*option);
    const std::string values = choices.empty() ? "_files" : fmt::format("({})", choices);
    const std::string value = TakesValue(*option) ? ":value:" + values : "";
    if (option->get_positional() && !choices.empty()) {
      argument = fmt::format("'1:{}:{}'", option->get_name(), values);
    }
    for (const std::string& name : NamesOf(*option)) {
      fmt::format_to(std::back_inserter(text), "        '*{}[{}]{}' \\\n", name,
                     Brief(option->get_description()), value);
    }
  }
  return text + fmt::format("        {} ;;\n", argument);
}

std::string FormatZsh(const CLI::App& program) {
  const std::vector<Command> commands = CommandsOf(program);
  std::string verbs;
  std::string cases;
  for (const CLI::App* verb : program.get_subcommands({})) {
    fmt::format_to(std::back_inserter(verbs), "    '{}:{}'\n", verb->get_name(),
                   Brief(verb->get_description()));
  }
  for (const auto& [name, app] : commands) {
    fmt::format_to(std::back_inserter(cases), "    '{}')\n{}", name, FormatZshArguments(*app));
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
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  if (( CURRENT > 2 )); then
    case "$command $words[2]" in
      {})
        command+=" $words[2]"
        shift words
        (( CURRENT-- )) ;;
    esac
  fi
  case $command in
{}  esac
}}
# As a file of fpath, zsh runs this at the first completion. Else it is sourced.
if [[ $funcstack[1] == _perseus ]]; then
  _perseus "$@"
else
  compdef _perseus perseus
fi
)",
      verbs, PairsOf(commands, "|"), cases);
}

std::string FormatFish(const CLI::App& program) {
  const std::vector<Command> commands = CommandsOf(program);
  std::string text = fmt::format(
      R"(# fish completion of perseus; made by: perseus completion fish
function __perseus_is -d 'Whether this command is typed: a verb, or a verb and its part'
  set -l words (commandline -opc)
  set -l typed "$words[2]"
  if contains -- "$words[2] $words[3]" {}
    set typed "$words[2] $words[3]"
  end
  test "$typed" = "$argv"
end
function __perseus_needs_part
  set -l words (commandline -opc)
  test (count $words) -eq 2 -a "$words[2]" = "$argv"
end
)",
      PairsOf(commands, " "));
  for (const CLI::App* verb : program.get_subcommands({})) {
    fmt::format_to(std::back_inserter(text),
                   "complete -c perseus -n __fish_use_subcommand -f -a {} -d '{}'\n",
                   verb->get_name(), Brief(verb->get_description()));
  }
  for (const auto& [name, app] : commands) {
    for (const CLI::App* part : PartsOf(*app)) {
      fmt::format_to(std::back_inserter(text),
                     "complete -c perseus -n '__perseus_needs_part {}' -f -a {} -d '{}'\n", name,
                     part->get_name(), Brief(part->get_description()));
    }
    for (const CLI::Option* option : ShownOptions(*app)) {
      const std::string choices = ChoicesOf(*option);
      if (NamesOf(*option).empty() && choices.empty()) continue;
      fmt::format_to(std::back_inserter(text), "complete -c perseus -n '__perseus_is {}'", name);
      for (const std::string& word : option->get_snames()) text += " -s " + word;
      for (const std::string& word : option->get_lnames()) text += " -l " + word;
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
      ->transform(OneOf({"bash", "zsh", "fish"}));
  return {verb, [shell, &program](const Streams& streams) -> Result<void> {
            const auto format = *shell == "bash"  ? FormatBash
                                : *shell == "zsh" ? FormatZsh
                                                  : FormatFish;
            return streams.Print(format(program));
          }};
}

}  // namespace perseus::cli
