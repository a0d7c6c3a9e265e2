// The jobs of a server as a table, for `perseus jobs` and `perseus top`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "perseus/base/result.h"
#include "perseus/cli/server_flags.h"

namespace perseus::cli {

// The target as `perseus plan` shows it, such as "deadline 2.9 s".
std::string TargetText(const nlohmann::ordered_json& target);

// Reads all pages of GET /v1/jobs.
Result<nlohmann::ordered_json> FetchJobs(ServerClient& server, bool ended_too);
std::string FormatJobs(const nlohmann::ordered_json& jobs);

}  // namespace perseus::cli
