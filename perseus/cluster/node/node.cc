#include "perseus/cluster/node/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <variant>

#include "perseus/base/units.h"
#include "perseus/cluster/node/answers.h"
#include "perseus/cluster/node/job_directories.h"

namespace perseus::node {
namespace {

constexpr Nanoseconds kNodeSearchEvery = kSecond;
constexpr Nanoseconds kRetryAfter = 5 * kSecond;   // After a refusal of the server.
constexpr Nanoseconds kWriteAgainAfter = kSecond;  // While another coordinator holds the job.
// A directory in which no step ran for so long belongs to an earlier run, if another directory of
// the same key has steps.
constexpr Nanoseconds kIsOver = 60 * kSecond;
constexpr Nanoseconds kReportApart = kSecond / 10;
constexpr Nanoseconds kReportAtLeastEvery = 4 * kSecond;  // The server expects one in 5 s.
// Reports of a job that are kept while the server is away, the newest ones.
constexpr std::size_t kMostUnsent = 256;

constexpr int kTooManyRequests = 429;
constexpr int kFirstServerError = 500;

protocol::Attachment AttachmentOf(const std::vector<protocol::RankHeader>& ranks, bool restarted,
                                  const std::string& instance) {
  protocol::Attachment attachment{.ranks = {}, .restarted = restarted, .instance = instance};
  for (const protocol::RankHeader& rank : ranks) attachment.ranks.push_back({rank.name, rank.gpu});
  return attachment;
}

bool MayBeSentAgain(const http::Response& response) {
  return response.status >= kFirstServerError || response.status == kTooManyRequests;
}

}  // namespace

Node::Node(NodeOptions options, Uplink::Send send, spdlog::logger& log)
    : options_(std::move(options)), uplink_(std::move(send), log), log_(log) {}

std::string Node::JobTarget(const Job& job) const {
  return fmt::format("/v1/nodes/{}/jobs/{}", http::PercentEncoded(options_.name),
                     http::PercentEncoded(job.key));
}

// ---- What the server says ----

void Node::Receive(const http::Event& event) {
  const auto parsed = protocol::ParseEvent(event.name, event.data);
  if (!parsed) {
    uplink_.WarnOnce("event", parsed.error().message + "; the event is ignored");
    return;
  }
  for (auto& [directory, job] : jobs_) {
    if (const auto* assignment = std::get_if<protocol::AssignmentEvent>(&*parsed))
      TakeAssignment(job, *assignment);
    if (const auto* ended = std::get_if<protocol::EndedEvent>(&*parsed))
      TakeEnd(directory, job, *ended);
  }
}

void Node::LoseName() {
  for (auto& [directory, job] : jobs_) job.is_attached = false;
}

void Node::TakeAssignment(Job& job, const protocol::AssignmentEvent& assignment) {
  if (job.is_second || (assignment.job != job.id && assignment.key != job.key)) return;
  // Of one that had this key before the job that has these ranks now.
  if (job.is_attached && !job.id.empty() && assignment.job != job.id) return;
  job.id = assignment.job;
  job.has_ended = false;
  job.assignment.Want(assignment);
  KeepFiles(job, assignment);
  job.next_write = job.next_fetch = 0;
}

void Node::TakeEnd(const std::filesystem::path& directory, Job& job,
                   const protocol::EndedEvent& ended) {
  // A process that has not attached yet knows by what lies in the directory.
  const auto newest = job.assignment.newest();
  const bool is_of_it = job.id.empty() ? newest && newest->job == ended.job : ended.job == job.id;
  if (!is_of_it || job.has_ended) return;
  log_.info("job {} has ended; its assignment in {} is taken out of force", job.key,
            directory.string());
  job.has_ended = true;
  job.has_run = job.is_attached = false;
  job.unsent.clear();
  job.assignment.WantNothing();
}

std::string Node::LastEventId() const {
  std::string id;
  for (const auto& [directory, job] : jobs_) {
    const auto newest = job.assignment.newest();
    const std::string attached = job.is_attached ? job.id : "";
    const std::string& its_id = newest ? newest->job : attached;
    if (its_id.empty()) continue;
    const bool has_all = newest && job.assignment.NamesPlansOfAll();
    fmt::format_to(std::back_inserter(id), "{}{}:{}", id.empty() ? "" : " ", its_id,
                   has_all ? newest->version : 0);
  }
  return id;
}

// ---- A turn ----

void Node::Turn(Nanoseconds now) {
  if (now >= next_search_) FindJobs(now);
  for (auto& [directory, job] : jobs_) LookAt(directory, job, now);
  for (auto& [directory, job] : jobs_) {
    Attach(directory, job, now);
    if (!job.has_ended) FetchPlans(job, now);
    WriteAssignment(job, now);
  }
  Report(now);
}

void Node::FindJobs(Nanoseconds now) {
  next_search_ = now + kNodeSearchEvery;
  JobDirectories found;
  if (!options_.jobs_directory.empty()) found = FindJobDirectories(options_.jobs_directory);
  for (const std::string& trouble : found.troubles) uplink_.WarnOnce(trouble, trouble);
  found.jobs.insert(options_.jobs.begin(), options_.jobs.end());
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto still = found.jobs.find(job->first);
    if (still != found.jobs.end() && still->second == job->second.key) {
      ++job;
      continue;
    }
    log_.info("{} is no longer a directory of job {}", job->first.string(), job->second.key);
    Detach(job->second, now);
    std::erase_if(holders_, [&job](const auto& held) { return held.second == job->first; });
    job = jobs_.erase(job);
  }
  for (const auto& [directory, key] : found.jobs) {
    const auto [job, is_new] = jobs_.try_emplace(directory, directory, key);
    if (is_new) log_.info("{} is a directory of job {}", directory.string(), key);
  }
}

