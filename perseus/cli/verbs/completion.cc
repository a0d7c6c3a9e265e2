// `perseus completion` prints a completion script for a shell. The script asks the program itself
// which words may come next. So the candidates always match the flags.

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>

#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/verbs/verbs.h"

namespace perseus::cli {
namespace {

constexpr const char* kCompletionAbout =
    "Print a shell completion script for the verbs, flags and choices of perseus.";
constexpr const char* kCompletionExamples =
    "  source <(perseus completion bash)\n"
    "  perseus completion zsh > ~/.zfunc/_perseus\n"
    "  perseus completion fish > ~/.config/fish/completions/perseus.fish";

// The scripts put an equals sign before the word that the user is typing, because the word may be
// empty. If the program has no candidate, they offer files.
constexpr std::string_view kBash =
    R"sh(# bash completion of perseus; made by: perseus completion bash
_perseus() {
  local word=${COMP_WORDS[COMP_CWORD]}
  mapfile -t COMPREPLY < <(compgen -W "$(
    "${COMP_WORDS[0]}" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" "=$word" 2>/dev/null)" -- "$word")
}
complete -o default -F _perseus perseus
)sh";
constexpr std::string_view kZsh = R"sh(#compdef perseus
# zsh completion of perseus; made by: perseus completion zsh
_perseus() {
  local -a found=(
    ${(f)"$($words[1] completion zsh -- "${(@)words[2,CURRENT-1]}" "=$words[CURRENT]" 2>/dev/null)"})
  if (( $#found )); then
    _describe perseus found
  else
    _files
  fi
}
# As a file of fpath, zsh runs this at the first completion. Else it is sourced.
if [[ $funcstack[1] == _perseus ]]; then
  _perseus "$@"
else
  compdef _perseus perseus
fi
)sh";
constexpr std::string_view kFish =
    R"sh(# fish completion of perseus; made by: perseus completion fish
function __perseus
  set -l words (commandline -opc)
  set -l found ($words[1] completion fish -- $words[2..] "="(commandline -ct) 2>/dev/null)
  if test -n "$found"
    printf '%s\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c perseus -f -a '(__perseus)'
)sh";

// A word that may come next.
struct Candidate {
  std::string word;
  std::string about;
};

// Returns the long and short names, such as "--pp-ranks" and "-o".
std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

// Returns the choices of an option. CLI11 shows them only in the name of the option's type:
// "NAME:{gpipe,1f1b}".
std::vector<Candidate> ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{');
  if (open == std::string::npos) return {};
  std::vector<Candidate> choices;
  std::istringstream words(type.substr(open + 1, type.find('}') - open - 1));
  for (std::string word; std::getline(words, word, ',');) choices.push_back({word, {}});
  return choices;
}

// Returns the verbs of the program, or the parts of a verb. For `help`, returns all verbs, because
// a verb is its argument.
std::vector<const CLI::App*> PartsOf(const CLI::App& app) {
  const bool is_help = app.get_parent() != nullptr && app.get_name() == "help";
  return (is_help ? *app.get_parent() : app).get_subcommands({});
}

// Returns the words that may come next in a command line and that begin with `typed`.
std::vector<Candidate> CandidatesAfter(const CLI::App& program,
                                       const std::vector<std::string>& words,
                                       const std::string& typed) {
  const CLI::App* app = &program;
  std::size_t known = 0;  // The number of words that are a verb and its part.
  for (; known < words.size(); ++known) {
    const auto parts = app->get_subcommands({});
    const auto next = std::ranges::find(parts, words[known], &CLI::App::get_name);
    if (next == parts.end()) break;
    app = *next;
  }
  // Options without a group are not for users, so they are no candidates.
  const auto options =
      app->get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
  for (const CLI::Option* option : options) {
    const bool takes_value = option->get_items_expected_max() > 0;
    if (takes_value && !words.empty() && std::ranges::count(NamesOf(*option), words.back()) > 0) {
      return ChoicesOf(*option);
    }
  }
  std::vector<Candidate> found;
  for (const CLI::Option* option : options) {
    if (typed.starts_with('-')) {
      for (std::string& name : NamesOf(*option)) {
        found.push_back({std::move(name), option->get_description()});
      }
    } else if (option->get_positional()) {
      std::ranges::move(ChoicesOf(*option), std::back_inserter(found));
    }
  }
  if (typed.starts_with('-') || known < words.size()) return found;
  for (const CLI::App* part : PartsOf(*app)) {
    found.push_back({part->get_name(), part->get_description()});
  }
  return found;
}

// Returns a line for each candidate, in the form that the script of this shell reads.
std::string Format(const std::vector<Candidate>& candidates, std::string_view shell) {
  std::string text;
  for (const auto& [word, about] : candidates) {
    text += word;
    std::string brief = about.substr(0, about.find('\n'));
    brief = brief.substr(0, brief.find(". "));
    if (shell != "bash" && !brief.empty()) text += (shell == "zsh" ? ":" : "\t") + brief;
    text += '\n';
  }
  return text;
}

}  // namespace

Verb AddCompletionVerb(CLI::App& program) {
  struct Flags {
    std::string shell;
    std::vector<std::string> words;
  };
  auto [verb, add, flags] =
      AddVerb<Flags>(program, "completion", kCompletionAbout, kCompletionExamples);
  verb->add_option("shell", flags->shell, "bash, zsh or fish")
      ->required()
      ->transform(OneOf({"bash", "zsh", "fish"}));
  add("words", flags->words, "WORD",
      "For the script: after --, the words before the cursor, the last one after an equals sign. "
      "Prints what may come next");
  return {verb, [flags = flags, &program](const Streams& streams) {
            const auto& [shell, words] = *flags;
            if (words.empty()) {
              return streams.Print(std::string(shell == "bash"  ? kBash
                                               : shell == "zsh" ? kZsh
                                                                : kFish));
            }
            return streams.Print(Format(
                CandidatesAfter(program, {words.begin(), words.end() - 1}, words.back().substr(1)),
                shell));
          }};
}

}  // namespace perseus::cli
