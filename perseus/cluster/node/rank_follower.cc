#include "perseus/cluster/node/rank_follower.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace perseus::node {
namespace {

constexpr Nanoseconds kRankFollowerSearchEvery = 500'000'000;
constexpr Nanoseconds kFindProcessesEvery = kSecond;
// Ranks of a job wait for each other, so they differ by few steps. A rank that is further behind is
// dead or belongs to an earlier run.
constexpr std::int64_t kMostBehind = 2;
// A rank that renames a full log has no log for a moment.
constexpr int kMissedOfDeleted = 2;
// One look reads at most about this many bytes, so that the logs of one job, which may have any
// size and number, do not delay the other jobs of the node. The next look goes on.
constexpr std::uint64_t kMostBytesOfLook = 32U << 20U;
constexpr std::size_t kMostLogs = 4096;

}  // namespace

void RankFollower::FindLogs(News& news, std::uint64_t& bytes) {
  const auto logs = protocol::FindRankLogs(job_directory_);
  if (!logs) {
    news.troubles.push_back(logs.error().Message());
    return;
  }
  if (logs->size() > kMostLogs) {
    news.troubles.push_back(fmt::format("{}: more than {} logs of ranks (remove old ones)",
                                        job_directory_.string(), kMostLogs));
    return;
  }
  for (const auto& [name, path] : *logs) {
    if (ranks_.contains(name)) continue;
    if (bytes >= kMostBytesOfLook) break;
    Rank& rank = ranks_.emplace(name, Rank(path)).first->second;
    const auto passed = rank.reader.SkipToEnd();
    bytes += rank.reader.bytes_read();
    if (!passed) {
      news.troubles.push_back(passed.error().Message());
      continue;
    }
    if (!passed->header) continue;
    rank.header = *passed->header;
    rank.header.name = name;
    if (passed->has_steps) continue;
    rank.is_alive = news.have_ranks_changed = news.has_restarted = true;
  }
  ForgetDeleted(*logs, news);
}

void RankFollower::ForgetDeleted(const std::map<protocol::RankId, std::filesystem::path>& logs,
                                 News& news) {
  for (auto at = ranks_.begin(); at != ranks_.end();) {
    Rank& rank = at->second;
    rank.missed = logs.contains(at->first) ? 0 : rank.missed + 1;
    if (rank.missed < kMissedOfDeleted) {
      ++at;
      continue;
    }
    news.have_ranks_changed = news.have_ranks_changed || rank.is_alive;
    at = ranks_.erase(at);
  }
}

void RankFollower::FindProcesses(Nanoseconds now) {
  if (now < next_processes_) return;
  next_processes_ = now + kFindProcessesEvery;
  for (auto& [name, rank] : ranks_) {
    if (!rank.is_alive) continue;
    const auto is_written = rank.reader.IsBeingWritten();
    // If the log was never locked, an absent lock says nothing.
    if (is_written && (*is_written || rank.has_process)) rank.has_process = is_written;
  }
}

void RankFollower::TakeHeader(const protocol::RankHeader& header, Rank& rank, News& news) {
  if (!protocol::IsOfSameProcess(rank.header, header)) {
    collector_.Restart(header.name);
    // A restarted job may have other ranks than before, so the progress of all ranks is discarded.
    for (auto& [name, one] : ranks_) {
      one.last_step = -1;
      one.step_time.reset();
      one.following = {};
    }
    news.has_restarted = true;
  }
  news.have_ranks_changed = news.have_ranks_changed || rank.header.gpu != header.gpu;
  rank.header = header;
  rank.has_ended = false;
}

