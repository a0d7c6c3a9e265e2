// For tests: which assignment of a job's directory is in force at each step. A rank's client sees
// the same assignment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "perseus/runtime/protocol/job_directory/assignment.h"

namespace perseus {

class FollowedAssignment {
 public:
  explicit FollowedAssignment(std::filesystem::path job_directory)
      : job_directory_(std::move(job_directory)) {}

  // Reads new assignments first. Version 0 means no assignment. Requires ascending steps.
  const protocol::Assignment& At(std::int64_t step) {
    const auto read = protocol::ReadAssignment(job_directory_);
    if (read && *read && (waiting_.empty() || waiting_.back().version < (*read)->version)) {
      waiting_.push_back(**read);
    }
    for (const protocol::Assignment& assignment : waiting_) {
      if (assignment.from_step <= step && assignment.version > assignment_.version)
        assignment_ = assignment;
    }
    if (assignment_.until_step && *assignment_.until_step <= step) assignment_ = None();
    return assignment_;
  }

 private:
  static protocol::Assignment None() { return {.version = 0}; }

  std::filesystem::path job_directory_;
  std::vector<protocol::Assignment> waiting_;
  protocol::Assignment assignment_ = None();
};

}  // namespace perseus
