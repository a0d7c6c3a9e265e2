#include "perseus/cluster/job_planning/first_step.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "perseus/base/json_text.h"
#include "perseus/base/units.h"

namespace perseus::job_planning {
namespace {

// The least time of an iteration. Nodes may report impossible step times.
constexpr double kLeastIterationSeconds = 1e-6;

}  // namespace

std::int64_t FirstStep(const store::JobRecord& job, double iteration_s, Milliseconds now,
                       double lead_s) {
  if (job.last_step < 0) return 0;
  iteration_s = std::max(iteration_s, kLeastIterationSeconds);
  const double since_s = ToSeconds(std::max<Milliseconds>(0, now - job.last_step_at));
  // A job that reported nothing for 10 iterations has probably stopped.
  const double ahead = std::ceil((std::min(since_s, 10 * iteration_s) + lead_s) / iteration_s);
  return job.last_step + static_cast<std::int64_t>(ahead) + 1;
}

std::int64_t FirstStep(const store::JobRecord& job, const store::PlannedAssignment& assignment,
                       const std::optional<store::AssignmentRecord>& in_force, Milliseconds now,
                       double lead_s) {
  double iteration_s = assignment.time_s;
  if (in_force) iteration_s = std::min(iteration_s, in_force->assignment.time_s);
  const auto summary = ParseJson(job.summary);
  if (summary.is_object())
    iteration_s = std::min(iteration_s, summary.value("step_s", iteration_s));
  return FirstStep(job, iteration_s, now, lead_s);
}

}  // namespace perseus::job_planning
