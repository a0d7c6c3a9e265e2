// Reads the assignments of a job as they change, and makes clock tables of them for one rank.
//
// How it finds a change. A job may have thousands of ranks on one shared file system, so a rank
// asks it for the file only every kAskEvery. Between, inotify reports changes that are made on this
// node, at once and without the file system. inotify does not see changes that other nodes make on
// NFS or Lustre, and cannot know that. So both are needed:
//
//   written on this node     found by the next call
//   written on another node  found within kAskEvery, and the time after which the file system
//                            shows a change to other nodes
//
// Each rank begins at another part of kAskEvery, so that they do not all ask at once. kAskEvery is
// half of the delay of an assignment (protocol::kAssignmentDelaySeconds). The other half is for the
// file system.
//
// Alternatives that we rejected: one watcher for all ranks of a node needs a leader and its
// succession; a notice by the agent needs an agent that reads the files of users.
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

#include "perseus/base/file_descriptor.h"
#include "perseus/base/units.h"
#include "perseus/runtime/client/clock_table.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::client {

class AssignmentWatcher {
 public:
  // `pp_ranks`: of the job; 0: unknown.
  AssignmentWatcher(std::filesystem::path job_directory, protocol::RankId name, int pp_ranks = 0)
      : job_directory_(std::move(job_directory)), name_(name), pp_ranks_(pp_ranks) {}

  struct News {
    std::unique_ptr<ClockTable> table;  // Null if there is no new assignment.
    // Why the rank does not follow the assignment. If only its plan cannot be read, the table has
    // no clocks and version 0, so that no record says that the rank followed it. If the file system
    // failed, there is no table, and the next call tries again.
    std::string problem;
  };
  // Does nothing before the next look is due. Call it many times a second.
  News LookForNew(Nanoseconds now);
  static constexpr Nanoseconds kAskEvery = 500'000'000;
  // How often the file system was asked for the file.
  int asked() const { return asked_; }

 private:
  News Ask();
  void BeginToWatch();
  bool HasChangedHere();

  std::filesystem::path job_directory_;
  protocol::RankId name_;
  int pp_ranks_;
  FileDescriptor inotify_;    // Absent if the kernel has no more of them.
  bool is_watching_ = false;  // The directory exists, and inotify reports its changes.
  std::optional<Nanoseconds> next_;
  int asked_ = 0;
  std::optional<struct stat> seen_;
  std::int64_t version_ = 0;
};

}  // namespace perseus::client
