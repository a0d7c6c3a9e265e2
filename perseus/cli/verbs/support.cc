// `perseus support` writes one JSON file with what somebody needs to understand a problem.
//
// The file is for another person, so it has to be safe to send. Nothing in it comes from a token
// file, a key or the environment. What the node and the server say is searched for secrets that
// people put into free text (a reason, a job's fields), and these are removed.
//
// A part that cannot be read becomes {"error": …}: a problem with one part is often the reason for
// the file, and must not keep the others out of it.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <regex>
#include <utility>

#include "perseus/base/environment.h"
#include "perseus/base/file.h"
#include "perseus/cli/flags/server_flags.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/cli/verbs/direct_measurement.h"
#include "perseus/cli/verbs/jobs_table.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/cli/verbs/version.h"
#include "perseus/runtime/agent/doctor.h"
#include "perseus/runtime/device/open_devices.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kSupportAbout =
    "Write a JSON file that describes a problem's surroundings: the version, this node (as perseus "
    "doctor), and, with --server or PERSEUS_SERVER, a server's jobs, metrics and newest audit "
    "records. Changes nothing. The file has no tokens, keys or passwords, but it names jobs, nodes "
    "and people: read it before you send it.";
constexpr const char* kSupportExamples =
    "Examples:\n"
    "  perseus support -o support.json\n"
    "  perseus support -o support.json --server https://perseus:7410 \\\n"
    "      --token-file operator.token";
// More jobs only repeat the same.
constexpr std::size_t kMostJobs = 50;
constexpr int kAuditRecords = 200;
constexpr int kAssignments = 5;

struct SupportFlags {
  DirectFlags direct;
  ServerFlags server;
  bool leaves_out_node = false;
  std::string output = "support.json";
};

template <typename T>
ordered_json Part(const Result<T>& read) {
  if (!read) return {{"error", read.error().message}};
  return *read;
}

std::string WithoutSecrets(const std::string& text) {
  // The user and the password of a URL, the tokens of a server, and signed tokens (JWT).
  static const std::regex secrets(
      R"((://)[^/@\s"]+@|\bperseus_[0-9a-f]{16,}|\beyJ[\w-]+\.[\w-]+\.[\w-]*)");
  return std::regex_replace(text, secrets, "$1(removed)");
}

bool NamesASecret(const std::string& key) {
  static const std::regex names("token|password|passwd|secret|credential", std::regex::icase);
  return std::regex_search(key, names);
}

void RemoveSecrets(ordered_json& value) {
  if (value.is_string()) {
    value = WithoutSecrets(value.get_ref<const std::string&>());
  } else if (value.is_array()) {
    for (ordered_json& item : value) RemoveSecrets(item);
  } else if (value.is_object()) {
    for (auto& [key, item] : value.items()) {
      if (item.is_string() && NamesASecret(key)) {
        item = "(removed)";
      } else {
        RemoveSecrets(item);
      }
    }
  }
}

ordered_json DescribeNode(const SupportFlags& flags) {
  utsname system{};
  ::uname(&system);
  std::vector<agent::Finding> findings = ExamineNode(flags.direct);
  std::ranges::move(agent::ExamineDevices(
                        device::OpenDevices(flags.direct.devices, virtual_gpu::OpenVirtualNode)),
                    std::back_inserter(findings));
  return {{"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"findings", FindingsAsJson(findings)}};
}

ordered_json DescribeJob(ServerClient& server, const std::string& id) {
  const std::string job = "/v1/jobs/" + http::PercentEncoded(id);
  return {
      {"job", Part(server.Get(job))},
      {"assignments", Part(server.Get(fmt::format("{}/assignments?limit={}", job, kAssignments)))}};
}

Result<void> DescribeServer(const SupportFlags& flags, ordered_json& described) {
  PERSEUS_ASSIGN_OR_RETURN(auto server, ServerClient::Connect(flags.server));
  described["ready"] = Part(server.GetText("/readyz"));
  described["metrics"] = Part(server.GetText("/metrics"));
  const auto jobs = FetchJobs(server, /*ended_too=*/false);
  described["jobs"] = Part(jobs);
  if (jobs) {
    ordered_json& details = described["details_of_jobs"] = ordered_json::array();
    for (const ordered_json& job : *jobs) {
      if (details.size() == kMostJobs) break;
      details.push_back(DescribeJob(server, job.at("id")));
    }
  }
  described["audit"] =
      Part(server.Get(fmt::format("/v1/audit?order=newest&limit={}", kAuditRecords)));
  return {};
}

// As far as the server can be read. "error" says what is missing.
ordered_json DescribeServer(const SupportFlags& flags) {
  ordered_json described = ordered_json::object();
  const auto read = ReadingAnswers([&] { return DescribeServer(flags, described); });
  if (!read) described["error"] = read.error().message;
  return described;
}

Result<void> WriteSupport(const Streams& streams, const SupportFlags& flags) {
  const bool has_server = !flags.server.server.empty() || !EnvironmentOr("PERSEUS_SERVER").empty();
  if (flags.leaves_out_node && !has_server) {
    return Fail("--no-node without a server leaves nothing to describe (add --server URL)");
  }
  const auto now =
      std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  ordered_json support{{"format", "perseus-support"},
                       {"version", 1},
                       {"made_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", now)},
                       {"program", VersionText()}};
  if (!flags.leaves_out_node) support["node"] = DescribeNode(flags);
  if (has_server) support["server"] = DescribeServer(flags);
  RemoveSecrets(support);
  PERSEUS_RETURN_IF_ERROR(WriteFileAtomically(flags.output, support.dump(2) + "\n"));
  return streams.Print(fmt::format("{} describes {}. Read it before you send it.\n", flags.output,
                                   !has_server             ? "this node"
                                   : flags.leaves_out_node ? "the server"
                                                           : "this node and the server"));
}

}  // namespace

Verb AddSupportVerb(CLI::App& program) {
  auto flags = std::make_shared<SupportFlags>();
  CLI::App* verb = program.add_subcommand("support", kSupportAbout);
  verb->footer(kSupportExamples);
  verb->add_option("-o,--output", flags->output, "The file to write (default: support.json)")
      ->type_name("FILE.json");
  verb->add_flag("--no-node", flags->leaves_out_node, "Describe only the server");
  AddDirectFlags(*verb, flags->direct);
  AddServerFlags(*verb, flags->server, "operator");
  return {verb, [flags](const Streams& streams) { return WriteSupport(streams, *flags); }};
}

}  // namespace perseus::cli
