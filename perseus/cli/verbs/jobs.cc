// `perseus jobs` and `perseus top` show the jobs of a server.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/flags/server_flags.h"
#include "perseus/cli/terminal/signals.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/cli/terminal/terminal.h"
#include "perseus/cli/verbs/jobs_table.h"
#include "perseus/cli/verbs/verbs.h"

namespace perseus::cli {
namespace {

constexpr const char* kAboutJobs = "List the jobs of a perseus server.";
constexpr const char* kAboutTop =
    "Show the jobs of a perseus server until Ctrl-C. `step` and `energy` are measured means of\n"
    "the last steps. `planned saving` is the saving of the plans in force.";
// How often to check for a signal.
constexpr std::chrono::milliseconds kSignalPollInterval{100};

struct JobsFlags {
  ServerFlags server;
  JobsView view;
  bool all = false;
  bool as_json = false;
  bool watches = false;
  double interval_s = 2;
  int rounds = 0;  // 0: until a signal.
};

std::string Summary(const nlohmann::ordered_json& jobs) {
  double saved = 0;
  int planned = 0;
  for (const auto& job : jobs) {
    if (!job.contains("saving_percent")) continue;
    saved += job["saving_percent"].get<double>();
    ++planned;
  }
  std::string text = fmt::format("{}, {} with a plan", Counted(std::ssize(jobs), "job"), planned);
  if (planned > 0) text += fmt::format(", planned saving {:.2f} % on average", saved / planned);
  return text + "\n\n";
}

// The summary counts all jobs, and the table has those of the view.
std::string Screen(const nlohmann::ordered_json& jobs, const JobsFlags& flags) {
  const auto selected = SelectJobs(jobs, flags.view);
  if (flags.as_json) return selected.dump(2) + "\n";
  return (flags.watches ? Summary(jobs) : "") + FormatJobs(selected, flags.view);
}

Result<void> RunJobs(const Streams& streams, const JobsFlags& flags) {
  PERSEUS_RETURN_IF_ERROR(CheckJobsView(flags.view));
  PERSEUS_ASSIGN_OR_RETURN(auto server, ServerClient::Connect(flags.server));
  PERSEUS_ASSIGN_OR_RETURN(const auto jobs, FetchJobs(server, flags.all));
  return streams.Print(Screen(jobs, flags));
}

Result<void> Watch(const Streams& streams, const JobsFlags& flags) {
  PERSEUS_RETURN_IF_ERROR(CheckJobsView(flags.view));
  PERSEUS_ASSIGN_OR_RETURN(auto signals, EndSignals::Take());
  PERSEUS_ASSIGN_OR_RETURN(auto server, ServerClient::Connect(flags.server));
  // Move the cursor home and clear to the end, so that nothing flickers.
  const std::string_view home =
      DetectTerminal(streams).color && !flags.as_json ? "\x1b[H\x1b[J" : "";
  for (int round = 0; flags.rounds == 0 || round < flags.rounds; ++round) {
    const auto jobs = FetchJobs(server, flags.all);
    // After the first round, a server that does not respond is not an error: it may restart.
    const std::string text =
        jobs ? Screen(*jobs, flags) : fmt::format("perseus: {}\n", jobs.error().message);
    if (!jobs && round == 0) return Fail(jobs);
    if (auto printed = streams.Print(std::string(home) + text); !printed) return printed;
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::milliseconds(static_cast<int>(flags.interval_s * 1000));
    if (round + 1 == flags.rounds) break;
    while (std::chrono::steady_clock::now() < until) {
      if (signals.HaveCome()) return {};
      std::this_thread::sleep_for(kSignalPollInterval);
    }
  }
  return {};
}

// Returns --interval.
CLI::Option* AddCommonFlags(CLI::App& verb, JobsFlags& flags) {
  AddJobsViewFlags(verb, flags.view);
  verb.add_flag("--json", flags.as_json, "Print JSON, for scripts (docs/server.md, \"JSON\")");
  CLI::Option* interval =
      verb.add_option("--interval", flags.interval_s, "Time between two updates (default: 2)");
  interval->check(NumberIn({0.1, 3600}, "in seconds"))->type_name("SECONDS");
  AddServerFlags(verb, flags.server, "read");
  return interval;
}

}  // namespace

Verb AddJobsVerb(CLI::App& program) {
  auto flags = std::make_shared<JobsFlags>();
  CLI::App* verb = program.add_subcommand("jobs", kAboutJobs);
  verb->add_flag("--all", flags->all, "Include jobs that have ended");
  CLI::Option* watch =
      verb->add_flag("--watch", flags->watches, "Print again and again until Ctrl-C");
  AddCommonFlags(*verb, *flags)->needs(watch);
  return {verb, [flags](const Streams& streams) {
            return ReadingAnswers(
                [&] { return flags->watches ? Watch(streams, *flags) : RunJobs(streams, *flags); });
          }};
}

Verb AddTopVerb(CLI::App& program) {
  auto flags = std::make_shared<JobsFlags>();
  flags->watches = true;
  CLI::App* verb = program.add_subcommand("top", kAboutTop);
  verb->add_option("--rounds", flags->rounds, "Number of updates (default: until Ctrl-C)")
      ->check(WholeNumberIn({1, 1'000'000}))
      ->type_name("N");
  AddCommonFlags(*verb, *flags);
  return {verb, [flags](const Streams& streams) {
            return ReadingAnswers([&] { return Watch(streams, *flags); });
          }};
}

}  // namespace perseus::cli