void Node::LookAt(const std::filesystem::path& directory, Job& job, Nanoseconds now) {
  if (auto looked = job.assignment.Look(); !looked) {
    uplink_.WarnOnce(directory.string() + " assignment", looked.error().message);
  }
  const auto news = job.ranks.Look(
      [&job](std::int64_t version) { return job.assignment.ServerVersionOf(version); }, now);
  for (const std::string& trouble : news.troubles) uplink_.WarnOnce(trouble, trouble);
  if (news.has_restarted) {
    job.assignment.Restart();
    job.has_ended = false;
    job.restarted = true;
  }
  if (news.have_ranks_changed || news.has_restarted) {
    std::map<int, std::set<int>> ranks;
    for (const protocol::RankHeader& rank : job.ranks.Alive()) {
      ranks[rank.name.dp_rank].insert(rank.name.pp_rank);
    }
    job.assignment.SetRanks(std::move(ranks));
    job.is_attached = job.is_unknown = false;
    job.next_attach = 0;
    job.last_active = now;
  }
  auto reports = job.ranks.TakeReports(now);
  if (!reports.empty()) job.last_active = now;
  job.has_run = job.has_run || !reports.empty();
  if (job.has_ended) return;
  std::move(reports.begin(), reports.end(), std::back_inserter(job.unsent));
  if (job.unsent.size() > kMostUnsent) {
    job.unsent.erase(job.unsent.begin(),
                     job.unsent.end() - static_cast<std::ptrdiff_t>(kMostUnsent));
  }
}

// ---- Attaching ----

