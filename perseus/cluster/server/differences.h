// In what two JSON documents differ, for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace perseus::server {

// "schedule.stages 4, here 8; gpu.name none, here \"A100\"". The first few of many; empty if there
// are none.
std::string Differences(const nlohmann::json& there, const nlohmann::json& here);

}  // namespace perseus::server
