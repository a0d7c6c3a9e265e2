#include "perseus/cli/run_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/system_cause.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/verbs/help.h"
#include "perseus/cli/verbs/verbs.h"

namespace perseus::cli {
namespace {

// The exit statuses are part of the interface: scripts rely on them (perseus --help shows them).
constexpr int kOk = 0;
constexpr int kSystemFailure = 1;
constexpr int kBadInput = 2;
constexpr int kUnreachableTarget = 3;

int StatusOf(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInput:
    case ErrorKind::kFile:
      return kBadInput;
    case ErrorKind::kSystem:
      return kSystemFailure;
    case ErrorKind::kUnreachable:
      return kUnreachableTarget;
  }
  return kSystemFailure;
}

// Shortens a message that quotes a long argument. Keeps its beginning, and its end with the remedy.
std::string Shortened(std::string_view message) {
  constexpr std::size_t kBegin = 3000;
  constexpr std::size_t kEnd = 1000;
  if (message.size() <= kBegin + kEnd) return std::string(message);
  return fmt::format("{} ... {}", message.substr(0, kBegin), message.substr(message.size() - kEnd));
}

int ReportError(const Streams& streams, std::string_view message, int status) {
  // The message may contain a path with any bytes. fmt::print would throw if standard error is
  // closed or full.
  std::fputs(fmt::format("perseus: {}\n", OneLine(Shortened(message))).c_str(), streams.err);
  return status;
}

int PrintHelp(const Streams& streams, const std::string& help) {
  const auto printed = streams.Print(help);
  return printed ? kOk : ReportError(streams, printed.error().Message(), kSystemFailure);
}

// The verb with the wrong flags, such as "perseus job straggler".
struct ChosenVerb {
  const CLI::App* app;
  std::string name;
};

ChosenVerb FindChosenVerb(const CLI::App& program) {
  ChosenVerb verb{&program, program.get_name()};
  for (auto chosen = program.get_subcommands(); !chosen.empty();
       chosen = verb.app->get_subcommands()) {
    verb.app = chosen.front();
    verb.name += " " + verb.app->get_name();
  }
  return verb;
}

bool LacksPart(const CLI::App& verb) { return verb.get_require_subcommand_min() > 0; }

// Returns the word that is neither a verb nor a flag, if such a word exists. CLI11 reports an
// unknown verb as a missing verb with a remaining word. A mistyped flag is found before other
// errors, because CLI11 may have taken the value of this flag for a file.
std::optional<std::string> UnknownWord(const CLI::App& verb, const CLI::ParseError& error) {
  std::vector<std::string> words = verb.remaining();
  std::erase(words, "--");
  if (words.empty()) return std::nullopt;
  const bool is_first = LacksPart(verb) || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const auto flag =
      std::ranges::find_if(words, [](const std::string& word) { return word.starts_with("--"); });
  if (!LacksPart(verb) && flag != words.end()) return *flag;
  return is_first ? std::optional(words.front()) : std::nullopt;
}

// Returns an error of CLI11 as one line. If an option has a wrong number of values or a value of
// another type, the line is in plain words. An error of CLI11 has only its text. So the function
// compares this text with the text that CLI11 would throw for each option.
std::string InPlainWords(const CLI::App& verb, const CLI::ParseError& error) {
  std::string what = error.what();
  const auto is = [&](const CLI::ParseError& other) { return what == other.what(); };
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = option->get_name();
    const std::string type = option->get_type_name();
    const int values = std::min(option->get_type_size_min(), option->get_items_expected_min());
    if (is(CLI::ArgumentMismatch::AtMost(name, 1, option->count()))) {
      return name + " is given more than once: give it once";
    }
    if (is(CLI::ArgumentMismatch::TypedAtLeast(name, values, type))) {
      return values == 1 ? name + " has no value: give it one"
                         : fmt::format("{} needs {} values: {}", name, values, type);
    }
    if (is(CLI::ConversionError(name, option->results()))) {
      return fmt::format("{}: {} is not a value of it", name,
                         Excerpt(CLI::detail::join(option->results())));
    }
  }
  std::replace(what.begin(), what.end(), '\n', ' ');
  return what;
}

