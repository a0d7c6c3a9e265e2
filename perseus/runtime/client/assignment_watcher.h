// Notices when a job's assignment change, and makes clock tables of them for one rank.
//
// Not thread safe: the background thread's.
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
    std::unique_ptr<ClockTable> table;  // Null if there are no new assignment.
    // Why they are not followed. If they can be read but their plan cannot, the table is one
    // without clocks and of version 0: no record is to say that they were followed.
    // Where the file system failed there is no table: the next look tries again.
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
