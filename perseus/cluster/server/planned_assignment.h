// What planning assignment of a job's ranks, as the store keeps it: a version of the job's
// assignment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

struct PlannedAssignment {
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
  bool SameFor(const PlannedAssignment& other) const {
    return pipelines == other.pipelines && upcoming == other.upcoming;
  }
};
std::string FormatPlannedAssignment(const PlannedAssignment& assignment);
Result<PlannedAssignment> ParsePlannedAssignment(std::string_view text);

// The step from which all ranks can follow what is ordered at `now`: news takes `lead_s` to be
// there, and steps pass meanwhile. 0 where no step was ever reported.
std::int64_t FirstStep(const store::JobRecord& job, double iteration_s, store::Milliseconds now,
                       double lead_s);

// The assignment, in force from where `job` is now: planning took its time. Steps take the least of
// what they were measured to take and what these assignment and those in force say.
std::string WithFirstStep(const PlannedAssignment& assignment, const store::JobRecord& job,
                          const std::optional<PlannedAssignment>& in_force, store::Milliseconds now,
                          double lead_s);

}  // namespace perseus::server
