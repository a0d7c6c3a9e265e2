// The planning of one job: makes the frontier, plans and assignment from the state of the job.
//
// The result depends only on the input. If a worker dies, another worker gets the same result.
//
// The search for plans has a bounded effort, because nodes wait for it. Jobs of more than 400
// instructions get a short search, the first look of choice_search.h. For 8 x 96 microbatches, a
// first look takes 40 ms. Its plan needs up to 0.1 % more energy than the plan of the usual search,
// which takes 0.3 s.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/store/store.h"
#include "perseus/planning/noise/noisy_execution.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::job_planning {

struct PlanningInput {
  store::JobRecord job;
  std::optional<store::ProfileRecord> profile;
  std::vector<store::StragglerRecord> stragglers;
  std::optional<store::AssignmentRecord> assignment;  // The newest assignment.
  std::optional<store::GuardRecord> guard = {};       // The guard for this profile and target.
  bool has_frontier = false;  // Whether the store has the frontier of `profile`.
  Milliseconds now = 0;
  // Finds the newest plan of the newest profile with this slug.
  std::function<Result<std::optional<store::PlanRecord>>(std::string_view slug)> find_plan;
  std::function<std::string()> new_plan_id;
  std::stop_token stop = {};
};

// Plans the job. Fails (kSystem) only if find_plan fails or stop is requested. If no plan is
// possible, the outcome has status kFailed and the problem, and the active assignment stays.
Result<store::PlanningOutcome> PlanJob(const PlanningInput& input);

// A job with its profile, ready for planning.
struct PreparedJob {
  JobSpec spec;
  plan::Planner planner;
  // Likely mistakes in the profile (job/plausibility.h), one line each.
  std::vector<std::string> warnings = {};
  // The noise in the profile. If the noise is known, plans with a time limit have a margin
  // (noise/noise_margin.h).
  std::optional<noise::Noise> noise = {};
};
Result<PreparedJob> PrepareJob(const store::JobRecord& job, const store::ProfileRecord& profile);

// Makes a plan that a client requested, for the store. The plan has no id, no job and no profile
// version.
Result<store::PlanRecord> MakePlan(const PreparedJob& job, const plan::Target& target,
                                   const plan::SearchLimits& limits);

// Makes the response of GET …/frontier.
Result<std::string> MakeFrontier(const plan::Planner& planner, std::int64_t profile_version,
                                 const std::stop_token& stop);

}  // namespace perseus::job_planning
