// Reads each new assignment of a job, in the job directory and in the place of the node
// (assignment_places.h), and compiles it to a clock table for one rank.
//
// How it finds a change. A job may have thousands of ranks on one shared file system, so each rank
// asks the file system for the file only every kAskEvery. In between, inotify reports changes that
// this node makes, at once and without a request to the file system. inotify does not report
// changes that other nodes make on NFS or Lustre. So both are needed:
//
//   written on this node     found by the next call
//   written on another node  found within kAskEvery, plus the time that the file system takes to
//                            show a change to other nodes
//
// Each rank begins at a different time within kAskEvery, so the ranks do not all ask at once.
// kAskEvery is half of the delay of an assignment (protocol::kAssignmentDelaySeconds). The other
// half is for the file system.
//
// Rejected alternatives: one watcher for all ranks of a node (it needs a leader, and a successor
// when the leader ends), and a notice from the agent (the agent would have to read users' files).
//
// Not thread safe: for the background thread.
#pragma once

#include <sys/stat.h>

#include <array>
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
  // `pp_ranks` is the number of pp_ranks of the job. 0: unknown.
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
  // What stat(2) shows of the two files. Empty: no such file.
  using Files = std::array<std::optional<struct stat>, 2>;

  News Ask();
  void BeginToWatch(const protocol::AssignmentPlaces& places);
  bool HasChangedHere();

  std::filesystem::path job_directory_;
  protocol::RankId name_;
  int pp_ranks_;
  FileDescriptor inotify_;  // Absent if the kernel has no free instance.
  // The watches of the job directory and of the node's place. -1: the directory does not exist, or
  // inotify does not report its changes.
  std::array<int, 2> watches_ = {-1, -1};
  std::optional<Nanoseconds> next_;
  int asked_ = 0;
  Files seen_;
  std::int64_t version_ = 0;
};

}  // namespace perseus::client
