// Reads the assignments of a job as they change, and makes clock tables of them for one rank.
//
// Not thread safe: for the background thread.
#pragma once

#include <sys/stat.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "perseus/runtime/client/clock_table.h"
#include "perseus/runtime/protocol/assignment.h"
#include "perseus/runtime/protocol/rank_log.h"

namespace perseus::client {

class AssignmentWatcher {
 public:
  AssignmentWatcher(std::filesystem::path job_directory, protocol::RankId name)
      : job_directory_(std::move(job_directory)), name_(name) {}

  struct News {
    std::unique_ptr<ClockTable> table;  // Null if there is no new assignment.
    // Why the rank does not follow the assignment. If only its plan cannot be read, the table has
    // no clocks and version 0, so that no record says that the rank followed it. If the file system
    // failed, there is no table, and the next call tries again.
    std::string problem;
  };
  News LookForNew();

 private:
  std::filesystem::path job_directory_;
  protocol::RankId name_;
  std::optional<struct stat> seen_;
  std::int64_t version_ = 0;
};

}  // namespace perseus::client
