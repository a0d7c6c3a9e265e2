// `perseus gpu` shows the GPUs that the agent of this node manages, and restores them by hand.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "perseus/base/json_text.h"
#include "perseus/cli/flags/node_setup.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/runtime/agent/leftovers.h"
#include "perseus/runtime/protocol/messages/messages.h"
#include "perseus/runtime/protocol/messages/unix_socket.h"

namespace perseus::cli {
namespace {

constexpr const char* kGpuAbout =
    "Show and manage the GPUs of this node through its agent: who holds each GPU, its setting,\n"
    "and the setting that it returns to. # is the number that nvidia-smi or rocm-smi shows.";
constexpr const char* kGpuExamples =
    "  perseus gpu list\n"
    "  perseus gpu release GPU-1f…             # its owner, or root\n"
    "  perseus gpu release 0                   # the same, by its number\n"
    "  perseus gpu grant GPU-1f… --uid 1000    # root: let a user lease it\n"
    "  perseus gpu restore                     # if the agent will not come back";

constexpr std::chrono::seconds kTimeout{10};
constexpr double kMostUid = 4'294'967'294;  // 4,294,967,295 (-1) is not a user id.

struct GpuFlags {
  std::string socket = kAgentSocket;
  std::vector<std::string> gpus;
  bool as_json = false;
  std::optional<std::uint32_t> uid;
  std::optional<std::string> cgroup;
  std::string devices = "auto";
  std::string state = kAgentState;
  double timeout_s = 10;
};

Result<protocol::Reply> Ask(int socket, const protocol::Request& request) {
  PERSEUS_ASSIGN_OR_RETURN(auto answer,
                           protocol::SendRequest(socket, protocol::Format(request), kTimeout));
  auto reply = protocol::ParseReply(answer.text);
  if (!reply) return Fail(reply);
  if (const auto* refused = std::get_if<protocol::Refused>(&*reply)) {
    return FailAs(
        refused->code == protocol::Refusal::kUnavailable ? ErrorKind::kSystem : ErrorKind::kInput,
        "the agent refuses: {}", refused->message);
  }
  return reply;
}

Result<protocol::Listing> AskForList(int socket) {
  PERSEUS_ASSIGN_OR_RETURN(auto reply, Ask(socket, protocol::List{}));
  auto* listing = std::get_if<protocol::Listing>(&reply);
  if (listing == nullptr) {
    return Fail("the agent did not reply with a list of GPUs (is it of this version? restart it)");
  }
  return std::move(*listing);
}

std::string StateOf(const protocol::GpuStatus& gpu) {
  if (gpu.is_restoring) return fmt::format("restoring {}", gpu.before);
  if (gpu.lease.empty()) return gpu.measure_only.empty() ? "free" : "only measured";
  return fmt::format("{} (user {}, process {})", gpu.job, gpu.uid, gpu.pid);
}

std::string FormatTable(const protocol::Listing& listing) {
  // A node without a limit on changes does not need the columns of the limit.
  const bool has_limit = std::ranges::any_of(listing.gpus, [](const protocol::GpuStatus& gpu) {
    return gpu.most_changes_per_s > 0 || gpu.postponed > 0;
  });
  std::vector<std::string> header = {"#",      "GPU",         "held by", "for",
                                     "set to", "before",      "clock",   "slow by",
                                     "power",  "temperature", "switches"};
  if (has_limit) header.insert(header.end(), {"most per s", "postponed"});
  Table table(header);
  std::string notes;
  std::vector<protocol::GpuStatus> gpus = listing.gpus;
  std::ranges::stable_sort(gpus, {}, &protocol::GpuStatus::index);
  for (const protocol::GpuStatus& gpu : gpus) {
    const bool is_held = !gpu.lease.empty();
    std::vector<std::string> row = {
        gpu.index < 0 ? "-" : std::to_string(gpu.index),
        gpu.uuid,
        StateOf(gpu),
        is_held ? fmt::format("{:.0f} s", gpu.held_s) : "-",
        gpu.setting.empty() ? "-" : gpu.setting,
        gpu.before.empty() ? "-" : gpu.before,
        gpu.sm_clock_mhz ? fmt::format("{} MHz", *gpu.sm_clock_mhz) : "-",
        gpu.slow_by.empty() ? "-" : gpu.slow_by,
        gpu.power_w ? fmt::format("{:.0f} W", *gpu.power_w) : "-",
        gpu.temperature_c ? fmt::format("{} C", *gpu.temperature_c) : "-",
        std::to_string(gpu.switches)};
    if (has_limit) {
      row.push_back(gpu.most_changes_per_s > 0 ? fmt::format("{:.4g}", gpu.most_changes_per_s)
                                               : "-");
      row.push_back(std::to_string(gpu.postponed));
    }
    table.AddRow(std::move(row));
    if (!gpu.trouble.empty()) notes += fmt::format("{}: {}\n", gpu.uuid, gpu.trouble);
    if (!gpu.overridden.empty()) notes += fmt::format("{}: {}\n", gpu.uuid, gpu.overridden);
    if (!gpu.measure_only.empty()) notes += fmt::format("{}: {}\n", gpu.uuid, gpu.measure_only);
  }
  if (listing.gpus.empty()) return "no GPUs\n";
  return table.Format() + (notes.empty() ? "" : "\n" + notes);
}

std::string FormatJson(const protocol::Listing& listing) {
  // The list as the agent sends it, without the rest of the message.
  const auto message = nlohmann::ordered_json::parse(protocol::Format(protocol::Reply(listing)));
  const nlohmann::ordered_json object{
      {"format", "perseus-gpus"}, {"version", 1}, {"gpus", message.at("listing").at("gpus")}};
  return JsonText(object, 2) + "\n";
}

Result<void> RunList(const Streams& streams, const GpuFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto socket, protocol::Connect(flags.socket));
  PERSEUS_ASSIGN_OR_RETURN(const auto listing, AskForList(socket.get()));
  return streams.Print(flags.as_json ? FormatJson(listing) : FormatTable(listing));
}

// Returns the UUIDs of GPUs. Each GPU is named by its UUID or by its number in the list.
Result<std::vector<std::string>> UuidsOf(int socket, const std::vector<std::string>& names) {
  std::vector<std::string> uuids = names;
  std::optional<protocol::Listing> listing;
  for (std::string& name : uuids) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!listing) {
      PERSEUS_ASSIGN_OR_RETURN(listing, AskForList(socket));
    }
    const auto gpu = std::ranges::find_if(listing->gpus, [&](const protocol::GpuStatus& one) {
      return std::to_string(one.index) == name;
    });
    if (gpu == listing->gpus.end()) {
      return Fail("this node has no GPU with the number {} (perseus gpu list shows them)", name);
    }
    name = gpu->uuid;
  }
  return uuids;
}

