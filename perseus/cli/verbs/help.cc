#include "perseus/cli/verbs/help.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/standard_output.h"

namespace perseus::cli {
namespace {

constexpr const char* kHelpAbout = "Print the help of a verb.";
constexpr const char* kHelpExamples =
    "  perseus help\n"
    "  perseus help plan\n"
    "  perseus help job register\n"
    "  perseus help --all";
constexpr const char* kVersionAbout = "Print the version of perseus, its commit and its build.";

constexpr std::size_t kColumns = 80;
constexpr std::size_t kNameColumns = 30;  // CLI11's default.

constexpr std::string_view kPlanning = "Plan a job";
constexpr std::string_view kFollowing = "Follow a plan while a job trains";
constexpr std::string_view kOnANode = "Manage a node";
constexpr std::string_view kInACluster = "Manage a cluster";
constexpr std::string_view kMore = "More";

constexpr ListedVerb kListedVerbs[] = {
    {kPlanning, "plan", "Plan the clock of every instruction of an iteration", AddPlanVerb},
    {kPlanning, "show", "Show plans side by side", AddShowVerb},
    {kPlanning, "report", "Make the report page, or figures, from plans", AddReportVerb},
    {kPlanning, "evaluate", "Compute the time and energy of a plan", AddEvaluateVerb},
    {kPlanning, "emulate", "Emulate a whole job, with stragglers and power caps", AddEmulateVerb},
    {kPlanning, "replay", "Compute what a recorded timeline of a job wasted", AddReplayVerb},
    {kPlanning, "synth", "Make a profile without a GPU", AddSynthVerb},

    {kFollowing, "demo", "Show a job on virtual GPUs that saves energy", AddDemoVerb},
    {kFollowing, "run", "Run a training with Perseus attached", AddRunVerb},
    {kFollowing, "tune", "Profile a job, plan it, and activate the plan", AddTuneVerb},
    {kFollowing, "verify", "Measure what a plan saves", AddVerifyVerb},

    {kOnANode, "doctor", "Show what works on this node, and how to fix the rest", AddDoctorVerb},
    {kOnANode, "qualify", "Measure what its GPUs do when clocks change", AddQualifyVerb},
    {kOnANode, "agent", "Run the agent, the only process that sets clocks", AddAgentVerb},
    {kOnANode, "gpu", "Show and manage GPUs, their settings and holders", AddGpuVerb},

    {kInACluster, "serve", "Run the server that plans for all jobs", AddServeVerb},
    {kInACluster, "node", "Connect the jobs of this node with a server", AddNodeVerb},
    {kInACluster, "jobs", "List the jobs of a server", AddJobsVerb},
    {kInACluster, "job", "Register, show and change a job of a server", AddJobVerb},
    {kInACluster, "nodes", "List the nodes of a server, and how their ranks do", AddNodesVerb},
    {kInACluster, "token", "Manage the tokens of a server", AddTokenVerb},

    {kMore, "compare", "Compare policies that choose clocks", AddCompareVerb},
    {kMore, "partition", "Split a model into pipeline stages", AddPartitionVerb},
    {kMore, "trace", "Write a timeline of what the job ran", AddTraceVerb},
    {kMore, "schedule", "Write the schedule that the job ran, or search for one", AddScheduleVerb},
    {kMore, "trainer", "Run a training job on virtual GPUs", AddTrainerVerb},
    {kMore, "audit", "List who changed what", AddAuditVerb},
    {kMore, "help", "Print the help of a verb", AddHelpVerb},
    {kMore, "version", "Print the version", AddVersionVerb},
    {kMore, "completion", "Print completion for bash, zsh or fish", AddCompletionVerb},
};

// A verb with more flags than this lists the flags that most people need before all groups.
constexpr std::size_t kManyFlags = 25;
constexpr std::string_view kMostNeeded[] = {
    "--help",       "--schedule", "--microbatches", "--blocking-power", "--gpus-per-stage",
    "--job",        "--facts",    "--slowdown",     "--max-switches",   "--straggler",
    "--iterations", "--output",   "--json"};

using Options = std::vector<const CLI::Option*>;

Options MostNeeded(const CLI::App& verb) {
  Options needed;
  if (verb.get_options().size() <= kManyFlags) return needed;
  for (const std::string_view name : kMostNeeded) {
    const CLI::Option* option = verb.get_option_no_throw(std::string(name));
    if (option != nullptr) needed.push_back(option);
  }
  return needed;
}

// Breaks the text into lines of at most `columns` characters. A longer word gets a line of its own.
std::string Wrapped(std::string_view text, std::size_t columns) {
  std::string wrapped;
  std::size_t used = 0;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    const bool fits = used + 1 + word.size() <= columns;
    if (!wrapped.empty()) wrapped += fits ? ' ' : '\n';
    used = wrapped.empty() || !fits ? word.size() : used + 1 + word.size();
    wrapped += word;
  }
  return wrapped;
}

// The help for a flag or a positional argument.
struct OptionHelp {
  std::string type;  // "FILE"; empty if it takes no value.
  std::string text;  // With the choices, if it has any.
};

OptionHelp HelpOf(const CLI::Option& option) {
  OptionHelp help{option.get_type_name(), option.get_description()};
  // The default, if the text does not explain it. CLI11 shows the default of a list as "[5]".
  std::string usual = option.get_default_str();
  std::erase_if(usual, [](char letter) { return letter == '[' || letter == ']'; });
  if (!usual.empty() && help.text.find("default:") == std::string::npos) {
    help.text += fmt::format(" (default: {})", usual);
  }
  // CLI11 shows choices as a part of the type, "NAME:{gpipe,1f1b}".
  const std::size_t open = help.type.find(":{");
  if (open == std::string::npos) return help;
  help.text += ". One of: ";
  for (const char letter : help.type.substr(open + 2, help.type.find('}', open) - open - 2)) {
    help.text += letter == ',' ? ", " : std::string(1, letter);
  }
  help.type.resize(open);
  return help;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return Wrapped(app->get_description(), kColumns) + "\n\n";
  }
  // Returns the names as in manual pages: "-o, --output".
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string names = CLI::Formatter::make_option_name(option, is_positional);
    if (const std::size_t comma = names.find(','); comma != std::string::npos) {
      names.insert(comma + 1, " ");
    }
    return names;
  }
  // Does not list the flags that exclude each other, because the lines would be long. If the user
  // gives such flags, an error says so.
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = HelpOf(*option).type;
    return type.empty() ? "" : " " + type;
  }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const Options needed = MostNeeded(*app);
    if (needed.empty() || mode == CLI::AppFormatMode::Sub) {
      return CLI::Formatter::make_help(app, std::move(name), mode);
    }
    return make_description(app) + make_usage(app, std::move(name)) + make_positionals(app) +
           Groups(*app, needed) + make_subcommands(app, mode) + '\n' + make_footer(app);
  }
  std::string make_subcommand(const CLI::App* part) const override {
    std::ostringstream line;
    CLI::detail::format_help(line, part->get_name(), Described(part->get_description()),
                             kNameColumns);
    return line.str();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return Described(HelpOf(*option).text);
  }

 private:
  // Returns the flags that most people need, and then the others by group.
  std::string Groups(const CLI::App& app, const Options& needed) const {
    std::string text = make_group("Most needed", false, needed);
    for (const std::string& group : app.get_groups()) {
      const Options others = app.get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional() &&
               std::ranges::find(needed, option) == needed.end();
      });
      if (!others.empty()) text += make_group(group, false, others);
    }
    return text;
  }
  // CLI11 indents the lines.
  static std::string Described(std::string_view text) {
    return Wrapped(text, kColumns - kNameColumns);
  }
};