void RankFollower::TakeStep(const protocol::RanStep& step, std::int64_t server_version, Rank& rank,
                            Nanoseconds now) {
  if (rank.last_step >= 0 && step.step > rank.last_step) {
    rank.step_time = (step.end - rank.last_end) / (step.step - rank.last_step);
  }
  highest_version_ = std::max(highest_version_, step.assignment_version);
  rank.last_step = step.step;
  rank.last_end = step.end;
  if (rank.following.since_step < 0 || rank.following.version != server_version) {
    rank.following = {server_version, step.step};
  }
  collector_.Add(rank.header, step, server_version, now);
}

void RankFollower::ReadRank(const protocol::RankId& name, Rank& rank,
                            const std::function<std::int64_t(std::int64_t)>& server_version,
                            Nanoseconds now, News& news) {
  const auto records = rank.reader.ReadNew();
  if (!records) {
    news.troubles.push_back(records.error().Message());
    return;
  }
  if (!records->empty() && !std::exchange(rank.is_alive, true)) news.have_ranks_changed = true;
  for (const protocol::RankRecord& record : *records) {
    if (const auto* header = std::get_if<protocol::RankHeader>(&record)) {
      // The name of the file identifies the rank, because the header may be wrong.
      protocol::RankHeader own = *header;
      own.name = name;
      TakeHeader(own, rank, news);
    } else if (const auto* step = std::get_if<protocol::RanStep>(&record)) {
      TakeStep(*step, server_version(step->assignment_version), rank, now);
    } else {
      rank.has_ended = rank.has_ended || std::get<protocol::Remark>(record).IsEnd();
    }
  }
}

RankFollower::News RankFollower::Look(
    const std::function<std::int64_t(std::int64_t)>& server_version, Nanoseconds now) {
  News news;
  std::uint64_t bytes = 0;
  if (now >= next_search_) {
    next_search_ = now + kRankFollowerSearchEvery;
    FindLogs(news, bytes);
  }
  FindProcesses(now);
  auto at = ranks_.lower_bound(next_rank_);
  for (std::size_t count = ranks_.size(); count > 0 && bytes < kMostBytesOfLook; --count) {
    if (at == ranks_.end()) at = ranks_.begin();
    const std::uint64_t before = at->second.reader.bytes_read();
    ReadRank(at->first, at->second, server_version, now, news);
    bytes += at->second.reader.bytes_read() - before;
    ++at;
  }
  next_rank_ = at == ranks_.end() ? protocol::RankId() : at->first;
  return news;
}

std::vector<protocol::RankHeader> RankFollower::Alive() const {
  std::vector<protocol::RankHeader> alive;
  for (const auto& [name, rank] : ranks_) {
    if (rank.is_alive) alive.push_back(rank.header);
  }
  return alive;
}

int RankFollower::running() const {
  return static_cast<int>(std::ranges::count_if(ranks_, [](const auto& entry) {
    const Rank& rank = entry.second;
    return rank.is_alive && (rank.has_ended || rank.has_process.value_or(true));
  }));
}

bool RankFollower::HaveEnded() const {
  bool has_ended = false;
  for (const auto& [name, rank] : ranks_) {
    if (rank.is_alive && !rank.has_ended) return false;
    has_ended = has_ended || rank.is_alive;
  }
  return has_ended && collector_.IsEmpty();
}

void RankFollower::ForgetEnded() {
  for (auto& [name, rank] : ranks_) rank.is_alive = false;
}

JobProgress RankFollower::progress() const {
  JobProgress progress;
  for (const auto& [name, rank] : ranks_) {
    if (rank.last_step <= progress.last_step) continue;
    progress = {rank.last_step, rank.step_time};
  }
  return progress;
}

RankFollower::Following RankFollower::following() const {
  const std::int64_t last = progress().last_step;
  std::optional<Following> all;
  for (const auto& [name, rank] : ranks_) {
    if (rank.last_step < 0 || rank.last_step + kMostBehind < last) continue;
    const Following& one = rank.following;
    if (!all || one.version < all->version ||
        (one.version == all->version && one.since_step > all->since_step)) {
      all = one;
    }
  }
  return all.value_or(Following());
}

}  // namespace perseus::node
