// Returns a plan that a request needs. Finds the plan in the store, or makes and stores it, which
// takes seconds.
#pragma once

#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/planning/plan/target.h"

namespace perseus::server {

// Returns the plan of the job's newest profile for the target. Making a new plan requires the right
// to change the job. Fails with 422 if no plan meets the target. Fails with 503 if too many
// requests make plans at this moment.
Answer<store::PlanRecord> PlanOnRequest(const Context& context, const plan::Target& target);

}  // namespace perseus::server