// Sends one request for each GPU. Tries all GPUs, and returns the first failure.
Result<void> RunRelease(const GpuFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto socket, protocol::Connect(flags.socket));
  PERSEUS_ASSIGN_OR_RETURN(const auto gpus, UuidsOf(socket.get(), flags.gpus));
  Result<void> result;
  for (const std::string& gpu : gpus) {
    const auto reply = Ask(socket.get(), protocol::ReleaseGpu{gpu});
    if (!reply && result) result = Fail(reply);
  }
  return result;
}

enum class GrantChange { kGrant, kRevoke };

Result<void> RunGrant(const GpuFlags& flags, GrantChange change) {
  if (flags.uid.has_value() == flags.cgroup.has_value()) {
    return Fail("a grant is for a user or a cgroup (add either --uid N or --cgroup PATH)");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto socket, protocol::Connect(flags.socket));
  PERSEUS_ASSIGN_OR_RETURN(auto gpus, UuidsOf(socket.get(), flags.gpus));
  const protocol::Grant grant{std::move(gpus), flags.uid, flags.cgroup};
  PERSEUS_RETURN_IF_ERROR(Ask(socket.get(), change == GrantChange::kGrant
                                                ? protocol::Request(grant)
                                                : protocol::Request(protocol::Revoke{grant})));
  return {};
}

