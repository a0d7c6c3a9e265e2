#include "perseus/runtime/tuner/job_logs.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <limits>
#include <string_view>
#include <system_error>
#include <vector>

#include "perseus/base/host.h"

namespace perseus::tuner {
namespace {

constexpr Nanoseconds kPollInterval = 50'000'000;
constexpr std::size_t kMostNamed = 4;
// The largest distance between the steps of two ranks of a job. The ranks wait for each other, and
// their logs are late by about a second.
constexpr std::int64_t kMostApart = 64;

struct Cause {
  std::string_view name;  // The name in the rank log.
  std::string_view text;
  std::string_view remedy;
};
constexpr Cause kCauses[] = {
    {"temperature", "heat", "cool the GPU"},
    {"power_brake", "a power brake", "check the power supply of its board and rack"},
    {"", "something that its log does not name",
     "its client library is older than this program: install the same version everywhere"}};
constexpr Cause kAnyOther = {"other", "another program or a fault",
                             "perseus doctor on its host says more"};

}  // namespace

Error EndedByRequest() { return {"ended by a signal", ErrorKind::kSystem}; }

const protocol::RanStep* LoggedRank::Find(std::int64_t step) const {
  const auto found = std::lower_bound(
      steps.begin(), steps.end(), step,
      [](const protocol::RanStep& one, std::int64_t number) { return one.step < number; });
  return found != steps.end() && found->step == step ? &*found : nullptr;
}

Result<JobLogs> JobLogs::Open(const std::filesystem::path& job_directory, Job job,
                              std::int64_t steps_kept) {
  std::error_code error;
  if (!std::filesystem::is_directory(job_directory, error)) {
    return Fail("{} is not a directory (name the one that the ranks have as PERSEUS_JOB_DIR)",
                job_directory.string());
  }
  JobLogs logs(job_directory, job);
  for (;;) {
    PERSEUS_ASSIGN_OR_RETURN(const auto came, logs.ReadSome());
    if (!came) break;
    // The log may have weeks of steps from before this call.
    if (job == Job::kIsOver) continue;
    for (const auto& [name, rank] : logs.ranks_) {
      logs.Forget(name, rank.last_step() - steps_kept + 1);
    }
  }
  logs.has_looked_ = true;
  if (job == Job::kIsOver && logs.ranks_.empty()) {
    return Fail(
        "{} has no rank log (no ranks/dp0-pp0-tp0.jsonl: name the directory that the ranks had as "
        "PERSEUS_JOB_DIR)",
        job_directory.string());
  }
  return logs;
}

// Logs of new ranks may appear at any time.
Result<void> JobLogs::FindLogs() {
  PERSEUS_ASSIGN_OR_RETURN(const auto logs, protocol::FindRankLogs(directory_));
  for (const auto& [name, path] : logs) readers_.try_emplace(name, path);
  return {};
}

Result<void> JobLogs::ReadNew() {
  for (;;) {
    PERSEUS_ASSIGN_OR_RETURN(const auto came, ReadSome());
    if (!came) return {};
  }
}

Result<bool> JobLogs::ReadSome() {
  PERSEUS_RETURN_IF_ERROR(FindLogs());
  bool came = false;
  for (auto& [name, reader] : readers_) {
    const auto records = reader.ReadNew();
    LoggedRank* rank = ranks_.contains(name) ? &ranks_.at(name) : nullptr;
    if (!records) {
      const bool is_line = records.error().kind == ErrorKind::kInput;
      if (!is_line || (rank != nullptr && rank->is_alive) || job_ == Job::kIsOver) {
        return Fail(records);
      }
      if (rank != nullptr) rank->remarks.push_back(records.error().Message());
      came = true;
      continue;
    }
    if (records->empty()) continue;
    came = true;
    if (rank == nullptr) rank = &ranks_[name];
    for (const protocol::RankRecord& record : *records) Take(record, *rank);
    // Everything that was recorded before the first read may be from an earlier run.
    if (has_looked_ || job_ == Job::kIsOver) rank->is_alive = true;
  }
  return came;
}

void JobLogs::Take(const protocol::RankRecord& record, LoggedRank& rank) const {
  if (const auto* header = std::get_if<protocol::RankHeader>(&record)) {
    const bool is_same = protocol::IsOfSameProcess(rank.header, *header);
    // A new header of the same process has more information: for example, that the process may set
    // clocks now.
    if (is_same && !rank.steps.empty()) {
      rank.header = *header;
      return;
    }
    // A new process starts its counter and its steps again. If the rank was not alive, the old
    // steps belong to an earlier run.
    if (!rank.steps.empty() && rank.is_alive && job_ == Job::kIsRunning) rank.has_restarted = true;
    rank.steps.clear();
    rank.energy = profiler::EnergyCurve();
    rank.header = *header;
  } else if (const auto* step = std::get_if<protocol::RanStep>(&record)) {
    for (const protocol::EnergySample& sample : step->energy) {
      rank.energy.Add(step->begin + sample.after, step->begin + sample.until, sample.energy_j);
    }
    rank.steps.push_back(*step);
  } else {
    rank.remarks.push_back(std::get<protocol::Remark>(record).text);
  }
}

std::set<protocol::RankId> JobLogs::Alive() const {
  std::set<protocol::RankId> alive;
  for (const auto& [name, rank] : ranks_) {
    if (rank.is_alive && !rank.steps.empty()) alive.insert(name);
  }
  return alive;
}

std::int64_t JobLogs::LastCommonStep(const std::set<protocol::RankId>& ranks) const {
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  for (const protocol::RankId& name : ranks) last = std::min(last, ranks_.at(name).last_step());
  return ranks.empty() ? -1 : last;
}

std::int64_t JobLogs::LastStep(const std::set<protocol::RankId>& ranks) const {
  std::int64_t last = -1;
  for (const protocol::RankId& name : ranks) last = std::max(last, ranks_.at(name).last_step());
  return last;
}

std::optional<double> JobLogs::StepTime(const std::set<protocol::RankId>& ranks) const {
  for (const protocol::RankId& name : ranks) {
    const auto& steps = ranks_.at(name).steps;
    if (steps.size() < 2 || steps.back().step == steps.front().step) continue;
    return ToSeconds(steps.back().begin - steps.front().begin) /
           static_cast<double>(steps.back().step - steps.front().step);
  }
  return std::nullopt;
}

void JobLogs::ForgetBefore(std::int64_t step) {
  for (const auto& [name, rank] : ranks_) Forget(name, step);
}

void JobLogs::Forget(const protocol::RankId& name, std::int64_t before) {
  LoggedRank& rank = ranks_.at(name);
  // Keeps one more step, for the time from step to step.
  while (rank.steps.size() > 2 && rank.steps[1].step < before) rank.steps.pop_front();
  if (!rank.steps.empty()) rank.energy.ForgetBefore(rank.steps.front().begin);
}

// ---- Waiting ----

std::string JobLogs::FarBehind(const std::set<protocol::RankId>& ranks) const {
  const std::int64_t last = LastStep(ranks);
  for (const protocol::RankId& name : ranks) {
    const std::int64_t own = ranks_.at(name).last_step();
    if (last - own > kMostApart) return fmt::format("rank {} is at step {}", Name(name), own);
  }
  return "";
}

std::string JobLogs::WhatIsKnown(const protocol::RankId& name) const {
  const auto found = ranks_.find(name);
  if (found == ranks_.end()) return fmt::format("{} (no log)", Name(name));
  const protocol::RankHeader& header = found->second.header;
  const bool is_gone = header.host == HostName() && kill(header.pid, 0) != 0 && errno == ESRCH;
  return fmt::format("{} (its log ends at step {}; process {} on {}{})", Name(name),
                     found->second.last_step(), header.pid, header.host,
                     is_gone ? ", which is gone" : "");
}

Result<std::set<protocol::RankId>> JobLogs::AwaitRanks(const std::set<protocol::RankId>& expected,
                                                       Nanoseconds timeout,
                                                       const ShouldEnd& should_end, Clock& clock) {
  const Nanoseconds deadline = clock.Now() + timeout;
  for (;;) {
    PERSEUS_RETURN_IF_ERROR(ReadNew());
    const std::set<protocol::RankId> alive = Alive();
    if (std::includes(alive.begin(), alive.end(), expected.begin(), expected.end()) &&
        FarBehind(alive).empty()) {
      return alive;
    }
    if (should_end()) return tl::unexpected<Error>(EndedByRequest());
    if (clock.Now() >= deadline) break;
    clock.WaitUntil(clock.Now() + kPollInterval);
  }
  const std::set<protocol::RankId> alive = Alive();
  if (const std::string behind = FarBehind(alive); !behind.empty()) {
    return FailAs(
        ErrorKind::kSystem, InFile(directory_.string()),
        "{} while others are at step {}: an assignment begins at one step for all ranks, but "
        "this rank counts its steps from 0 again (if only this rank was replaced, restart all "
        "ranks)",
        behind, LastStep(alive));
  }
  std::string missing;
  std::size_t count = 0;
  for (const protocol::RankId& name : expected) {
    if (alive.contains(name) || ++count > kMostNamed) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", WhatIsKnown(name));
  }
  if (count > kMostNamed) missing += fmt::format(" and {} more", count - kMostNamed);
  return FailAs(ErrorKind::kSystem, InFile(directory_.string()),
                "{} of {} ranks have recorded no step for {:g} s: {} (is the job running, with "
                "this directory as PERSEUS_JOB_DIR, and does this job file belong to it?)",
                count, expected.size(), ToSeconds(timeout), missing);
}

Result<void> JobLogs::AwaitStep(const std::set<protocol::RankId>& ranks, std::int64_t step,
                                Nanoseconds timeout, const ShouldEnd& should_end, Clock& clock) {
  Nanoseconds deadline = clock.Now() + timeout;
  std::int64_t before = LastCommonStep(ranks);
  for (;;) {
    if (auto read = ReadNew(); !read) return read;
    for (const protocol::RankId& name : ranks) {
      if (!ranks_.at(name).has_restarted) continue;
      return FailAs(ErrorKind::kSystem, InFile(directory_.string()),
                    "rank {} has restarted in the meantime (begin again when the job runs)",
                    Name(name));
    }
    const std::int64_t now = LastCommonStep(ranks);
    if (now >= step) return {};
    if (now > before) deadline = clock.Now() + timeout;
    before = now;
    if (should_end()) return tl::unexpected<Error>(EndedByRequest());
    if (clock.Now() >= deadline) break;
    clock.WaitUntil(clock.Now() + kPollInterval);
  }
  std::string slow;
  for (const protocol::RankId& name : ranks) {
    if (ranks_.at(name).last_step() > before) continue;
    slow += fmt::format("{}{}", slow.empty() ? "" : ", ", WhatIsKnown(name));
  }
  return FailAs(ErrorKind::kSystem, InFile(directory_.string()),
                "no step was recorded for {:g} s by {} (has the job ended?)", ToSeconds(timeout),
                slow);
}

std::set<protocol::RankId> RanksOf(int pipelines, int ranks, int gpus_per_stage) {
  std::set<protocol::RankId> names;
  for (int pipeline = 0; pipeline < pipelines; ++pipeline) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (int gpu = 0; gpu < gpus_per_stage; ++gpu) names.insert({pipeline, rank, gpu});
    }
  }
  return names;
}

