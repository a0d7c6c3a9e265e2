// What another schedule would save in a job of a server.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace perseus::cli {

// A table with the schedule that the job runs and others, and a conclusion. `answer` is that of GET
// /v1/jobs/J/schedules.
std::string FormatSchedules(const nlohmann::ordered_json& answer);

}  // namespace perseus::cli