Result<void> RunRestore(const Streams& streams, const GpuFlags& flags) {
  spdlog::logger log = MakeLog(streams, "info");
  constexpr std::chrono::milliseconds kAnswerTime{5'000};
  PERSEUS_ASSIGN_OR_RETURN(const auto unresponsive,
                           agent::FindUnresponsiveAgent(flags.state, flags.socket, kAnswerTime));
  if (!std::filesystem::exists(flags.state)) {
    return Fail("{} does not exist, so there is nothing to restore (give the --state of the agent)",
                flags.state);
  }
  PERSEUS_ASSIGN_OR_RETURN(auto setup, SetUpGpus(flags.devices, flags.state, {}, log));
  // The unresponsive agent is ended only now, because from here on the GPUs can be restored.
  if (unresponsive) {
    PERSEUS_RETURN_IF_ERROR(agent::EndUnresponsiveAgent(flags.state, *unresponsive, log));
  }
  const std::chrono::milliseconds timeout(
      static_cast<int>(flags.timeout_s * kMillisecondsPerSecond));
  PERSEUS_ASSIGN_OR_RETURN(auto given_back,
                           agent::GiveBackLeftovers(std::move(setup), timeout, log));
  return streams.Print(given_back == 0 ? "all GPUs had their default clocks\n"
                                       : fmt::format("{} GPUs restored\n", given_back));
}

CLI::App* AddPart(CLI::App& verb, GpuFlags& flags, const char* name, const char* about) {
  CLI::App* part = verb.add_subcommand(name, about);
  FlagAdder{*part}("--socket", flags.socket, "FILE",
                   fmt::format("The agent's socket (default: {})", kAgentSocket));
  return part;
}

void AddGpus(CLI::App& part, GpuFlags& flags) {
  FlagAdder{part}("gpus", flags.gpus, "GPU", "UUIDs or numbers, as perseus gpu list shows them")
      ->required();
}

void AddGrantee(CLI::App& part, GpuFlags& flags) {
  AddGpus(part, flags);
  const FlagAdder add(part);
  add("--uid", flags.uid, "N", "The number of a user", WholeNumberIn({0, kMostUid}));
  add("--cgroup", flags.cgroup, "PATH",
      "A cgroup, with all cgroups below it, such as /slurm/job_17");
}

}  // namespace

Verb AddGpuVerb(CLI::App& program) {
  auto flags = std::make_shared<GpuFlags>();
  CLI::App* verb = AddVerb(program, "gpu", kGpuAbout, kGpuExamples).verb;
  verb->require_subcommand(1);

  CLI::App* list = AddPart(*verb, *flags, "list", "Show who holds which GPU, and its setting");
  list->add_flag("--json", flags->as_json, "Print JSON instead of a table");
  CLI::App* release = AddPart(*verb, *flags, "release", "End the lease of GPUs and restore them");
  AddGpus(*release, *flags);
  CLI::App* grant = AddPart(*verb, *flags, "grant", "Let a user or a cgroup lease GPUs (root)");
  AddGrantee(*grant, *flags);
  CLI::App* revoke = AddPart(*verb, *flags, "revoke", "Withdraw a grant (root)");
  AddGrantee(*revoke, *flags);
  CLI::App* restore =
      AddPart(*verb, *flags, "restore", "Restore the GPUs of an agent that was killed (root)");
  const FlagAdder add(*restore);
  add("--devices", flags->devices, "WHICH", "The same as for perseus agent");
  add("--state", flags->state, "FILE", "The agent's state");
  add("--timeout", flags->timeout_s, "SECONDS", "How long to try (default: 10)",
      NumberIn({0, 3600, "in seconds"}));

  return {verb, [=](const Streams& streams) -> Result<void> {
            if (list->parsed()) return RunList(streams, *flags);
            if (release->parsed()) return RunRelease(*flags);
            if (grant->parsed()) return RunGrant(*flags, GrantChange::kGrant);
            if (revoke->parsed()) return RunGrant(*flags, GrantChange::kRevoke);
            return RunRestore(streams, *flags);
          }};
}

}  // namespace perseus::cli