// To the server, a node's ranks of a job are one list: those of a second directory would replace
// the first's.
bool Node::TakeKey(const std::filesystem::path& directory, const Job& job) {
  auto& holder = holders_.try_emplace(job.key, directory).first->second;
  if (holder == directory) return true;
  Job& first = jobs_.at(holder);
  if (first.has_ended || job.last_active > first.last_active + kIsOver) {
    log_.info("job {} continues in {}, no longer in {}", job.key, directory.string(),
              holder.string());
    first.is_attached = false;
    holder = directory;
    return true;
  }
  if (first.last_active > job.last_active + kIsOver) return false;
  uplink_.WarnOnce(
      directory.string() + " is second",
      fmt::format("job {} has ranks in {} and in {} on one node, and those in the latter get no "
                  "plans (use one directory for all its ranks here, or a perseus node with another "
                  "--name for {})",
                  job.key, holder.string(), directory.string(), directory.string()));
  return false;
}

void Node::Attach(const std::filesystem::path& directory, Job& job, Nanoseconds now) {
  if (job.is_attached || now < job.next_attach) return;
  // One that was ended while its ranks go on may be registered again; ranks that stand still may
  // have gone on elsewhere.
  if ((job.has_ended || job.is_unknown) && !job.has_run) return;
  const std::vector<protocol::RankHeader> ranks = job.ranks.Alive();
  if (ranks.empty()) return;
  job.is_second = !TakeKey(directory, job);
  if (job.is_second || !uplink_.IsUsable(now)) return;
  job.next_attach = now + kRetryAfter;
  job.has_run = false;
  const auto answer = uplink_.Request(
      {.method = "PUT",
       .target = JobTarget(job),
       .body = protocol::FormatAttachment(AttachmentOf(ranks, job.restarted, options_.instance))},
      now);
  if (!answer) return;
  const std::string about = "attaching " + job.key;
  if (!IsSuccess(*answer)) {
    // It was there when this process attached before.
    if (IsOfNoJob(*answer) && !job.id.empty()) TakeEnd(directory, job, {job.id});
    // Of its name, the stream is refused, too, and tells.
    if (job.has_ended || IsOfInstance(*answer)) return;
    uplink_.WarnOnce(about, fmt::format("the server does not accept the ranks of job {}: {}; the "
                                        "request is repeated every 5 s",
                                        job.key, ProblemText(*answer)));
    return;
  }
  uplink_.Recovered(about);
  job.is_attached = true;
  job.restarted = job.has_ended = job.is_unknown = false;
  if (const std::string id = JobOfAnswer(answer->body); !id.empty()) TakeId(job, id);
  job.reported = {};
  log_.info("{} ranks of job {} are attached", ranks.size(), job.key);
}

void Node::TakeId(Job& job, const std::string& id) {
  job.id = id;
  const auto newest = job.assignment.newest();
  if (!newest || newest->job == id) return;
  log_.info("{} is now another job with the same key; the old assignment is taken out of force",
            job.key);
  job.assignment.WantNothing();
  job.next_write = 0;
}

void Node::Detach(const Job& job, Nanoseconds now) {
  if (!job.is_attached || !uplink_.IsUsable(now)) return;
  // If it fails, the server notices that their reports stop.
  static_cast<void>(uplink_.Request({.method = "DELETE", .target = JobTarget(job)}, now));
}

// ---- Assignment ----

// A file that cannot be kept is fetched later, with a warning.
void Node::KeepFiles(Job& job, const protocol::AssignmentEvent& assignment) {
  for (const auto& [id, text] : assignment.files) {
    if (!job.assignment.HasPlan(id)) static_cast<void>(job.assignment.KeepPlan(id, text));
  }
}

void Node::FetchPlans(Job& job, Nanoseconds now) {
  if (now < job.next_fetch) return;
  for (const std::string& id : job.assignment.MissingPlans()) {
    if (!FetchPlan(job, id, now)) return;
  }
  // One in each turn: plans that are wanted now must not wait for upcoming ones.
  const std::set<std::string> upcoming = job.assignment.MissingUpcoming();
  if (!upcoming.empty()) FetchPlan(job, *upcoming.begin(), now);
}

