// Describes the state of a job in words, for `perseus job`, `perseus jobs` and
// `perseus nodes`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace perseus::cli {

// Returns the target in the form that `perseus plan` shows, such as "deadline 2.9 s".
std::string TargetText(const nlohmann::ordered_json& target);
// Formats a member of the object, or returns an empty text if it is missing or no number.
std::string NumberText(const nlohmann::ordered_json& json, const char* key, const char* format);
// Formats an answer of GET /v1/jobs/J.
std::string FormatJob(const nlohmann::ordered_json& job);
// Formats the stragglers. Returns an empty text if there are no stragglers.
std::string FormatStragglers(const nlohmann::ordered_json& stragglers);
std::string FormatPastStragglers(const nlohmann::ordered_json& past);

}  // namespace perseus::cli
