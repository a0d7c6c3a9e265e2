// `perseus nodes` lists the nodes of a server.
#include <fmt/core.h>

#include "perseus/base/json_text.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/flags/server_flags.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/job_text.h"
#include "perseus/cli/verbs/verbs.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kAboutNodes =
    "List the nodes of a perseus server, with one row for each job on a node: how many of its "
    "ranks run, how many have no lease of their GPU (perseus agent), and when they last ended a "
    "step.";
constexpr const char* kNodesExamples =
    "  perseus nodes\n"
    "  perseus nodes --json | jq -r '.[] | select(.connected | not).node'";

struct NodesFlags {
  ServerFlags server;
  bool as_json = false;
};

std::string FormatAllNodes(const ordered_json& nodes) {
  if (nodes.empty()) return "no nodes (run perseus node on each node)\n";
  Table table({"node", "perseus node", "job", "ranks", "run", "no lease", "state", "last step",
               "last report"});
  for (const ordered_json& node : nodes) {
    const std::string name = node.at("node");
    const char* connected = node.at("connected").get<bool>() ? "connected" : "not connected";
    if (node.at("jobs").empty()) table.AddRow({name, connected, "", "", "", "", "", "", ""});
    for (const ordered_json& job : node.at("jobs")) {
      table.AddRow({name, connected, job.at("key"), NumberText(job, "ranks", "{:.0f}"),
                    NumberText(job, "running", "{:.0f}"),
                    NumberText(job, "without_lease", "{:.0f}"), job.at("state"),
                    NumberText(job, "last_step_s_ago", "{:.1f} s ago"),
                    NumberText(job, "seen_s_ago", "{:.1f} s ago")});
    }
  }
  return table.Format();
}

Result<void> RunNodes(const Streams& streams, ServerClient& server, const NodesFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto nodes, server.GetAll("/v1/nodes", "nodes"));
  return streams.Print(flags.as_json ? JsonText(nodes, 2) + "\n" : FormatAllNodes(nodes));
}

}  // namespace

Verb AddNodesVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<NodesFlags>(program, "nodes", kAboutNodes, kNodesExamples);
  verb->add_flag("--json", flags->as_json, "Print JSON, for scripts (docs/server.md, \"JSON\")");
  AddServerFlags(*verb, flags->server, "read");
  return {verb, [flags = flags](const Streams& streams) {
            return WithServer(flags->server, [&](ServerClient& server) {
              return RunNodes(streams, server, *flags);
            });
          }};
}

}  // namespace perseus::cli
