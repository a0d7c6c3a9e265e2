#include "perseus/cluster/job_planning/planned_assignment.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/units.h"

namespace perseus::job_planning {
namespace {

using nlohmann::ordered_json;

// Nodes may report impossible step times. No iteration is shorter than this.
constexpr double kLeastIterationSeconds = 1e-6;

}  // namespace

std::string FormatPlannedAssignment(const PlannedAssignment& assignment) {
  auto pipelines = ordered_json::array();
  for (const PlannedAssignment::Share& share : assignment.pipelines) {
    pipelines.push_back(
        {{"plan", share.plan}, {"time_s", share.time_s}, {"energy_j", share.energy_j}});
  }
  ordered_json json{
      {"from_step", assignment.from_step},
      {"target", assignment.target},
      {"reason", assignment.reason},
      {"pipelines", std::move(pipelines)},
      {"upcoming", assignment.upcoming},
      {"time_s", assignment.time_s},
      {"tail_s", assignment.tail_s},
      {"baseline",
       {{"time_s", assignment.baseline_time_s}, {"energy_j", assignment.baseline_energy_j}}}};
  return JsonText(json);
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

std::int64_t FirstStep(const store::JobRecord& job, double iteration_s, store::Milliseconds now,
                       double lead_s) {
  if (job.last_step < 0) return 0;
  iteration_s = std::max(iteration_s, kLeastIterationSeconds);
  const double since_s =
      static_cast<double>(std::max<store::Milliseconds>(0, now - job.last_step_at)) /
      kMillisecondsPerSecond;
  // A job that reported nothing for 10 iterations probably stands still.
  const double ahead = std::ceil((std::min(since_s, 10 * iteration_s) + lead_s) / iteration_s);
  return job.last_step + static_cast<std::int64_t>(ahead) + 1;
}

std::string WithFirstStep(const PlannedAssignment& assignment, const store::JobRecord& job,
                          const std::optional<PlannedAssignment>& in_force, store::Milliseconds now,
                          double lead_s) {
  double iteration_s = assignment.time_s;
  if (in_force) iteration_s = std::min(iteration_s, in_force->time_s);
  const auto summary = ParseJson(job.summary);
  if (summary.is_object())
    iteration_s = std::min(iteration_s, summary.value("step_s", iteration_s));
  PlannedAssignment with_step = assignment;
  with_step.from_step = FirstStep(job, iteration_s, now, lead_s);
  return FormatPlannedAssignment(with_step);
}

}  // namespace perseus::job_planning
