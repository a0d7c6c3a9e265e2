// Measures how much load one `perseus serve` can carry. The program starts a server with an SQLite
// database, and sends it the traffic of a fleet over the loopback interface (docs/benchmarks.md,
// "Control plane").
//
//   server_load streams | uploads | plans | reports | soak
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>

#include "bench/server_load/scenarios.h"

namespace {

using perseus::load::Options;
using perseus::load::ServerProcess;

// Raises the limit on open files, because this process and the server need thousands of
// descriptors.
void RaiseLimitOnOpenFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::string program = PERSEUS_PROGRAM;
  CLI::App app("Loads a server of its own, and says what it took.");
  app.require_subcommand(1);
  app.add_option("--program", program, "perseus")->type_name("FILE");
  std::string database;
  app.add_option("--database", database,
                 "An empty one (default: SQLite in the temporary directory)")
      ->type_name("URL");
  std::function<void(const ServerProcess&, const Options&)> measure;
  std::string keep_ended = "30";
  const auto add = [&](const char* name, const char* about, auto run) {
    CLI::App* verb = app.add_subcommand(name, about);
    verb->callback([&measure, run] { measure = run; });
    return verb;
  };
  CLI::App* streams = add("streams", "From a straggler's notice to the last node's new plan",
                          perseus::load::MeasureStreams);
  CLI::App* uploads = add("uploads", "Profiles of a thousand rows", perseus::load::MeasureUploads);
  CLI::App* plans = add("plans", "Many jobs to plan at once", perseus::load::MeasurePlans);
  CLI::App* reports =
      add("reports", "Each node reports after each step", perseus::load::MeasureReports);
  CLI::App* soak = add("soak", "Jobs that come and go", perseus::load::Soak);
  for (CLI::App* verb : {streams, reports}) verb->add_option("--nodes", options.nodes);
  for (CLI::App* verb : {streams, reports, uploads, plans}) {
    verb->add_option("--microbatches", options.microbatches);
  }
  streams->add_option("--rounds", options.rounds);
  uploads->add_option("--uploads", options.uploads);
  plans->add_option("--jobs", options.jobs);
  reports->add_option("--seconds", options.seconds);
  reports->add_option("--step", options.step_s, "Seconds; each node reports after each step")
      ->check(CLI::Range(1, 60));
  soak->add_option("--minutes", options.minutes);
  soak->add_option("--width", options.width, "Jobs at a time");
  CLI11_PARSE(app, argc, argv);
  if (soak->parsed()) keep_ended = "0";
  std::signal(SIGPIPE, SIG_IGN);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  RaiseLimitOnOpenFiles();
  try {
    const ServerProcess server(program, keep_ended, database);
    measure(server, options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "server_load: {}\n", error.what());
    return 1;
  }
  return 0;
}
