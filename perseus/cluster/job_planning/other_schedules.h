// What another schedule would save in a next run of a job. The job keeps its own: schedules do not
// change in flight.
#pragma once

#include <stop_token>
#include <string>

#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"

namespace perseus::job_planning {

// The response of GET …/schedules: the schedule that the job runs, and the best ones with 0, 1 and
// 2 more microbatches in flight than 1F1B. All plans are as fast as 1F1B at maximum frequency.
// Takes seconds. Fails as FindReference does; with kInput if the profile lacks instructions of the
// job's schedule; and with kSystem once `stop` is requested.
Result<std::string> CompareSchedules(const store::JobRecord& job,
                                     const store::ProfileRecord& profile,
                                     const std::stop_token& stop);

}  // namespace perseus::job_planning
