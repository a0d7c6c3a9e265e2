// `perseus node` runs the node daemon, the part of the control plane on a node.
#include "perseus/base/host.h"
#include "perseus/cluster/node/run_node.h"

#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/excerpt.h"
#include "perseus/cli/flags/node_setup.h"
#include "perseus/cli/flags/server_flags.h"
#include "perseus/cli/terminal/signals.h"
#include "perseus/cli/verbs/verbs.h"

namespace perseus::cli {
namespace {

constexpr const char* kNodeAbout =
    "Connect the training jobs of this node with a perseus server: report the time and energy of\n"
    "steps, and pass the server's assignments to the ranks. Needs permission to read the job\n"
    "directories and to write to --assignments, and no other. If the server is away or this\n"
    "program ends, ranks keep their assignment. Ends with SIGTERM.";
constexpr const char* kNodeExamples =
    "  perseus node --server https://perseus:7410 --token-file /etc/perseus/token\n"
    "  perseus node --server http://127.0.0.1:7410 --job gpt3-run7=run\n"
    "      # for a job that was started with PERSEUS_JOB_DIR=run";

constexpr const char* kJobsDirectory = "/run/perseus/jobs";

struct NodeFlags {
  ServerFlags server;
  std::string name;
  std::string jobs_directory;
  std::vector<std::string> jobs;
  std::string assignments_directory = node::kAssignmentsDirectory;
  std::string join_token_file;
  std::string munge_server;
  std::string munge_socket;
  std::string log_level = "info";
};

Result<std::map<std::filesystem::path, std::string>> JobsGiven(
    const std::vector<std::string>& given) {
  std::map<std::filesystem::path, std::string> jobs;
  for (const std::string& job : given) {
    // Search from the end, because a key may contain "=", but a directory rarely does.
    const std::size_t equals = job.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == job.size()) {
      return Fail("--job {} is not KEY=DIR (expected one such as gpt3-run7=/scratch/run7)",
                  Excerpt(job));
    }
    jobs.emplace(job.substr(equals + 1), job.substr(0, equals));
  }
  return jobs;
}

Result<void> RunNodeVerb(const Streams& streams, const NodeFlags& flags) {
  // The daemon must not end if a server closes a connection or if nobody reads its log any more.
  std::signal(SIGPIPE, SIG_IGN);
  PERSEUS_ASSIGN_OR_RETURN(auto signals, EndSignals::Take());
  spdlog::logger log = MakeLog(streams, flags.log_level);
  node::NodeOptions options;
  const bool joins = !flags.join_token_file.empty() || !flags.munge_server.empty();
  if (joins) {
    // The node itself reads and writes the token file, which may not exist yet.
    const std::string own = TokenFileOf(flags.server);
    if (own.empty()) {
      return Fail(
          "--join-token-file and --join-munge need --token-file (the file where the node keeps its "
          "own token, such as /var/lib/perseus-node/node.token)");
    }
    options.join_token_file = flags.join_token_file;
    options.own_token_file = own;
    options.munge_server = flags.munge_server;
    options.munge_socket = flags.munge_socket;
  }
  PERSEUS_ASSIGN_OR_RETURN(
      const auto server,
      ClientOptionsOf(flags.server, joins ? TokenComes::kLater : TokenComes::kFromFile));
  PERSEUS_ASSIGN_OR_RETURN(const auto jobs, JobsGiven(flags.jobs));
  options.name = flags.name.empty() ? HostName() : flags.name;
  options.jobs = jobs;
  options.jobs_directory = flags.jobs_directory;
  options.assignments_directory = flags.assignments_directory;
  // With --job, the node handles only these jobs.
  if (options.jobs_directory.empty() && jobs.empty()) options.jobs_directory = kJobsDirectory;
  RealClock clock;
  log.info("node {} of {}", options.name, server.server);
  std::error_code none;  // The ignored error of a directory that does not exist.
  if (!options.jobs_directory.empty() &&
      !std::filesystem::is_directory(options.jobs_directory, none)) {
    log.warn("{} is no directory yet: no job of this node is found before it exists (--jobs)",
             options.jobs_directory.string());
  }
  const auto ran = node::RunNode(
      std::move(options), server, [&] { return signals.HaveCome(); }, clock, log);
  if (ran) log.info("ended; ranks keep their assignment");
  return ran;
}

}  // namespace

Verb AddNodeVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<NodeFlags>(program, "node", kNodeAbout, kNodeExamples);
  add("--name", flags->name, "NAME",
      "The name of this node for the server (default: its host name)");
  add("--jobs", flags->jobs_directory, "DIR",
      fmt::format("The directory of job directories; those with a server.json belong to the server "
                  "(default: {}, unless --job is given)",
                  kJobsDirectory));
  add("--job", flags->jobs, "KEY=DIR", "One job directory; repeatable");
  add("--assignments", flags->assignments_directory, "DIR",
      fmt::format("The directory for the assignments of jobs whose directories belong to other "
                  "users (default: {})",
                  node::kAssignmentsDirectory));
  AddServerFlags(*verb, flags->server, "agent");
  const FlagAdder join(*verb, "Server");
  CLI::Option* token = join("--join-token-file", flags->join_token_file, "FILE",
                            "A token of scope join: get the node's own token with it, keep it in "
                            "--token-file, and renew it");
  CLI::Option* munge =
      join("--join-munge", flags->munge_server, "NAME",
           "The same with a credential of munge; NAME is the audience that the server accepts")
          ->excludes(token);
  join("--munge-socket", flags->munge_socket, "FILE",
       "Socket of munged (default: that of the system)")
      ->needs(munge);
  AddLogLevel(add, flags->log_level);
  return {verb, [flags = flags](const Streams& streams) { return RunNodeVerb(streams, *flags); }};
}

}  // namespace perseus::cli
