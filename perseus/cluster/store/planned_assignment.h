// Says which plan each pipeline of a job follows.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::store {

struct PlannedAssignment {
  struct Share {
    std::string plan;     // The id of the plan.
    double time_s = 0;    // The planned iteration time.
    double energy_j = 0;  // The energy of one pipeline, without waiting for other pipelines.
    friend bool operator==(const Share&, const Share&) = default;
  };
  std::int64_t from_step = 0;
  std::string target = {};  // The target as text.
  std::string reason = {};  // Such as "profile 2" or "straggler 1: 25.00 %".
  std::vector<Share> pipelines = {};
  std::vector<std::string> upcoming = {};  // Ids of plans that are likely to be assigned next.
  double time_s = 0;  // The iteration time, with the slowdown of the slowest pipeline.
  // The time after the last instruction of each plan, for all-reduce and optimizer.
  double tail_s = 0;
  double baseline_time_s = 0;    // The iteration time at maximum frequency.
  double baseline_energy_j = 0;  // The energy of one pipeline at maximum frequency.

  // Whether all fields except `from_step` are equal.
  bool IsSameExceptFirstStep(const PlannedAssignment& other) const;
  friend bool operator==(const PlannedAssignment&, const PlannedAssignment&) = default;
};
// Formats the assignment for the database and the HTTP API.
nlohmann::ordered_json JsonOf(const PlannedAssignment& assignment);
Result<PlannedAssignment> ParsePlannedAssignment(std::string_view text);

}  // namespace perseus::store
