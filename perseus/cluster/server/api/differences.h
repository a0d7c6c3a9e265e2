// Describes the differences between two JSON documents, for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace perseus::server {

// Returns the first few differences: "schedule.pp_ranks 4, here 8; gpu.name none, here \"A100\"".
// Returns an empty text if the documents are equal.
std::string Differences(const nlohmann::json& there, const nlohmann::json& here);

}  // namespace perseus::server
