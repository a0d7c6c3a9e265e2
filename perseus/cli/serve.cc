// `perseus serve`: the control plane.
#include <spdlog/sinks/stdout_sinks.h>

#include <csignal>
#include <memory>
#include <utility>

#include "perseus/cli/agent_setup.h"
#include "perseus/cli/flag_checks.h"
#include "perseus/cli/signals.h"
#include "perseus/cli/verbs.h"
#include "perseus/cluster/server/control_plane.h"

namespace perseus::cli {
namespace {

constexpr const char* kServeAbout =
    "Run the server that plans for every job, follows stragglers, and tells nodes what to do\n"
    "(docs/server.md). Without flags: this machine alone, one SQLite file here. Several replicas\n"
    "share one PostgreSQL. SIGHUP reads the certificates again; SIGTERM ends it.";
constexpr const char* kServeExamples =
    "Examples:\n"
    "  perseus serve\n"
    "  perseus serve --listen 0.0.0.0:7410 --tls-certificate server.pem --tls-key server.key \\\n"
    "      --database postgresql://perseus@db/perseus";

struct ServeFlags {
  server::ControlPlaneOptions options;
  http::TlsFiles tls;
  double requests_per_second = 0;
  int body_mib = 64;
  std::string log_level = "info";
};

Result<void> CheckTls(const http::TlsFiles& tls) {
  if (tls.certificate.empty() == tls.key.empty() &&
      (!tls.certificate.empty() || tls.client_authority.empty())) {
    return {};
  }
  return Fail("TLS takes both --tls-certificate and --tls-key (--client-ca goes with them)");
}

Result<void> RunServe(const ServeFlags& flags) {
  RaiseLimitOnOpenFiles();
  std::signal(SIGPIPE, SIG_IGN);
  if (auto fits = CheckTls(flags.tls); !fits) return fits;
  server::ControlPlaneOptions options = flags.options;
  if (!flags.tls.certificate.empty()) options.tls = flags.tls;
  options.limits.body_bytes = static_cast<std::size_t>(flags.body_mib) << 20U;
  options.limits.requests_per_second = flags.requests_per_second;
  spdlog::logger log = MakeLog(flags.log_level);
  // Before there are threads: they inherit what is blocked.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  PERSEUS_ASSIGN_OR_RETURN(auto server, server::ControlPlane::Start(std::move(options), log));
  log.info("listening on {}:{}", flags.options.address.substr(0, flags.options.address.rfind(':')),
           server->port());
  log.flush();
  std::thread waits([&] {
    for (int signal = 0; sigwait(&signals, &signal) == 0;) {
      if (signal != SIGHUP) break;
      server->ReloadTls();
    }
    server->Stop();
  });
  server->Run();
  waits.join();
  server.reset();  // Gives back what was being planned.
  log.info("ended");
  log.flush();
  return {};
}

}  // namespace

Verb AddServeVerb(CLI::App& program) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* verb = program.add_subcommand("serve", kServeAbout);
  verb->footer(kServeExamples);
  server::ControlPlaneOptions& options = flags->options;
  verb->add_option("--listen", options.address, "Where to listen (default: 127.0.0.1:7410)")
      ->type_name("HOST:PORT");
  verb->add_option("--database", options.database,
                   "sqlite:FILE, or postgresql://USER@HOST/NAME (default: sqlite:perseus.db)")
      ->envname("PERSEUS_DATABASE")
      ->type_name("URL");
  verb->add_option("--tls-certificate", flags->tls.certificate, "PEM, with its chain")
      ->type_name("FILE");
  verb->add_option("--tls-key", flags->tls.key, "PEM")->type_name("FILE");
  verb->add_option("--client-ca", flags->tls.client_authority,
                   "Clients have to show a certificate that this authority (PEM) signed")
      ->type_name("FILE");
  verb->add_flag("--insecure", options.is_insecure,
                 "Listen to other machines without TLS and tokens");
  verb->add_option("--planners", options.planning_threads, "Threads that plan (default: 2)")
      ->check(CLI::Range(1, 256))
      ->type_name("N");
  verb->add_option("--assignment-delay", options.lead_s,
                   "Seconds until assignment have reached every rank (default: 0.5)")
      ->check(CLI::Range(0.0, 60.0))
      ->type_name("S");
  verb->add_option("--keep-ended", options.keep_ended_days,
                   "Days after which jobs that have ended are deleted (default: 30)")
      ->check(CLI::Range(0.0, 36500.0))
      ->type_name("DAYS");
  verb->add_option("--rate", flags->requests_per_second,
                   "Requests a second that one address may send (default: any)")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("N");
  verb->add_option("--largest-body", flags->body_mib,
                   "MiB of any request; most take less anyway (default: 64)")
      ->check(CLI::Range(1, 64))
      ->type_name("MIB");
  verb->add_option("--replica", options.replica,
                   "A name that no other replica has (default: host and process)")
      ->type_name("NAME");
  verb->add_option("--log-level", flags->log_level, "debug, info, warn or error (default: info)")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->type_name("LEVEL");
  return {verb, [flags] { return RunServe(*flags); }};
}

}  // namespace perseus::cli
