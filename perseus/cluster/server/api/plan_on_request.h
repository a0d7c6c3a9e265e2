// What a request needs that takes seconds: a plan, found in the store, or made and stored; a
// comparison of schedules; and a schedule that is searched for.
#pragma once

#include <string>

#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/planning/plan/target.h"

namespace perseus::server {

// The plan of the job's newest profile for the target. To make a new one requires the right to
// change the job. 422 if no plan meets the target, 503 if too many requests plan at this moment.
Answer<store::PlanRecord> PlanOnRequest(const Context& context, const plan::Target& target);

// What another schedule would save in a next run (job_planning/other_schedules.h). Takes seconds.
// 503 as above, and 422 for a job with too many instructions.
Answer<std::string> SchedulesOnRequest(const Context& context);

// A registration with the schedule that it asks for, if it asks for one
// (job_planning/searched_schedule.h); otherwise as it is. Takes seconds. Fails as above.
Answer<std::string> WithSchedule(const Context& context, const std::string& registration);

}  // namespace perseus::server
