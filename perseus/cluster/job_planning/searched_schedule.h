// A registration that asks the server for a schedule: "schedule": {"kind": "auto", ...}
// (docs/server.md, "Jobs"). The job is registered with what the search finds, as a CSV. So it is a
// job like any other, and its schedule does not change in flight. A search gives the same schedule
// each time, so the same request is the same registration.
//
// Alternative that lost: a job without a schedule until its profile comes. Ranks, plans, targets
// and messages of every other request would have to know such a job.
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <vector>

#include "perseus/base/json_file.h"
#include "perseus/base/result.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/schedule.h"
#include "perseus/planning/schedule_search/search.h"

namespace perseus::job_planning {

struct ScheduleQuestion {
  JobSpec spec;  // Its schedule is a stand-in of the same size.
  profile::Profile profile;
  int microbatches = 0;
  // Microbatches that a pp_rank may hold: one number for all, or one for each. Empty: the memory of
  // 1F1B.
  std::vector<int> max_in_flight;
  schedule_search::Placement placement = schedule_search::Placement::kLoop;

  // About how many instructions the schedule will have.
  std::size_t instructions() const;
};

// Whether the schedule of a registration is an object of the kind "auto".
bool AsksForSchedule(const nlohmann::json& registration);
// Throws json_file::Failure, as ReadJobSpec does.
ScheduleQuestion ReadScheduleQuestion(const json_file::Node& registration);

// Takes seconds. Fails as FindAutoSchedule does, with kSystem once `stop` is requested.
Result<schedule::Schedule> FindSchedule(const ScheduleQuestion& question,
                                        const std::stop_token& stop);

}  // namespace perseus::job_planning