bool Node::FetchPlan(Job& job, const std::string& id, Nanoseconds now) {
  if (!uplink_.IsUsable(now)) return false;
  const auto answer = uplink_.Request({.target = "/v1/plans/" + id}, now);
  if (!answer) return false;
  std::string problem;
  if (!IsSuccess(*answer)) {
    problem = ProblemText(*answer);
  } else if (const auto kept = job.assignment.KeepPlan(id, answer->body); !kept) {
    problem = kept.error().message;
  }
  if (problem.empty()) {
    uplink_.Recovered(id);
    return true;
  }
  job.next_fetch = now + kRetryAfter;
  uplink_.WarnOnce(id, fmt::format("plan {} of job {} is not available: {}; ranks keep their "
                                   "assignment",
                                   id, job.key, problem));
  return false;
}

void Node::WriteAssignment(Job& job, Nanoseconds now) {
  if (now < job.next_write || !job.assignment.HasToWrite() ||
      !job.assignment.MissingPlans().empty())
    return;
  const auto written = job.assignment.Write(job.ranks.progress());
  const std::string about = "writing " + job.key;
  if (!written) {
    job.next_write = now + kWriteAgainAfter;
    uplink_.WarnOnce(about, written.error().message + "; the server's assignment waits");
    return;
  }
  uplink_.Recovered(about);
  if (const auto in_force = job.assignment.in_force()) {
    log_.info("job {} has the server's assignment {}", job.key, in_force->version);
  }
}

// ---- Reports ----

protocol::JobReport Node::ReportOf(const Job& job) {
  protocol::JobReport report;
  report.job = job.id.empty() ? job.key : job.id;
  const auto in_force = job.assignment.in_force();
  if (in_force && (job.id.empty() || in_force->job == job.id)) {
    report.acknowledged = in_force->version;
  }
  // Ranks may still follow what a job before it was told.
  if (report.acknowledged == 0) return report;
  const RankFollower::Following following = job.ranks.following();
  report.following = following.version;
  report.since_step = following.since_step;
  return report;
}

void Node::Report(Nanoseconds now) {
  if (now < next_report_ || !uplink_.IsUsable(now)) return;
  std::vector<protocol::JobReport> reports;
  bool is_new = now >= report_by_;
  for (const auto& [directory, job] : jobs_) {
    if (!job.is_attached) continue;
    protocol::JobReport report = ReportOf(job);
    is_new = is_new || !job.unsent.empty() || report.acknowledged != job.reported.acknowledged ||
             report.following != job.reported.following ||
             report.since_step != job.reported.since_step;
    report.steps = job.unsent;
    reports.push_back(std::move(report));
  }
  if (reports.empty() || !is_new) return;
  next_report_ = now + kReportApart;
  const std::string target =
      fmt::format("/v1/nodes/{}/reports", http::PercentEncoded(options_.name));
  const auto answer = uplink_.Request(
      {.method = "POST", .target = target, .body = protocol::FormatReports(reports)}, now);
  if (answer) TakeAnswer(*answer, now);
}

void Node::TakeAnswer(const http::Response& response, Nanoseconds now) {
  if (IsSuccess(response)) {
    uplink_.Recovered("report");
    report_by_ = now + kReportAtLeastEvery;
  } else {
    next_report_ = now + kSecond;
    uplink_.WarnOnce("report",
                     fmt::format("the server refuses reports: {}", ProblemText(response)));
    if (MayBeSentAgain(response)) return;
  }
  const std::set<std::string> not_attached = NotAttachedOfAnswer(response.body);
  for (auto& [directory, job] : jobs_) {
    if (!job.is_attached) continue;
    job.reported = ReportOf(job);
    job.unsent.clear();
    if (!not_attached.contains(job.reported.job)) continue;
    job.is_unknown = true;
    job.has_run = job.is_attached = false;
    uplink_.WarnOnce(
        "attaching " + job.key,
        fmt::format("the server no longer has ranks of job {} on this node: they are on "
                    "another node, or the job has ended; if they run another step, "
                    "they are attached again",
                    job.key));
  }
}

}  // namespace perseus::node
