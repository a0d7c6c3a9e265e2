#include "perseus/cli/jobs_table.h"

#include <fmt/format.h>

#include "perseus/cli/table.h"
#include "perseus/cluster/job_planning/job_spec.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

std::string Number(const ordered_json& json, const char* key, const char* format) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return "";
  return fmt::format(fmt::runtime(format), found->get<double>());
}

std::string StatusText(const ordered_json& job) {
  const std::string status = job.at("status");
  const int lost = job.value("lost_nodes", 0);
  if (lost == 0) return status;
  return fmt::format("{}, {} node{} lost", status, lost, lost == 1 ? "" : "s");
}

// The energy of a step of all pipelines. Empty if the energy of any pipeline is unknown.
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

}  // namespace

std::string TargetText(const ordered_json& target) {
  const auto known = job_planning::ParseTarget(target.dump(), 1);
  // A newer server may have other targets.
  return known ? Describe(*known) : target.at("kind").get<std::string>();
}

Result<ordered_json> FetchJobs(ServerClient& server, bool ended_too) {
  auto jobs = ordered_json::array();
  std::string after;
  do {
    auto page = server.Get(fmt::format("/v1/jobs?limit=500{}{}", ended_too ? "&all=1" : "",
                                       after.empty() ? "" : "&after=" + after));
    if (!page) return page;
    for (auto& job : page->at("jobs")) jobs.push_back(std::move(job));
    after = page->value("next", "");
  } while (!after.empty());
  return jobs;
}

std::string FormatJobs(const ordered_json& jobs) {
  Table table({"job", "status", "dp x pp x tp", "target", "step", "step (s)", "energy (J)",
               "planned saving"});
  for (const ordered_json& job : jobs) {
    const auto measured = job.find("measured");
    table.AddRow(
        {job.at("key"), StatusText(job),
         fmt::format("{} x {} x {}", job.at("pipelines").get<int>(), job.at("pp_ranks").get<int>(),
                     job.at("tensor_parallel").get<int>()),
         TargetText(job.at("target")),
         job.at("last_step").get<std::int64_t>() < 0 ? "" : Number(job, "last_step", "{:.0f}"),
         measured == job.end() ? "" : Number(*measured, "step_s", "{:.4g}"), MeasuredEnergy(job),
         Number(job, "saving_percent", "{:.2f} %")});
  }
  return jobs.empty() ? "no jobs\n" : table.Format();
}

}  // namespace perseus::cli
