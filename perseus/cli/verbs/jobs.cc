// `perseus jobs` lists the jobs of a server.
#include <fmt/core.h>

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
    "List the jobs of a perseus server. `step time` and `energy` are measured means of the last "
    "steps. `planned saving` is the saving of the plans in force. A job without fresh steps has "
    "neither.";
constexpr const char* kJobsExamples =
    "  perseus jobs\n"
    "  watch perseus jobs                       # until Ctrl-C\n"
    "  perseus jobs --json | jq '.[] | select(.status == \"failed\").key'";

struct JobsFlags {
  ServerFlags server;
  bool all = false;
  bool as_json = false;
};

std::string StatusText(const ordered_json& job) {
  const std::string status = job.at("status");
  const int lost = job.value("lost_nodes", 0);
  if (lost == 0) return status;
  return fmt::format("{}, {} lost", status, Counted(lost, "node"));
}

// "4 run", "ended", or "stopped, 3 of 4 run, 1 without a lease". Empty without ranks, and from an
// older server.
std::string TrainingText(const ordered_json& job) {
  const auto training = job.find("training");
  if (training == job.end() || training->at("state") == "idle") return "";
  const std::string state = training->at("state");
  const int ranks = training->at("ranks");
  const int running = training->at("running");
  const int without_lease = training->at("without_lease");
  if (state == "ended") return state;
  std::string text = state == "runs" ? "" : state + ", ";
  text +=
      running == ranks ? fmt::format("{} run", ranks) : fmt::format("{} of {} run", running, ranks);
  if (without_lease > 0) text += fmt::format(", {} without a lease", without_lease);
  return text;
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
  return energy_j == 0 ? "" : FormatQuantity(energy_j, "J");
}

std::string FormatJobs(const ordered_json& jobs) {
  if (jobs.empty()) return "no jobs\n";
  Table table({"job", "status", "dp x pp x tp", "target", "ranks", "step", "last step", "step time",
               "energy", "planned saving"});
  for (const ordered_json& job : jobs) {
    table.AddRow(
        {job.at("key"), StatusText(job),
         fmt::format("{} x {} x {}", job.at("pipelines").get<int>(), job.at("pp_ranks").get<int>(),
                     job.at("tensor_parallel").get<int>()),
         TargetText(job.at("target")), TrainingText(job),
         job.at("last_step").get<std::int64_t>() < 0 ? "" : NumberText(job, "last_step", "{:.0f}"),
         NumberText(job.value("training", ordered_json::object()), "last_step_s_ago",
                    "{:.0f} s ago"),
         NumberText(job.value("measured", ordered_json::object()), "step_s", "{:.4g} s"),
         MeasuredEnergy(job),
         job.contains("saving_percent") ? FormatPercent(job["saving_percent"].get<double>() / 100)
                                        : ""});
  }
  return table.Format();
}

Result<void> RunJobs(const Streams& streams, ServerClient& server, const JobsFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto jobs,
                           server.GetAll("/v1/jobs", "jobs", flags.all ? "&all=1" : ""));
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
