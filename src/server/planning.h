// One planning of one job: from all that is known of it to frontier, plans and orders.
//
// A function of its input, so that a planning that was lost with its worker comes out the same. The
// first planning of anything takes a first look (plan/discretize.h): 40 ms instead of 1.3 s for 8 x
// 96 instructions, and 0.1 % more energy. Its orders say `refined: false`, and planning stays due:
// the next one takes the time, and orders the better plans if they are better.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/plan/planner.h"
#include "perseus/server/job_spec.h"
#include "perseus/store/store.h"

namespace perseus {

// Orders as the store keeps them.
struct PlannedOrders {
  struct Share {
    std::string plan;     // Id.
    double time_s = 0;    // Of its iteration, as planned.
    double energy_j = 0;  // Of one pipeline, waiting for the others not included.
    friend bool operator==(const Share&, const Share&) = default;
  };
  std::int64_t from_step = 0;
  std::string target;  // In words.
  std::string reason;  // "profile 2", "straggler 1: 1.25".
  std::vector<Share> pipelines;
  std::vector<std::string> upcoming;  // Ids of plans that are likely to be ordered next.
  double time_s = 0;                  // Of the iteration, the slowest pipeline's slowdown included.
  double tail_s = 0;  // Of each plan's time, behind its last computation: all-reduce, optimizer.
  double baseline_time_s = 0;    // At maximum frequency.
  double baseline_energy_j = 0;  // Of one pipeline.
  bool is_refined = false;

  // Whether a rank would do the same.
  bool SameFor(const PlannedOrders& other) const {
    return pipelines == other.pipelines && upcoming == other.upcoming;
  }
};
std::string FormatPlannedOrders(const PlannedOrders& orders);
Result<PlannedOrders> ParsePlannedOrders(std::string_view text);

// The step from which all ranks can follow what is ordered at `now`: news takes `lead_s` to be
// there, and steps pass meanwhile. 0 where no step was ever reported.
std::int64_t FirstStep(const JobRecord& job, double iteration_s, Milliseconds now, double lead_s);

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
};

// Fails (kSystem) only where find_plan does. What cannot be planned is an outcome of status
// "failed" with the problem; orders that are in force stay.
Result<PlanningOutcome> PlanJob(const PlanningInput& input);

// The orders, in force from where `job` is now: planning took its time. Steps take the least of
// what they were measured to take and what these orders and those in force say.
std::string WithFirstStep(const PlannedOrders& orders, const JobRecord& job,
                          const std::optional<PlannedOrders>& in_force, Milliseconds now,
                          double lead_s);

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
Result<MadePlan> MakePlan(const PreparedJob& job, const Target& target, SearchEffort effort);

// GET …/frontier.
Result<std::string> MakeFrontier(const Planner& planner, std::int64_t profile_version);

}  // namespace perseus
