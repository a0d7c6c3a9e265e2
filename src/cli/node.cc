// `perseus node`: a node's half of the control plane.
#include "perseus/node/run_node.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "agent_setup.h"
#include "perseus/base/clock.h"
#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "signals.h"
#include "verbs.h"

namespace perseus::cli {
namespace {

constexpr const char* kAbout =
    "Keep this node's training jobs in touch with a perseus server: tell it what steps take, and "
    "give\n"
    "ranks the orders that it sends. Needs no privileges but to write into the jobs' directories.\n"
    "While the server is away, and after this program has ended, ranks go on with the orders that\n"
    "they have. Ends with SIGTERM.";
constexpr const char* kExamples =
    "Examples:\n"
    "  perseus node --server https://perseus:7410 --token-file /etc/perseus/token\n"
    "  perseus node --server http://127.0.0.1:7410 --job gpt3-run7=run    # a job started with\n"
    "                                                                     # PERSEUS_JOB_DIR=run";

constexpr const char* kServer = "http://127.0.0.1:7410";
constexpr const char* kJobsDirectory = "/run/perseus/jobs";

struct NodeFlags {
  std::string server;
  std::string token_file;
  std::string authority;
  std::string certificate;
  std::string key;
  std::string name;
  std::string jobs_directory;
  std::vector<std::string> jobs;
  std::string log_level = "info";
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The flag, or else the variable, or else what is usual.
std::string FirstOf(const std::string& flag, const char* variable, const std::string& usual) {
  if (!flag.empty()) return flag;
  const std::string value = Environment(variable);
  return value.empty() ? usual : value;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// Nothing where there is no file. Whoever can read a token can speak for every node.
Result<std::string> ReadToken(const std::string& path) {
  if (path.empty()) return "";
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0) {
    return Fail("{} holds a token that everybody on this machine can read (chmod 0640 {})", path,
                path);
  }
  auto text = ReadFile(path);
  if (!text) return Fail(text);
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
  if (text->empty() || !IsPrintable(*text)) {
    return Fail("{} holds no token (expected one line: what perseus token create printed)", path);
  }
  return *text;
}

Result<std::map<std::filesystem::path, std::string>> JobsGiven(
    const std::vector<std::string>& given) {
  std::map<std::filesystem::path, std::string> jobs;
  for (const std::string& job : given) {
    // A key may have a "=" in it; a directory, rarely.
    const std::size_t equals = job.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == job.size()) {
      return Fail("--job {} is not KEY=DIR (expected one such as gpt3-run7=/scratch/run7)",
                  Excerpt(job));
    }
    jobs.emplace(job.substr(equals + 1), job.substr(0, equals));
  }
  return jobs;
}

Result<void> RunNodeVerb(const NodeFlags& flags) {
  // A server that goes, or a log that nobody reads any more, is no reason to die.
  std::signal(SIGPIPE, SIG_IGN);
  auto signals = EndSignals::Take();
  if (!signals) return Fail(signals);
  spdlog::logger log = MakeLog(flags.log_level);
  http::ClientOptions server;
  server.server = FirstOf(flags.server, "PERSEUS_SERVER", kServer);
  server.authority = flags.authority;
  server.certificate = flags.certificate;
  server.key = flags.key;
  const auto token = ReadToken(FirstOf(flags.token_file, "PERSEUS_TOKEN_FILE", ""));
  if (!token) return Fail(token);
  server.token = *token;
  const auto jobs = JobsGiven(flags.jobs);
  if (!jobs) return Fail(jobs);
  NodeOptions options;
  options.name = flags.name.empty() ? HostName() : flags.name;
  options.jobs = *jobs;
  options.jobs_directory = flags.jobs_directory;
  // Who names single jobs means these.
  if (options.jobs_directory.empty() && jobs->empty()) options.jobs_directory = kJobsDirectory;
  RealClock clock;
  log.info("node {} of {}", options.name, server.server);
  const auto ran = RunNode(
      std::move(options), server, [&] { return signals->HaveCome(); }, clock, log);
  if (ran) log.info("ended; ranks go on with the orders that they have");
  return ran;
}

}  // namespace

Verb AddNodeVerb(CLI::App& program) {
  auto flags = std::make_shared<NodeFlags>();
  CLI::App* verb = program.add_subcommand("node", kAbout);
  verb->footer(kExamples);
  verb->add_option("--server", flags->server,
                   fmt::format("Where the server is; replicas with commas in between (default: "
                               "PERSEUS_SERVER, or {})",
                               kServer))
      ->type_name("URL");
  verb->add_option("--token-file", flags->token_file,
                   "A token of scope agent (default: PERSEUS_TOKEN_FILE, or none)")
      ->type_name("FILE");
  verb->add_option("--ca", flags->authority, "Whom to trust (default: the system's authorities)")
      ->type_name("FILE");
  CLI::Option* certificate =
      verb->add_option("--cert", flags->certificate, "This node's certificate")->type_name("FILE");
  CLI::Option* key = verb->add_option("--key", flags->key, "Its key")->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  verb->add_option("--name", flags->name,
                   "What the server calls this node (default: its host name)")
      ->type_name("NAME");
  verb->add_option("--jobs", flags->jobs_directory,
                   fmt::format("Where job directories appear; those with a server.json are the "
                               "server's (default: {}, unless --job is given)",
                               kJobsDirectory))
      ->type_name("DIR");
  verb->add_option("--job", flags->jobs, "A job directory of its own; repeatable")
      ->type_name("KEY=DIR");
  verb->add_option("--log-level", flags->log_level, "debug, info, warn or error (default: info)")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  return {verb, [flags] { return RunNodeVerb(*flags); }};
}

}  // namespace perseus::cli
