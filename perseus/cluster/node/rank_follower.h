// Follows the rank logs of one job directory during the training: which ranks run, what they ran,
// and at which step they are.
//
// A directory may contain logs of an earlier run. So the follower skips the content that a log has
// when it is found. A rank is alive if its log has no step yet, or if its log has grown since it
// was found. If its log is deleted, the rank is forgotten. The process of a rank has ended if its
// log was locked (RankLogReader), and no longer is. A training has ended, and was not killed, if
// the log of every rank says so (Remark::kEnd).
//
// Why the lock: a process id has no meaning in another container, and silence alone would make a
// checkpoint look like a killed training.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/cluster/node/step_collector.h"
#include "perseus/cluster/node_messages/node_messages.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::node {

// The progress of the ranks of a job.
struct JobProgress {
  std::int64_t last_step = -1;           // The last step that any rank ended; -1: none so far.
  std::optional<Nanoseconds> step_time;  // The time of the newest step.
};

class RankFollower {
 public:
  explicit RankFollower(std::filesystem::path job_directory)
      : job_directory_(std::move(job_directory)) {}

  struct News {
    bool have_ranks_changed = false;    // Alive() returns other ranks than before.
    bool has_restarted = false;         // A rank has a new process, whose steps count from 0.
    std::vector<std::string> troubles;  // One text for each log or line that cannot be read.
  };
  // Reads new lines. `server_version` converts a version of assignment.json into the server's
  // version.
  News Look(const std::function<std::int64_t(std::int64_t)>& server_version, Nanoseconds now);

  // The headers of the ranks that are alive, sorted by rank.
  std::vector<protocol::RankHeader> Alive() const;
  // How many ranks of Alive() have not lost their process, as far as known. A rank that has ended
  // counts, until all have ended.
  int running() const;
  // Whether all ranks of Alive() have ended, and TakeReports() has returned all their steps.
  bool HaveEnded() const;
  // From now on, only ranks that run again are alive.
  void ForgetEnded();
  std::vector<protocol::StepReport> TakeReports(Nanoseconds now) { return collector_.Take(now); }
  JobProgress progress() const;
  // The highest version of assignment.json that a rank has followed during the life of this
  // follower.
  std::int64_t highest_version() const { return highest_version_; }
  // The version that all ranks follow, and the first step at which all ranks followed it. Ignores
  // ranks that are far behind.
  struct Following {
    std::int64_t version = 0;  // The server's version; 0: none.
    std::int64_t since_step = -1;
    friend bool operator==(const Following&, const Following&) = default;
  };
  Following following() const;

 private:
  struct Rank {
    explicit Rank(const std::filesystem::path& path) : reader(path) {}
    protocol::RankLogReader reader;
    protocol::RankHeader header;
    bool is_alive = false;
    bool has_ended = false;  // The log ends with Remark::kEnd.
    int missed = 0;          // In how many searches in a row the log was missing.
    // Whether the process runs. Empty: its log was never locked.
    std::optional<bool> has_process = {};
    std::int64_t last_step = -1;
    Nanoseconds last_end = 0;
    std::optional<Nanoseconds> step_time;
    Following following;
  };
  // Adds the bytes that it reads to `bytes`.
  void FindLogs(News& news, std::uint64_t& bytes);
  void ReadRank(const protocol::RankId& name, Rank& rank,
                const std::function<std::int64_t(std::int64_t)>& server_version, Nanoseconds now,
                News& news);
  void ForgetDeleted(const std::map<protocol::RankId, std::filesystem::path>& logs, News& news);
  void FindProcesses(Nanoseconds now);
  void TakeHeader(const protocol::RankHeader& header, Rank& rank, News& news);
  void TakeStep(const protocol::RanStep& step, std::int64_t server_version, Rank& rank,
                Nanoseconds now);

  std::filesystem::path job_directory_;
  Nanoseconds next_search_ = 0;
  Nanoseconds next_processes_ = 0;
  std::map<protocol::RankId, Rank> ranks_;
  StepCollector collector_;
  std::int64_t highest_version_ = 0;
  // The rank with which the next look begins, because a look may end before the last rank.
  protocol::RankId next_rank_;
};

}  // namespace perseus::node
