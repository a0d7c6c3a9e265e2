// The ranks of one job directory, followed by their logs while they train: who is there, what they
// ran, how far they are.
//
// A directory may hold logs of an earlier run. What a log held when it was found is passed over,
// and its rank counts once the log grows, or if there is no step in it yet (it waits to begin).
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
#include "perseus/runtime/protocol/node_messages.h"
#include "perseus/runtime/protocol/rank_log.h"

namespace perseus::node {

// How far the ranks of a job are.
struct JobProgress {
  std::int64_t last_step = -1;           // The last that any ended; -1: none was seen.
  std::optional<Nanoseconds> step_time;  // Of the last two seen.
};

class RankFollower {
 public:
  explicit RankFollower(std::filesystem::path job_directory)
      : job_directory_(std::move(job_directory)) {}

  struct News {
    bool have_ranks_changed = false;    // alive() is another.
    bool has_restarted = false;         // Some rank's process is new: its steps count from 0.
    std::vector<std::string> troubles;  // Logs that cannot be read, lines that are wrong.
  };
  // Reads what came. `server_version` tells, of a version of assignment.json, which of the server's
  // it is.
  News Look(const std::function<std::int64_t(std::int64_t)>& server_version, Nanoseconds now);

  // In order of their names.
  std::vector<protocol::RankHeader> Alive() const;
  std::vector<protocol::StepReport> TakeReports(Nanoseconds now) { return collector_.Take(now); }
  JobProgress progress() const;
  // What all ranks follow that are not far behind the others, and since which step.
  struct Following {
    std::int64_t version = 0;  // The server's; 0: none.
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
    std::int64_t last_step = -1;
    Nanoseconds last_end = 0;
    std::optional<Nanoseconds> step_time;
    Following following;
  };
  void FindLogs(News& news);
  void TakeHeader(const protocol::RankHeader& header, Rank& rank, News& news);
  void TakeStep(const protocol::RanStep& step, std::int64_t server_version, Rank& rank,
                Nanoseconds now);

  std::filesystem::path job_directory_;
  Nanoseconds next_search_ = 0;
  std::map<protocol::RankId, Rank> ranks_;
  StepCollector collector_;
};

}  // namespace perseus::node
