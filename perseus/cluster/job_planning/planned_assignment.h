// An assignment in the form in which the store keeps it: which plan each pipeline follows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"

namespace perseus::job_planning {

struct PlannedAssignment {
  struct Share {
    std::string plan;     // Id.
    double time_s = 0;    // Planned iteration time.
    double energy_j = 0;  // One pipeline's energy, without waiting for the others.
    friend bool operator==(const Share&, const Share&) = default;
  };
  std::int64_t from_step = 0;
  std::string target;  // As text.
  std::string reason;  // "profile 2", "straggler 1: 1.25".
  std::vector<Share> pipelines;
  std::vector<std::string> upcoming;  // Ids of plans that are likely to be assigned next.
  double time_s = 0;                  // Iteration time, with the slowdown of the slowest pipeline.
  double tail_s = 0;             // After the last instruction of each plan: all-reduce, optimizer.
  double baseline_time_s = 0;    // At maximum frequency.
  double baseline_energy_j = 0;  // One pipeline's energy.

  // Whether all fields except `from_step` are equal.
  bool IsSameExceptFirstStep(const PlannedAssignment& other) const;
  friend bool operator==(const PlannedAssignment&, const PlannedAssignment&) = default;
};
std::string FormatPlannedAssignment(const PlannedAssignment& assignment);
Result<PlannedAssignment> ParsePlannedAssignment(std::string_view text);

// The first step at which all ranks can follow an assignment that is made at `now`. The assignment
// takes `lead_s` to arrive, and steps pass in the meantime. 0 if no step was ever reported.
std::int64_t FirstStep(const store::JobRecord& job, double iteration_s, store::Milliseconds now,
                       double lead_s);

// Formats the assignment with its first step, which depends on the step that the job has reached
// after planning. Uses the least of three step times: measured, of this assignment, and of the one
// in force.
std::string WithFirstStep(const PlannedAssignment& assignment, const store::JobRecord& job,
                          const std::optional<PlannedAssignment>& in_force, store::Milliseconds now,
                          double lead_s);

}  // namespace perseus::job_planning