int ReportUsageError(const Streams& streams, const CLI::App& program,
                     const CLI::ParseError& error) {
  const auto [verb, name] = FindChosenVerb(program);
  const std::string help = fmt::format("see {} --help", name);
  if (const auto word = UnknownWord(*verb, error)) {
    const std::string& unknown = *word;
    const bool is_number =
        !unknown.empty() && unknown.find_first_not_of("0123456789.") == std::string::npos;
    return ReportError(
        streams,
        fmt::format(
            "{} is unknown ({}{})", Excerpt(unknown), help,
            is_number ? "; a flag takes one value, so repeat the flag for a further one"
            : verb->get_name() == "run" && !unknown.starts_with('-')
                ? "; the training comes after --: perseus run [options] -- torchrun … train.py"
            : verb->get_name() == "job" && unknown == "list" ? "; perseus jobs lists the jobs"
                                                             : Suggestion(*verb, unknown)),
        kBadInput);
  }
  // A verb that has only parts, such as `perseus job`, prints its help, as `perseus` without a verb
  // does.
  if (LacksPart(*verb)) return PrintHelp(streams, program.help());
  if (dynamic_cast<const WrongPath*>(&error) != nullptr) {
    return ReportError(streams, error.what(), kBadInput);
  }
  return ReportError(streams, fmt::format("{} ({})", InPlainWords(*verb, error), help), kBadInput);
}

// Refuses empty values. An empty value is a mistake, such as a variable of the shell that is not
// set.
Result<void> RefuseEmptyValues(const CLI::App& verb) {
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& value : option->results()) {
      if (!value.empty()) continue;
      return Fail("{}: the value is empty (give a value{})", option->get_name(),
                  option->get_required() ? "" : ", or leave it out");
    }
  }
  return {};
}

Result<void> RunVerb(const Streams& streams, const Verb& verb) {
  try {
    return verb.run(streams);
  } catch (const std::bad_alloc&) {
    return FailAs(ErrorKind::kSystem,
                  "out of memory (plan a smaller job, or use a larger machine)");
  } catch (const std::system_error& error) {
    return SystemFail(error.code().value(), "the system failed");
  } catch (const std::exception& error) {
    return FailAs(ErrorKind::kSystem, "unexpected error: {} (please report this)", error.what());
  }
}

// Prints the text that --help or --version requests.
int Exit(const Streams& streams, const CLI::App& program, const CLI::Success& request) {
  std::ostringstream text;
  program.exit(request, text, text);
  return PrintHelp(streams, text.str());
}

// The words of the command line, in two parts. In `perseus run … -- COMMAND`, the words after "--"
// are the command, unchanged. (CLI11 would split a word such as "[1,2]".)
struct CommandLine {
  int argc = 0;  // The number of words for CLI11.
  std::vector<std::string> command;
};

CommandLine SplitCommand(int argc, const char* const* argv) {
  const std::span<const char* const> words(argv, static_cast<std::size_t>(argc));
  if (argc < 2 || std::string_view(words[1]) != "run") return {argc, {}};
  const auto dashes = std::find(words.begin() + 2, words.end(), std::string_view("--"));
  CommandLine line{static_cast<int>(dashes - words.begin()), {}};
  if (dashes != words.end()) line.command.assign(dashes + 1, words.end());
  return line;
}

}  // namespace

int RunProgram(const Streams& streams, int argc, const char* const* argv) {
  if (argc <= 1) return PrintHelp(streams, FormatProgramHelp(HelpVerbs::kCommon));
  CLI::App program("", "perseus");
  program.set_version_flag("-V,--version", VersionText(), "Print the version");
  program.set_help_flag("-h,--help", "Print this help");
  program.formatter(MakeHelpFormatter());
  program.require_subcommand(1);
  std::vector<Verb> verbs;
  for (const ListedVerb& listed : ListedVerbs()) verbs.push_back(listed.add(program));
  CommandLine line = SplitCommand(argc, argv);
  try {
    program.parse(line.argc, argv);
  } catch (const CLI::CallForHelp& request) {
    if (program.get_subcommands().empty()) {
      return program.remaining().empty() ? PrintHelp(streams, FormatProgramHelp(HelpVerbs::kCommon))
                                         : ReportUsageError(streams, program, request);
    }
    return Exit(streams, program, request);
  } catch (const CLI::Success& request) {  // --version.
    return Exit(streams, program, request);
  } catch (const CLI::ParseError& error) {
    return ReportUsageError(streams, program, error);
  } catch (const std::exception& error) {  // For example, a failed conversion in CLI11.
    return ReportError(streams,
                       fmt::format("a value of a flag cannot be read: {} (see {} --help)",
                                   error.what(), FindChosenVerb(program).name),
                       kBadInput);
  }
  if (auto given = RefuseEmptyValues(*FindChosenVerb(program).app); !given) {
    return ReportError(streams, given.error().Message(), kBadInput);
  }
  for (const Verb& verb : verbs) {
    if (!verb.flags->parsed()) continue;
    if (verb.take_command) verb.take_command(std::move(line.command));
    if (auto done = RunVerb(streams, verb); !done) {
      const CLI::App& chosen = *FindChosenVerb(program).app;
      return ReportError(streams, WithFlagNames(chosen, done.error().Message()),
                         StatusOf(done.error().kind));
    }
    return verb.status();
  }
  return kOk;
}

}  // namespace perseus::cli
