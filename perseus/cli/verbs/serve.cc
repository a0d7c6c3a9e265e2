// `perseus serve` runs the server of the control plane.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/formatter.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/cli/flags/node_setup.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/cluster/server/control_plane.h"
#include "perseus/cluster/server/identity/identity_settings.h"

namespace perseus::cli {
namespace {

constexpr const char* kServeAbout =
    "Run the server that plans for all jobs, detects stragglers, and sends assignments to nodes\n"
    "(docs/server.md). Without flags it serves only this machine and uses one SQLite file in the\n"
    "current directory. Several replicas share one PostgreSQL database. SIGHUP reloads the\n"
    "certificates and the file of --identities. SIGTERM ends the server.";
constexpr const char* kServeExamples =
    "  perseus serve\n"
    "  perseus serve --listen 0.0.0.0:7410 --tls-certificate server.pem \\\n"
    "      --tls-key server.key --database postgresql://perseus@db/perseus";

struct ServeFlags {
  server::ControlPlaneOptions options;
  http::TlsFiles tls;
  double address_rate = 0;
  double mebibytes_per_second = 16;
  int body_mib = 64;
  std::string identities;
  std::string log_level = "info";
  std::string log_format = "text";
};

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Parses a text of pairs: `key=value key="a value"`. Returns no pairs if the text has another form.
Pairs PairsOf(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_";
  Pairs pairs;
  while (!text.empty()) {
    const std::size_t equals = text.find_first_not_of(kLetters);
    if (equals == 0 || equals == std::string_view::npos || text[equals] != '=') return {};
    const std::string_view key = text.substr(0, equals);
    text.remove_prefix(equals + 1);
    const bool is_quoted = text.starts_with('"');
    if (is_quoted) text.remove_prefix(1);
    const std::size_t end = text.find(is_quoted ? '"' : ' ');
    if (is_quoted && end == std::string_view::npos) return {};
    pairs.emplace_back(key, text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (is_quoted && text.starts_with(' ')) text.remove_prefix(1);
  }
  return pairs;
}

// Formats the log as JSON objects, one per line: {"time", "level", "message"}. If the message
// consists of pairs (key=value key="a value"), as for requests, each pair is also a member.
class JsonLines final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    const std::string_view level(spdlog::level::to_string_view(message.level).data(),
                                 spdlog::level::to_string_view(message.level).size());
    const auto milliseconds =
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch());
    nlohmann::ordered_json json{
        {"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                             fmt::gmtime(std::chrono::system_clock::to_time_t(message.time)),
                             milliseconds.count() % 1000)},
        {"level", level},
        {"message", text}};
    for (auto& [key, value] : PairsOf(text)) {
      if (!json.contains(key)) json[key] = std::move(value);
    }
    const std::string dumped = JsonText(json) + "\n";
    line.append(dumped.data(), dumped.data() + dumped.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonLines>();
  }
};

Result<void> CheckTls(const http::TlsFiles& tls) {
  if (tls.certificate.empty() == tls.key.empty() &&
      (!tls.certificate.empty() || tls.client_authority.empty())) {
    return {};
  }
  return Fail("TLS needs both --tls-certificate and --tls-key (--client-ca needs them, too)");
}

Result<void> RunServe(const Streams& streams, const ServeFlags& flags) {
  RaiseLimitOnOpenFiles();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // If a file exceeds a size limit, writing fails instead.
  if (auto fits = CheckTls(flags.tls); !fits) return fits;
  server::ControlPlaneOptions options = flags.options;
  if (!flags.tls.certificate.empty()) options.tls = flags.tls;
  options.limits.body_bytes = static_cast<std::size_t>(flags.body_mib) << 20U;
  options.limits.requests_per_second = flags.address_rate;
  options.caller_limits.bytes_per_second = flags.mebibytes_per_second * (1 << 20);
  if (!flags.identities.empty()) {
    options.read_identities = [file = flags.identities] { return server::ReadIdentityFile(file); };
    PERSEUS_ASSIGN_OR_RETURN(options.identities, options.read_identities());
  }
  spdlog::logger log = MakeLog(streams, flags.log_level);
  if (flags.log_format == "json") log.set_formatter(std::make_unique<JsonLines>());
  // Block the signals before threads start, because threads inherit the blocked signals.
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
      server->Reload();
    }
    server->Stop();
  });
  server->Run();
  waits.join();
  server.reset();  // Releases plannings that run here, for other replicas.
  log.info("ended");
  log.flush();
  return {};
}

