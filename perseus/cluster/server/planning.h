// One planning of one job: from all that is known of it to frontier, plans and assignment.
//
// A function of its input, so that a planning that was lost with its worker comes out the same. It
// takes a first look (plan/discretize.h): 40 ms instead of 1.3 s for 8 x 96 instructions, and 0.1 %
// more energy. Assignment of such plans say `refined: false`, and planning stays due: a planning
// that sees nothing else to order takes the second look. It assignment better plans if there are
// any; if not, the assignment in force are said to be refined, and no node hears of it.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/server/job_spec.h"
#include "perseus/cluster/server/planned_assignment.h"
#include "perseus/cluster/store/store.h"
#include "perseus/planning/plan/planner.h"

namespace perseus::server {

struct PlanningInput {
  store::JobRecord job;
  std::optional<store::Store::Profile> profile;
  std::vector<store::StragglerRecord> stragglers;
  std::optional<store::AssignmentRecord> assignment;  // The newest.
  bool has_frontier = false;                          // Of that profile.
  store::Milliseconds now = 0;
  // The newest plan of the job's newest profile with that slug.
  std::function<Result<std::optional<store::PlanRecord>>(std::string_view slug)> find_plan;
  std::function<std::string()> new_plan_id;
  std::stop_token stop = {};
};

// Fails (kSystem) only where find_plan does, or once stop is requested. What cannot be planned is
// an outcome of status "failed" with the problem; assignment that are in force stay.
Result<store::PlanningOutcome> PlanJob(const PlanningInput& input);

// A job's profile, laid out and ready to be planned.
struct PreparedJob {
  JobSpec spec;
  plan::Planner planner;
};
Result<PreparedJob> PrepareJob(const store::JobRecord& job, const store::Store::Profile& profile);

// The plan of any target, for who asks for one. As the store keeps it.
struct MadePlan {
  std::string slug;
  std::string body;
  double time_s = 0;
  double energy_j = 0;
};
Result<MadePlan> MakePlan(const PreparedJob& job, const plan::Target& target,
                          const plan::SearchLimits& limits);

// GET …/frontier.
Result<std::string> MakeFrontier(const plan::Planner& planner, std::int64_t profile_version,
                                 const std::stop_token& stop);

}  // namespace perseus::server
