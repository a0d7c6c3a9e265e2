// The jobs of a server as a table, for `perseus jobs` and `perseus top`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/flags/server_flags.h"

namespace perseus::cli {

// The target as `perseus plan` shows it, such as "deadline 2.9 s".
std::string TargetText(const nlohmann::ordered_json& target);

// Reads all pages of GET /v1/jobs.
Result<nlohmann::ordered_json> FetchJobs(ServerClient& server, bool ended_too);

// Which jobs to show, in which order and with which columns.
struct JobsView {
  std::string filter;                // Only jobs whose key contains this text.
  std::string status;                // Only jobs with this status: "planned", "failed", …
  std::string sort;                  // Name of a column; "-NAME" sorts downwards. Empty: by age.
  std::vector<std::string> columns;  // Names. Empty: the usual ones.
  int limit = 0;                     // Rows of a page. 0: all.
  int page = 1;
};
void AddJobsViewFlags(CLI::App& verb, JobsView& view);
// kInput for an unknown column.
Result<void> CheckJobsView(const JobsView& view);
// The jobs of the view's page.
nlohmann::ordered_json SelectJobs(const nlohmann::ordered_json& jobs, const JobsView& view);
std::string FormatJobs(const nlohmann::ordered_json& jobs, const JobsView& view);

}  // namespace perseus::cli