// Adds the limits. 0 is no limit.
void AddLimitFlags(CLI::App& verb, ServeFlags& flags) {
  server::CallerLimitOptions& limits = flags.options.caller_limits;
  limits = {.requests_per_second = 100,
            .bytes_per_second = 0,
            .jobs = 10'000,
            .jobs_of_owner = 1'000,
            .streams_of_token = 10'000};
  const FlagAdder add(verb);
  const auto number = NumberIn({0, 1e6});
  const auto count = WholeNumberIn({0, 1e6});
  add("--rate", limits.requests_per_second, "N",
      "Largest number of requests per second of one token, of each node, and of changes of one "
      "job, with bursts of ten times as many; 0: no limit (default: 100)",
      number);
  add("--byte-rate", flags.mebibytes_per_second, "MIB",
      "Largest rate of the bodies of one token or node, in MiB per second; 0: no limit (default: "
      "16)",
      number);
  add("--address-rate", flags.address_rate, "N",
      "Largest number of requests per second from one address, before they are read; a proxy or a "
      "network may have all nodes behind one address (default: no limit)",
      number);
  add("--max-jobs", limits.jobs, "N", "Most jobs that may run; 0: no limit (default: 10000)",
      count);
  add("--max-jobs-of-owner", limits.jobs_of_owner, "N",
      "Most jobs of one owner that may run; 0: no limit (default: 1000)", count);
  add("--max-streams-of-token", limits.streams_of_token, "N",
      "Most event streams of one token; 0: no limit (default: 10000)", count);
}

}  // namespace

Verb AddServeVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<ServeFlags>(program, "serve", kServeAbout, kServeExamples);
  server::ControlPlaneOptions& options = flags->options;
  add("--listen", options.address, "HOST:PORT", "Address to listen on (default: 127.0.0.1:7410)");
  add("--database", options.database, "URL",
      "sqlite:FILE, or postgresql://USER@HOST/NAME (default: PERSEUS_DATABASE, or "
      "sqlite:perseus.db)")
      ->envname("PERSEUS_DATABASE");
  add("--tls-certificate", flags->tls.certificate, "FILE", "Certificate with its chain (PEM)",
      InputFile());
  add("--tls-key", flags->tls.key, "FILE", "Private key (PEM)", InputFile());
  add("--client-ca", flags->tls.client_authority, "FILE",
      "Require client certificates that this authority (PEM) signed", InputFile());
  // --issuers is the name of version 0.1.
  add("--identities,--issuers", flags->identities, "FILE",
      "Accept the people of a proxy, and munge credentials, as this file (TOML) says "
      "(docs/identity.md)",
      InputFile());
  verb->add_flag("--insecure", options.is_insecure,
                 "Allow other machines to connect without TLS and tokens");
  add("--planners", options.planning_threads, "N", "Number of planning threads (default: 2)",
      WholeNumberIn({1, 256}));
  add("--assignment-delay", options.lead_s, "S",
      "Seconds until an assignment has reached every rank (default: 0.5)",
      NumberIn({0, 60, "seconds"}));
  add("--keep-ended", options.keep_ended_days, "DAYS",
      "Days after which ended jobs are deleted; 0: at once (default: 30)",
      NumberIn({0, 36500, "days"}));
  AddLimitFlags(*verb, *flags);
  add("--largest-body", flags->body_mib, "MIB",
      "Largest body of a request in MiB; most routes accept less (default: 64)",
      WholeNumberIn({1, 64}));
  add("--replica", options.replica, "NAME",
      "Unique name of this replica (default: host name and process id)");
  AddLogLevel(add, flags->log_level);
  add("--log-format", flags->log_format, "FORMAT", "text or json (default: text)",
      OneOf({"text", "json"}));
  return {verb, [flags = flags](const Streams& streams) { return RunServe(streams, *flags); }};
}

}  // namespace perseus::cli
