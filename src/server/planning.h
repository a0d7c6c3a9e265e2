// One planning of one job: from all that is known of it to frontier, plans and orders.
//
// A function of its input, so that a planning that was lost with its worker comes out the same. It
// takes a first look (plan/discretize.h): 40 ms instead of 1.3 s for 8 x 96 instructions, and 0.1 %
// more energy. Orders of such plans say `refined: false`, and planning stays due: a planning that
// sees nothing else to order takes the second look. It orders better plans if there are any; if
// not, the orders in force are said to be refined, and no node hears of it.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/plan/planner.h"
#include "perseus/server/job_spec.h"
#include "perseus/server/planned_orders.h"
#include "perseus/store/store.h"

namespace perseus {

struct PlanningInput {
  JobRecord job;
  std::optional<Store::Profile> profile;
  std::vector<StragglerRecord> stragglers;
  std::optional<OrdersRecord> orders;  // The newest.
  bool has_frontier = false;           // Of that profile.
  Milliseconds now = 0;
  // The newest plan of the job's newest profile with that slug.
  std::function<Result<std::optional<PlanRecord>>(std::string_view slug)> find_plan;
  std::function<std::string()> new_plan_id;
  std::stop_token stop = {};
};

// Fails (kSystem) only where find_plan does, or once stop is requested. What cannot be planned is
// an outcome of status "failed" with the problem; orders that are in force stay.
Result<PlanningOutcome> PlanJob(const PlanningInput& input);

// A job's profile, laid out and ready to be planned.
struct PreparedJob {
  JobSpec spec;
  Planner planner;
};
Result<PreparedJob> PrepareJob(const JobRecord& job, const Store::Profile& profile);

// The plan of any target, for who asks for one. As the store keeps it.
struct MadePlan {
  std::string slug;
  std::string body;
  double time_s = 0;
  double energy_j = 0;
};
Result<MadePlan> MakePlan(const PreparedJob& job, const Target& target, const SearchLimits& limits);

// GET …/frontier.
Result<std::string> MakeFrontier(const Planner& planner, std::int64_t profile_version,
                                 const std::stop_token& stop);

}  // namespace perseus