Result<void> PrintHelp(const Streams& streams, const CLI::App& program,
                       const std::vector<std::string>& names) {
  const CLI::App* verb = &program;
  std::string before;
  for (const std::string& name : names) {
    const auto verbs = verb->get_subcommands({});
    const auto next = std::ranges::find(verbs, name, &CLI::App::get_name);
    if (next == verbs.end()) {
      return Fail("{} is unknown (see perseus help{})", Excerpt(name), Suggestion(*verb, name));
    }
    before += (before.empty() ? "" : " ") + verb->get_name();
    verb = *next;
  }
  return streams.Print(verb->help(before));
}

}  // namespace

std::string Suggestion(const CLI::App& verb, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* other : verb.get_subcommands({})) names.push_back(other->get_name());
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view nearest = NearestName(word.substr(0, word.find('=')), known);
  return nearest.empty() ? "" : fmt::format(", did you mean {}?", nearest);
}

std::span<const ListedVerb> ListedVerbs() { return kListedVerbs; }

std::string FormatProgramHelp(HelpVerbs verbs) {
  std::string text =
      "Perseus finds the energy that a training job wastes, and plans the GPU clocks\n"
      "that save it.\n"
      "\n"
      "Usage: perseus VERB [FLAGS]\n"
      "\n"
      "A first plan:\n"
      "  perseus synth --gpu a100 --stages 8 -o profile.csv\n"
      "  perseus plan profile.csv --schedule 1f1b --microbatches 96 \\\n"
      "      --blocking-power 83.64 -o out\n";
  std::string_view group;
  std::string more;
  for (const ListedVerb& verb : kListedVerbs) {
    if (verbs == HelpVerbs::kCommon && verb.group == kMore) {
      more += fmt::format("{}{}", more.empty() ? "" : ", ", verb.name);
      continue;
    }
    if (verb.group != group) text += fmt::format("\n{}:\n", verb.group);
    group = verb.group;
    text += fmt::format("  {:12}{}\n", verb.name, verb.brief);
  }
  if (!more.empty()) more = fmt::format("Further verbs (perseus help --all): {}. ", more);
  more += "`perseus help VERB` prints the flags of a verb, with examples.";
  return text + "\n" + Wrapped(more, kColumns) +
         "\n\n"
         "Exit status: 0 success; 1 system failure; 2 bad input or usage;\n"
         "             3 valid, but impossible: no plan can meet the target, or the server\n"
         "             is in another state than the request needs\n";
}

std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter() {
  return std::make_shared<HelpFormatter>();
}

Verb AddHelpVerb(CLI::App& program) {
  struct Flags {
    std::vector<std::string> names;
    bool all = false;
  };
  auto [verb, add, flags] = AddVerb<Flags>(program, "help", kHelpAbout, kHelpExamples);
  add("verb", flags->names, "VERB", "The verb, and its part");
  verb->add_flag("--all", flags->all, "List all verbs");
  return {
      verb, [&program, flags = flags](const Streams& streams) {
        if (!flags->names.empty()) return PrintHelp(streams, program, flags->names);
        return streams.Print(FormatProgramHelp(flags->all ? HelpVerbs::kAll : HelpVerbs::kCommon));
      }};
}

Verb AddVersionVerb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("version", kVersionAbout);
  return {verb,
          [](const Streams& streams) { return streams.Print(std::string(VersionText()) + "\n"); }};
}

}  // namespace perseus::cli
