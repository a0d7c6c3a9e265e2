#include "perseus/cluster/node/node.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "perseus/base/excerpt.h"
#include "perseus/base/units.h"
#include "perseus/cluster/node/job_directories.h"

namespace perseus::node {
namespace {

constexpr Nanoseconds kNodeSearchEvery = kSecond;
constexpr Nanoseconds kRetryAfter = 5 * kSecond;  // The pause after a refusal of the server.
// The pause while the job has another coordinator.
constexpr Nanoseconds kWriteAgainAfter = kSecond;
// For two directories with the same key: if the last step in one directory is older by this time,
// this directory belongs to an earlier run.
constexpr Nanoseconds kIsOver = 60 * kSecond;
constexpr Nanoseconds kReportApart = kSecond / 10;
constexpr Nanoseconds kReportAtLeastEvery = 4 * kSecond;  // The server expects a report within 5 s.
// While the server is unreachable, this many of the newest reports of a job are kept.
constexpr std::size_t kMostUnsent = 256;
// The unsent reports of this many jobs fit into one request (3 of 4 MiB).
constexpr std::size_t kMostJobsOfRequest = 64;

protocol::Attachment AttachmentOf(const std::vector<protocol::RankHeader>& ranks, bool restarted,
                                  const std::string& instance, uid_t user) {
  protocol::Attachment attachment{
      .ranks = {}, .restarted = restarted, .instance = instance, .users = NamesOfUser(user)};
  for (const protocol::RankHeader& rank : ranks) attachment.ranks.push_back({rank.name, rank.gpu});
  return attachment;
}

bool MayBeSentAgain(const http::Response& response) {
  return response.status >= 500 || response.status == 429;
}

}  // namespace

Node::Node(NodeOptions options, Uplink::Send send, spdlog::logger& log)
    : options_(std::move(options)), uplink_(std::move(send), log), log_(log) {
  options_.assignments_directory = WithoutLinks(options_.assignments_directory);
  DeleteVanishedPlaces(options_.assignments_directory);
}

std::string Node::JobTarget(const Job& job) const {
  return fmt::format("/v1/nodes/{}/jobs/{}", http::PercentEncoded(options_.name),
                     http::PercentEncoded(job.key));
}

// ---- Events from the server ----

void Node::Receive(const http::Event& event) {
  const auto parsed = protocol::ParseEvent(event.name, event.data);
  if (!parsed) {
    uplink_.WarnOnce("event", parsed.error().Message() + "; the event is ignored");
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
  for (auto& [directory, job] : jobs_) job.lifecycle.Apply(JobEvent::kClaimLost);
}

void Node::TakeAssignment(Job& job, const protocol::AssignmentEvent& assignment) {
  if (job.is_second || (assignment.job != job.id && assignment.key != job.key)) return;
  // The event belongs to an earlier job with this key.
  if (job.lifecycle.is_attached() && !job.id.empty() && assignment.job != job.id) return;
  job.id = assignment.job;
  job.lifecycle.Apply(JobEvent::kAssigned);
  job.assignment.Want(assignment);
  StoreFiles(job, assignment);
  job.next_write = job.next_fetch = 0;
}

void Node::TakeEnd(const std::filesystem::path& directory, Job& job,
                   const protocol::EndedEvent& ended) {
  // Before the first attachment, only the assignment in the directory names the job.
  const auto newest = job.assignment.newest();
  const bool is_this_job =
      job.id.empty() ? newest && newest->job == ended.job : ended.job == job.id;
  if (!is_this_job || job.lifecycle.has_ended()) return;
  log_.info("job {} has ended; its assignment in {} is withdrawn", job.key,
            OneLine(directory.string()));
  job.lifecycle.Apply(JobEvent::kEnded);
  job.unsent.clear();
  job.assignment.WantNothing();
}

std::string Node::LastEventId() const {
  // If two directories name the same job, the one with less counts. Otherwise, a left-over or false
  // assignment would keep the job from getting its own.
  std::map<std::string, std::int64_t> versions;
  for (const auto& [directory, job] : jobs_) {
    const auto newest = job.assignment.newest();
    const std::string attached = job.lifecycle.is_attached() ? job.id : "";
    const std::string& its_id = newest ? newest->job : attached;
    if (its_id.empty()) continue;
    const bool has_all = newest && job.assignment.NamesPlansOfAll();
    const std::int64_t version = has_all ? newest->version : 0;
    const auto [known, is_new] = versions.emplace(its_id, version);
    if (!is_new) known->second = std::min(known->second, version);
    if (!attached.empty() && attached != its_id) versions[attached] = 0;
  }
  std::string id;
  for (const auto& [job, version] : versions) {
    id += fmt::format("{}{}:{}", id.empty() ? "" : " ", job, version);
  }
  return id;
}

// ---- A turn ----

void Node::Turn(Nanoseconds now) {
  if (now >= next_search_) FindJobs(now);
  for (auto& [directory, job] : jobs_) ReadJob(directory, job, now);
  for (auto& [directory, job] : jobs_) {
    CheckRegistered(job, now);
    Attach(directory, job, now);
    if (!job.lifecycle.has_ended()) FetchPlans(job, now);
    WriteAssignment(job, now);
    DetachEnded(job, now);
  }
  Report(now);
}

void Node::FindJobs(Nanoseconds now) {
  next_search_ = now + kNodeSearchEvery;
  JobDirectories found;
  if (!options_.jobs_directory.empty()) found = FindJobDirectories(options_.jobs_directory);
  for (const auto& [directory, trouble] : found.troubles) {
    uplink_.WarnOnce(directory.string(), trouble);
  }
  found.jobs.insert(options_.jobs.begin(), options_.jobs.end());
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto still = found.jobs.find(job->first);
    const bool has_key = still != found.jobs.end() && still->second == job->second.key;
    const bool is_same = IdentifyDirectory(job->first) == job->second.directory_id;
    if (has_key && is_same) {
      ++job;
      continue;
    }
    log_.info("{} is no longer {} directory of job {}", OneLine(job->first.string()),
              has_key ? "the same" : "a", job->second.key);
    Detach(job->second, now);
    if (!is_same) DeletePlace(job->second.places);
    std::erase_if(holders_, [&job](const auto& held) { return held.second == job->first; });
    job = jobs_.erase(job);
  }
  for (const auto& [directory, key] : found.jobs) {
    if (!jobs_.contains(directory)) AddJob(directory, key);
  }
}

void Node::AddJob(const std::filesystem::path& directory, const std::string& key) {
  const DirectoryId id = IdentifyDirectory(directory);
  const protocol::AssignmentPlaces places =
      PlacesFor(directory, id, options_.assignments_directory);
  for (const auto& [other, job] : jobs_) {
    if (places.node.empty() || job.places.node != places.node) continue;
    return uplink_.WarnOnce(
        directory.string() + " place",
        fmt::format("{} and {} have the same name, and the latter gets no plans (rename it)",
                    other.string(), directory.string()));
  }
  // For example, the disk may be full. The next search tries again.
  if (const auto prepared = PreparePlace(places, id); !prepared) {
    return uplink_.WarnOnce(directory.string() + " place", prepared.error().Message());
  }
  uplink_.Recovered(directory.string() + " place");
  if (const std::string why = WhyNotFound(places); !why.empty()) {
    uplink_.WarnOnce(directory.string() + " link", why);
  }
  jobs_.try_emplace(directory, places, id, key);
  log_.info("{} is a directory of job {}", OneLine(directory.string()), key);
}

void Node::ReadJob(const std::filesystem::path& directory, Job& job, Nanoseconds now) {
  if (auto looked = job.assignment.Look(); !looked) {
    uplink_.WarnOnce(directory.string() + " assignment", looked.error().Message());
  }
  const auto news = job.ranks.Look(
      [&job](std::int64_t version) { return job.assignment.ServerVersionOf(version); }, now);
  // A text may name a line, so it is not the subject: a log can have any number of lines.
  for (const std::string& trouble : news.troubles) {
    uplink_.WarnOnce(directory.string() + " logs", trouble);
  }
  job.assignment.SawVersion(job.ranks.highest_version());
  if (news.has_restarted) {
    job.assignment.Restart();
    job.lifecycle.Apply(JobEvent::kRestarted);
  }
  if (news.have_ranks_changed || news.has_restarted) {
    std::map<int, std::set<int>> ranks;
    for (const protocol::RankHeader& rank : job.ranks.Alive()) {
      ranks[rank.name.dp_rank].insert(rank.name.pp_rank);
    }
    // Without ranks, the node sends no further request that would replace the list of the server.
    if (ranks.empty()) Detach(job, now);
    job.assignment.SetRanks(std::move(ranks));
    job.lifecycle.Apply(JobEvent::kRanksChanged);
    job.next_attach = 0;
    job.last_active = now;
  }
  const auto reports = job.ranks.TakeReports(now);
  if (!reports.empty()) {
    job.last_active = now;
    job.lifecycle.StepRan();
  }
  if (!job.lifecycle.has_ended()) KeepReports(directory, job, reports);
}

void Node::KeepReports(const std::filesystem::path& directory, Job& job,
                       const std::vector<protocol::StepReport>& reports) {
  for (const protocol::StepReport& report : reports) {
    if (const auto checked = protocol::CheckStep(report); checked) {
      job.unsent.push_back(report);
    } else {
      uplink_.WarnOnce(
          directory.string() + " steps",
          fmt::format("{}: step {} of pipeline {} is not reported: {}", directory.string(),
                      report.step, report.dp_rank, checked.error().Message()));
    }
  }
  if (job.unsent.size() > kMostUnsent) {
    job.unsent.erase(job.unsent.begin(),
                     job.unsent.end() - static_cast<std::ptrdiff_t>(kMostUnsent));
  }
}

// ---- Attaching ----

// Whether this directory may use its key. The server stores one list of ranks for each job and
// node. So the ranks of a second directory with this key would replace the ranks of the first
// directory.
bool Node::TakeKey(const std::filesystem::path& directory, const Job& job) {
  auto& holder = holders_.try_emplace(job.key, directory).first->second;
  if (holder == directory) return true;
  Job& first = jobs_.at(holder);
  if (first.is_of_other_user) {
    holder = directory;
    return true;
  }
  if (job.is_of_other_user) return false;
  if (first.lifecycle.has_ended() || job.last_active > first.last_active + kIsOver) {
    log_.info("job {} continues in {}, no longer in {}", job.key, OneLine(directory.string()),
              OneLine(holder.string()));
    first.lifecycle.Apply(JobEvent::kClaimLost);
    holder = directory;
    return true;
  }
  if (first.last_active > job.last_active + kIsOver) return false;
  uplink_.WarnOnce(
      directory.string() + " is second",
      fmt::format("job {} has ranks in {} and in {} on one node, and those in the latter get no "
                  "plans (use one directory for all its ranks on this node, or run a perseus node "
                  "with another name for {})",
                  job.key, holder.string(), directory.string(), directory.string()));
  return false;
}

void Node::Attach(const std::filesystem::path& directory, Job& job, Nanoseconds now) {
  if (!job.lifecycle.NeedsRequest() || now < job.next_attach) return;
  const std::vector<protocol::RankHeader> ranks = job.ranks.Alive();
  if (ranks.empty()) return;
  job.is_second = !TakeKey(directory, job);
  if (job.is_second || !uplink_.IsUsable(now)) return;
  job.next_attach = now + kRetryAfter;
  const std::string body = protocol::FormatAttachment(AttachmentOf(
      ranks, job.lifecycle.has_restarted(), options_.instance, job.directory_id.owner));
  job.lifecycle.RequestSent();
  const auto answer =
      uplink_.Request({.method = "PUT", .target = JobTarget(job), .body = body}, now);
  if (!answer) return;
  if (!IsSuccess(*answer)) return TakeRefusal(directory, job, *answer);
  TakeAcceptance(job, *answer);
  log_.info("{} ranks of job {} are attached", ranks.size(), job.key);
}

// Checks whether the server has the job. Before the ranks start, the node sends no other request
// that would reveal a missing job or a wrong token.
void Node::CheckRegistered(Job& job, Nanoseconds now) {
  if (job.is_registered || job.lifecycle.has_ended() || now < job.next_check) return;
  // If ranks run, the request that attaches them answers the same question.
  if (!job.ranks.Alive().empty() || !uplink_.IsUsable(now)) return;
  job.next_check = now + kRetryAfter;
  const auto answer = uplink_.Request(
      {.target = fmt::format("/v1/jobs/{}/assignments?limit=1", http::PercentEncoded(job.key))},
      now);
  if (!answer) return;
  const std::string about = "finding " + job.key;
  if (answer->status == 404 && IsUnknownJob(*answer)) {
    uplink_.WarnOnce(about, fmt::format("the server does not have job {}: {}; ranks run without a "
                                        "plan until it does (perseus job register {})",
                                        job.key, ProblemText(*answer), job.key));
  }
  if (answer->status == 401 || answer->status == 403) {
    uplink_.WarnOnce(about,
                     fmt::format("the server refuses job {}: {}", job.key, ProblemText(*answer)));
  }
  if (!IsSuccess(*answer)) return;
  job.is_registered = true;
  uplink_.Recovered(about);
  log_.info("the server has job {}; no ranks of it run here yet", job.key);
}

void Node::TakeAcceptance(Job& job, const http::Response& answer) {
  uplink_.Recovered("attaching " + job.key);
  job.lifecycle.Apply(JobEvent::kAccepted);
  job.is_of_other_user = false;
  if (const std::string id = TextOf(answer, "job"); !id.empty()) TakeId(job, id);
  job.reported = {};
}

void Node::TakeRefusal(const std::filesystem::path& directory, Job& job,
                       const http::Response& answer) {
  // This directory gets nothing of the job, and another one with the same key goes first.
  if (IsOfAnotherUser(answer)) job.is_second = job.is_of_other_user = true;
  // The job existed earlier, when this process attached its ranks.
  if (IsUnknownJob(answer) && !job.id.empty()) TakeEnd(directory, job, {job.id});
  // If another process has the node's name, the stream of events reports it.
  if (job.lifecycle.has_ended() || IsNameConflict(answer)) return;
  uplink_.WarnOnce("attaching " + job.key,
                   fmt::format("the server does not accept the ranks of job {}: {}; the request is "
                               "repeated every 5 s",
                               job.key, ProblemText(answer)));
}

void Node::TakeId(Job& job, const std::string& id) {
  job.id = id;
  const auto newest = job.assignment.newest();
  if (!newest || newest->job == id) return;
  log_.info("{} is now another job with the same key; the old assignment is withdrawn", job.key);
  job.assignment.WantNothing();
  job.next_write = 0;
}

void Node::Detach(const Job& job, Nanoseconds now) {
  if (!job.lifecycle.is_attached() || !uplink_.IsUsable(now)) return;
  // If this request fails, the server later notices that the reports have stopped.
  static_cast<void>(uplink_.Request({.method = "DELETE", .target = JobTarget(job)}, now));
}

// Detaches the ranks of a training that has ended, after its last report. So the server
// distinguishes it from a training that was killed, whose ranks stay attached.
void Node::DetachEnded(Job& job, Nanoseconds now) {
  if (!job.lifecycle.is_attached() || !job.unsent.empty() || !job.ranks.HaveEnded()) return;
  if (now < job.next_attach || !uplink_.IsUsable(now)) return;
  job.next_attach = now + kRetryAfter;
  const auto answer = uplink_.Request({.method = "DELETE", .target = JobTarget(job)}, now);
  if (!answer || MayBeSentAgain(*answer)) return;
  job.lifecycle.Apply(JobEvent::kNotAttached);
  job.ranks.ForgetEnded();
  job.is_registered = true;  // No rank is alive, which is the state before the ranks start.
  log_.info("the training of job {} has ended on this node", job.key);
}

// ---- Assignment ----

// Stores the plan files that the event names. If a file cannot be stored, this file and those after
// it are fetched later, with a warning.
void Node::StoreFiles(Job& job, const protocol::AssignmentEvent& assignment) {
  for (const auto& [id, text] : assignment.files) {
    if (!job.assignment.Names(id) || job.assignment.HasPlan(id)) continue;
    if (!job.assignment.StorePlan(id, text)) return;
  }
}

void Node::FetchPlans(Job& job, Nanoseconds now) {
  if (now < job.next_fetch) return;
  for (const std::string& id : job.assignment.MissingPlans()) {
    if (!FetchPlan(job, id, now)) return;
  }
  // Fetches one upcoming plan in each turn, so that plans that are needed now do not wait.
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
  } else if (const auto kept = job.assignment.StorePlan(id, answer->body); !kept) {
    problem = kept.error().Message();
  }
  const std::string about = "plans of " + job.key;
  if (problem.empty()) {
    uplink_.Recovered(about);
    return true;
  }
  job.next_fetch = now + kRetryAfter;
  uplink_.WarnOnce(about, fmt::format("plan {} of job {} is not available: {}; ranks keep their "
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
    uplink_.WarnOnce(about, written.error().Message() + "; the assignment from the server waits");
    return;
  }
  uplink_.Recovered(about);
  if (const auto in_force = job.assignment.in_force()) {
    log_.info("job {} has assignment {} from the server", job.key, in_force->version);
  }
}

// ---- Reports ----

protocol::JobReport Node::ReportOf(const Job& job) const {
  protocol::JobReport report;
  if (sends_running_) report.running = job.ranks.running();
  report.job = job.id.empty() ? job.key : job.id;
  const auto in_force = job.assignment.in_force();
  if (in_force && (job.id.empty() || in_force->job == job.id)) {
    report.acknowledged = in_force->version;
  }
  // Ranks may still follow an assignment of an earlier job.
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
  for (auto& [directory, job] : jobs_) {
    if (!job.lifecycle.is_attached()) continue;
    protocol::JobReport report = ReportOf(job);
    is_new = is_new || !job.unsent.empty() || report.acknowledged != job.reported.acknowledged ||
             report.following != job.reported.following ||
             report.since_step != job.reported.since_step || report.running != job.reported.running;
    report.steps = job.unsent;
    reports.push_back(std::move(report));
  }
  if (reports.empty() || !is_new) return;
  next_report_ = now + kReportApart;
  for (std::span<const protocol::JobReport> rest = reports;
       !rest.empty() && uplink_.IsUsable(now);) {
    const auto part = rest.first(std::min(rest.size(), kMostJobsOfRequest));
    rest = rest.subspan(part.size());
    const auto answer = uplink_.Request(
        {.method = "POST",
         .target = fmt::format("/v1/nodes/{}/reports", http::PercentEncoded(options_.name)),
         .body = protocol::FormatReports(part)},
        now);
    if (answer) TakeAnswer(part, *answer, now);
  }
}

void Node::TakeAnswer(std::span<const protocol::JobReport> reports, const http::Response& response,
                      Nanoseconds now) {
  const std::map<std::string, std::string> refused = RefusedOf(response);
  if (!MayBeSentAgain(response)) {
    sends_running_ = Takes(response, protocol::kRunningKey);
    const bool had_key = std::ranges::any_of(
        reports, [](const protocol::JobReport& report) { return report.running.has_value(); });
    // An older server, after a newer one, refuses the key. The reports are sent again without it.
    if (had_key && !sends_running_ && (!IsSuccess(response) || !refused.empty())) return;
  }
  if (IsSuccess(response)) {
    uplink_.Recovered("report");
    report_by_ = now + kReportAtLeastEvery;
  } else {
    next_report_ = now + kSecond;
    uplink_.WarnOnce("report",
                     fmt::format("the server refuses reports: {}", ProblemText(response)));
    if (MayBeSentAgain(response)) return;
  }
  std::map<std::string, std::optional<int>> sent;
  for (const protocol::JobReport& report : reports) sent.emplace(report.job, report.running);
  const std::set<std::string> not_attached = NotAttachedOf(response);
  for (auto& [directory, job] : jobs_) {
    protocol::JobReport reported = ReportOf(job);
    const auto found = sent.find(reported.job);
    if (!job.lifecycle.is_attached() || found == sent.end()) continue;
    reported.running = found->second;
    job.reported = std::move(reported);
    job.unsent.clear();
    if (const auto why = refused.find(job.reported.job); why != refused.end()) {
      uplink_.WarnOnce(
          "report " + job.key,
          fmt::format("the server refuses the report of job {}: {}", job.key, why->second));
    }
    if (!not_attached.contains(job.reported.job)) continue;
    job.lifecycle.Apply(JobEvent::kNotAttached);
    uplink_.WarnOnce(
        "attaching " + job.key,
        fmt::format("the server no longer has ranks of job {} on this node: they are on "
                    "another node, or the job has ended; if they run another step, "
                    "they are attached again",
                    job.key));
  }
}

}  // namespace perseus::node