void Disturbance::Add(const protocol::RanStep& step) {
  ++of_steps;
  if (!step.IsDisturbed()) return;
  ++steps;
  if (step.limited_by.empty()) causes.insert("");
  std::ranges::copy_if(step.limited_by, std::inserter(causes, causes.end()),
                       [](const std::string& name) { return name != "power"; });
}

void Disturbance::Add(const Disturbance& other) {
  steps += other.steps;
  of_steps += other.of_steps;
  causes.insert(other.causes.begin(), other.causes.end());
}

Disturbance DisturbanceOf(const LoggedRank& rank, std::int64_t first, std::int64_t last) {
  Disturbance all;
  for (std::int64_t number = first; number <= last; ++number) {
    const protocol::RanStep* step = rank.Find(number);
    if (step != nullptr) all.Add(*step);
  }
  return all;
}

std::string Describe(const Disturbance& disturbance) {
  std::vector<std::string_view> texts;
  std::vector<std::string_view> remedies;
  for (const std::string& name : disturbance.causes) {
    const auto* const known = std::ranges::find(kCauses, name, &Cause::name);
    const Cause& cause = known == std::end(kCauses) ? kAnyOther : *known;
    texts.push_back(cause.text);
    remedies.push_back(cause.remedy);
  }
  return fmt::format("{} held its clock down ({})", fmt::join(texts, " and "),
                     fmt::join(remedies, "; "));
}

}  // namespace perseus::tuner
