// A plan that a request needs: found in the store, or made and stored, which takes seconds.
#pragma once

#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/planning/plan/target.h"

namespace perseus::server {

// The plan of the job's newest profile for the target. To make a new one requires the right to
// change the job. 422 if no plan meets the target, 503 if too many requests plan at this moment.
Answer<store::PlanRecord> PlanOnRequest(const Context& context, const plan::Target& target);

}  // namespace perseus::server
