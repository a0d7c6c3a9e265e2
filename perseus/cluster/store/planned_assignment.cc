#include "perseus/cluster/store/planned_assignment.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"

namespace perseus::store {

using nlohmann::ordered_json;

ordered_json JsonOf(const PlannedAssignment& assignment) {
  auto pipelines = ordered_json::array();
  for (const PlannedAssignment::Share& share : assignment.pipelines) {
    pipelines.push_back(
        {{"plan", share.plan}, {"time_s", share.time_s}, {"energy_j", share.energy_j}});
  }
  return {{"from_step", assignment.from_step},
          {"target", assignment.target},
          {"reason", assignment.reason},
          {"pipelines", std::move(pipelines)},
          {"upcoming", assignment.upcoming},
          {"time_s", assignment.time_s},
          {"tail_s", assignment.tail_s},
          {"baseline",
           {{"time_s", assignment.baseline_time_s}, {"energy_j", assignment.baseline_energy_j}}}};
}

Result<PlannedAssignment> ParsePlannedAssignment(std::string_view text) {
  const auto json = ParseJson(text);
  try {
    PlannedAssignment assignment;
    assignment.from_step = json.at("from_step");
    assignment.target = json.at("target");
    assignment.reason = json.at("reason");
    for (const auto& share : json.at("pipelines")) {
      assignment.pipelines.push_back({share.at("plan"), share.at("time_s"), share.at("energy_j")});
    }
    assignment.upcoming = json.at("upcoming").get<std::vector<std::string>>();
    assignment.time_s = json.at("time_s");
    assignment.tail_s = json.at("tail_s");
    assignment.baseline_time_s = json.at("baseline").at("time_s");
    assignment.baseline_energy_j = json.at("baseline").at("energy_j");
    return assignment;
  } catch (const nlohmann::json::exception& error) {
    return FailAs(ErrorKind::kSystem, "an assignment in the database cannot be read: {}",
                  error.what());
  }
}

bool PlannedAssignment::IsSameExceptFirstStep(const PlannedAssignment& other) const {
  PlannedAssignment same_step = other;
  same_step.from_step = from_step;
  return *this == same_step;
}

}  // namespace perseus::store
