// `perseus jobs` lists the jobs of a server.
#include <fmt/core.h>

#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/flags/server_flags.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/job_text.h"
#include "perseus/cli/verbs/verbs.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kAboutJobs =
    "List the jobs of a perseus server. `step (s)` and `energy (J)` are measured means of the last "
    "steps. `planned saving` is the saving of the plans in force.";
constexpr const char* kJobsExamples =
    "  perseus jobs\n"
    "  watch perseus jobs                       # until Ctrl-C\n"
    "  perseus jobs --json | jq '.[] | select(.status == \"failed\").key'";

struct JobsFlags {
  ServerFlags server;
  bool all = false;
  bool as_json = false;
};

// Reads all pages of GET /v1/jobs.
Result<ordered_json> FetchJobs(ServerClient& server, bool ended_too) {
  auto jobs = ordered_json::array();
  std::string after;
  do {
    auto page = server.Get(fmt::format("/v1/jobs?limit=500{}{}", ended_too ? "&all=1" : "",
                                       after.empty() ? "" : "&after=" + after));
    if (!page) return page;
    for (auto& job : page->at("jobs")) jobs.push_back(std::move(job));
    std::string next = page->value("next", "");
    // A Perseus server never sends the same page again. Without this check, the loop would not end
    // if another program did.
    if (next == after && !next.empty()) {
      return FailAs(ErrorKind::kSystem,
                    "the server's list of jobs does not end: it sends the page after {} again "
                    "(upgrade the server)",
                    Excerpt(next));
    }
    after = std::move(next);
  } while (!after.empty());
  return jobs;
}

std::string Number(const ordered_json& json, const char* key, const char* format) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return "";
  return fmt::format(fmt::runtime(format), found->get<double>());
}

std::string StatusText(const ordered_json& job) {
  const std::string status = job.at("status");
  const int lost = job.value("lost_nodes", 0);
  if (lost == 0) return status;
  return fmt::format("{}, {} lost", status, Counted(lost, "node"));
}

// Returns the energy of a step of all pipelines. Returns an empty text if the energy of any
// pipeline is unknown.
std::string MeasuredEnergy(const ordered_json& job) {
  const auto measured = job.find("measured");
  if (measured == job.end()) return "";
  double energy_j = 0;
  for (const auto& [pipeline, of_pipeline] : measured->at("pipelines").items()) {
    if (!of_pipeline.contains("energy_j")) return "";
    energy_j += of_pipeline["energy_j"].get<double>();
  }
  return energy_j == 0 ? "" : FormatQuantity(energy_j);
}

std::string FormatJobs(const ordered_json& jobs) {
  if (jobs.empty()) return "no jobs\n";
  Table table({"job", "status", "dp x pp x tp", "target", "step", "step (s)", "energy (J)",
               "planned saving"});
  for (const ordered_json& job : jobs) {
    table.AddRow(
        {job.at("key"), StatusText(job),
         fmt::format("{} x {} x {}", job.at("pipelines").get<int>(), job.at("pp_ranks").get<int>(),
                     job.at("tensor_parallel").get<int>()),
         TargetText(job.at("target")),
         job.at("last_step").get<std::int64_t>() < 0 ? "" : Number(job, "last_step", "{:.0f}"),
         Number(job.value("measured", ordered_json::object()), "step_s", "{:.4g}"),
         MeasuredEnergy(job), Number(job, "saving_percent", "{:.2f} %")});
  }
  return table.Format();
}

Result<void> RunJobs(const Streams& streams, ServerClient& server, const JobsFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto jobs, FetchJobs(server, flags.all));
  return streams.Print(flags.as_json ? JsonText(jobs, 2) + "\n" : FormatJobs(jobs));
}

}  // namespace

Verb AddJobsVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<JobsFlags>(program, "jobs", kAboutJobs, kJobsExamples);
  verb->add_flag("--all", flags->all, "Include jobs that have ended");
  verb->add_flag("--json", flags->as_json, "Print JSON, for scripts (docs/server.md, \"JSON\")");
  AddServerFlags(*verb, flags->server, "read");
  return {verb, [flags = flags](const Streams& streams) {
            return WithServer(flags->server, [&](ServerClient& server) {
              return RunJobs(streams, server, *flags);
            });
          }};
}

}  // namespace perseus::cli
