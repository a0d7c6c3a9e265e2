// The state of a job in words, for `perseus job`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace perseus::cli {

// An answer of GET /v1/jobs/J.
std::string FormatJob(const nlohmann::ordered_json& job);
// Empty without stragglers.
std::string FormatStragglers(const nlohmann::ordered_json& stragglers);
std::string FormatPastStragglers(const nlohmann::ordered_json& past);
// What changes from one assignment to another one.
std::string FormatDifference(const nlohmann::ordered_json& from, const nlohmann::ordered_json& to);

}  // namespace perseus::cli
