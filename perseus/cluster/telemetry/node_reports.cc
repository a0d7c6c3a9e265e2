#include "perseus/cluster/telemetry/node_reports.h"

#include <algorithm>
#include <utility>

#include "perseus/base/random_id.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/telemetry/node_ranks.h"

namespace perseus::telemetry {
namespace {

constexpr Milliseconds kWriteNodeEvery = 5'000;
constexpr Milliseconds kWriteStepsEvery = 500;
// A detected straggler expires soon after the replica that detected it dies.
constexpr Milliseconds kDetectionLasts = 60'000;
constexpr int kAssignmentsRead = 16;
// A report must not be further ahead than this. No job runs this many steps between two reports.
constexpr std::int64_t kMaxStepsAhead = 1'000'000;
// After this many writes, the thread of another report continues to write, because the node of this
// report waits for its answer.
constexpr int kWritesInARow = 3;
constexpr std::int64_t kMostStepsApart = 16;
// How long the last report of a lost node stays known.
constexpr Milliseconds kForgetAfter = 60'000;

}  // namespace

class NodeReports::Writing {
 public:
  explicit Writing(NodeReports& reports) : reports_(reports) {}
  ~Writing() {
    const MutexLock lock(reports_.mutex_);
    reports_.is_writing_ = false;
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  NodeReports& reports_;
};

NodeReports::NodeReports(store::Store& store, JobWatches& watches, ReportCallbacks callbacks)
    : store_(store), watches_(watches), callbacks_(std::move(callbacks)), replica_(RandomHex(8)) {}

Result<std::vector<std::string>> NodeReports::Take(const std::string& node,
                                                   const std::vector<protocol::JobReport>& reports,
                                                   Milliseconds now) {
  std::vector<std::string> not_attached;
  for (const protocol::JobReport& report : reports) {
    PERSEUS_ASSIGN_OR_RETURN(const auto is_attached, TakeJob(node, report, now));
    if (!is_attached) not_attached.push_back(report.job);
  }
  PERSEUS_RETURN_IF_ERROR(WriteNoted());
  return not_attached;
}

Result<bool> NodeReports::TakeJob(const std::string& node, const protocol::JobReport& report,
                                  Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(const auto job, store_.FindJob(report.job));
  if (!job || job->ended != 0) return false;
  const std::shared_ptr<JobWatch> watch = watches_.Of(job->id, now);
  bool reads = watch->NeedsNodes(node, now, report.steps);
  if (reads) {
    const MutexLock lock(watch->reading());
    reads = watch->NeedsNodes(node, now, report.steps);
    if (reads) PERSEUS_RETURN_IF_ERROR(ReadNodes(job->id, *watch, now));
  }
  // If it is too soon to read the nodes again, a later answer says whether this node is attached.
  if (!watch->HasNode(node)) return !reads;
  NoteNode(node, job->id, report, now);
  if (const auto newest = std::max(report.acknowledged, report.following);
      newest > job->assignment_version) {
    PERSEUS_RETURN_IF_ERROR(store_.RaiseAssignmentVersion(job->id, newest, now));
  }
  watch->NoteReport(node, now);
  if (report.steps.empty()) return true;
  PERSEUS_ASSIGN_OR_RETURN(const auto judges, Judges(*job, *watch, now));
  if (judges) {
    PERSEUS_RETURN_IF_ERROR(Judge(node, *job, *watch, report.steps, now));
  } else {
    NoteForReplicas({.job = job->id, .node = node, .steps = report.steps});
  }
  return true;
}

Result<bool> NodeReports::Judges(const store::JobRecord& job, JobWatch& watch, Milliseconds now) {
  const auto role = watch.RoleAt(now, store_.has_replicas());
  if (role == JobWatch::Role::kDoesNotJudge) return false;
  if (role == JobWatch::Role::kJudges) return true;
  PERSEUS_RETURN_IF_ERROR(StartJudging(job, watch, now));
  return true;
}

Result<void> NodeReports::TakeFromReplica(const ReplicaMessage& message, Milliseconds now) {
  const auto watch = watches_.Find(message.job);
  if (message.replica == replica_ || !watch) return {};
  if (message.restarted) watch->Restart();
  // Ignore the message unless this replica is already the judge. A replica can become the judge
  // only when a node reports to it.
  if (message.steps.empty() || !watch->Judges(now)) return {};
  PERSEUS_ASSIGN_OR_RETURN(const auto job, store_.FindJob(message.job));
  if (!job || job->ended != 0) return {};
  PERSEUS_RETURN_IF_ERROR(Judge(message.node, *job, *watch, message.steps, now));
  return WriteNoted();
}

Result<void> NodeReports::Restart(const std::string& job) {
  if (const auto watch = watches_.Find(job)) watch->Restart();
  if (!store_.has_replicas()) return {};
  return store_.NotifyReplicas(
      FormatReplicaMessage({.replica = replica_, .job = job, .restarted = true}));
}

void NodeReports::NoteForReplicas(ReplicaMessage message) {
  message.replica = replica_;
  std::vector<std::string> texts = FormatReplicaMessage(message);
  const MutexLock lock(mutex_);
  // If the list is this long, the database is unavailable. Later steps are judged without these
  // steps.
  if (for_replicas_.size() > kMaxReplicaTexts) for_replicas_.clear();
  for (std::string& text : texts) for_replicas_.push_back(std::move(text));
}

void NodeReports::NoteNode(const std::string& node, const std::string& job,
                           const protocol::JobReport& report, Milliseconds now) {
  const MutexLock lock(mutex_);
  Known& known = known_[{job, node}];
  known.seen = now;
  if (!report.steps.empty()) known.ran = now;
  known.NoteLeases(report.steps);
  const int running = report.running.value_or(-1);
  const int without_lease = known.WithoutLease();
  if (known.acknowledged == report.acknowledged && known.following == report.following &&
      known.running == running && known.written_without_lease == without_lease &&
      IsWithin(kWriteNodeEvery, known.written, now)) {
    return;
  }
  known.acknowledged = report.acknowledged;
  known.following = report.following;
  known.running = running;
  known.written_without_lease = without_lease;
  known.written = now;
  if (!IsWithin(kForgetAfter, pruned_, now)) {
    pruned_ = now;
    std::erase_if(known_, [now](const auto& entry) {
      return !IsWithin(kForgetAfter, entry.second.written, now);
    });
  }
  seen_.push_back({.job = job,
                   .node = node,
                   .ranks = {},
                   .acknowledged = report.acknowledged,
                   .following = report.following,
                   .since_step = report.since_step,
                   .seen = now,
                   .ran = known.ran,
                   .running = running,
                   .without_lease = without_lease});
}

void NodeReports::Known::NoteLeases(const std::vector<protocol::StepReport>& steps) {
  for (const protocol::StepReport& step : steps) {
    without_lease[step.dp_rank] = {step.step, step.without_clocks};
    // Pipelines of a job are at the same step. Others are no longer on the node, or belong to an
    // earlier run.
    std::erase_if(without_lease, [&step](const auto& entry) {
      return std::abs(entry.second.first - step.step) > kMostStepsApart;
    });
  }
}

int NodeReports::Known::WithoutLease() const {
  int ranks = 0;
  for (const auto& [dp_rank, of_step] : without_lease) ranks += of_step.second;
  return ranks;
}

void NodeReports::AddLastReport(store::NodeRecord& node) const {
  const MutexLock lock(mutex_);
  const auto known = known_.find({node.job, node.node});
  if (known == known_.end()) return;
  node.seen = std::max(node.seen, known->second.seen);
  node.ran = std::max(node.ran, known->second.ran);
}

Result<void> NodeReports::WriteNoted() {
  for (int round = 0; round < kWritesInARow; ++round) {
    PERSEUS_ASSIGN_OR_RETURN(const auto wrote, WriteOnce());
    if (!wrote) return {};
  }
  return {};
}

Result<bool> NodeReports::WriteOnce() {
  std::vector<store::NodeRecord> seen;
  std::vector<store::StepRecord> steps;
  std::vector<std::string> for_replicas;
  {
    const MutexLock lock(mutex_);
    if (is_writing_ || (seen_.empty() && steps_.empty() && for_replicas_.empty())) return false;
    is_writing_ = true;
    seen.swap(seen_);
    for (auto& [job, step] : steps_) steps.push_back(std::move(step));
    steps_.clear();
    for_replicas.swap(for_replicas_);
  }
  // If the store throws, the next report writes.
  const Writing writing(*this);
  if (!for_replicas.empty()) PERSEUS_RETURN_IF_ERROR(store_.NotifyReplicas(for_replicas));
  if (!seen.empty()) PERSEUS_RETURN_IF_ERROR(store_.Acknowledge(seen));
  if (!steps.empty()) PERSEUS_RETURN_IF_ERROR(store_.RecordSteps(std::move(steps)));
  return true;
}

void NodeReports::NoteStep(const std::string& job, JobWatch& watch, Milliseconds now) {
  using Counts = store::StepRecord::Counts;
  store::StepRecord step{.job = job,
                         .counts = watch.TakeRestart() ? Counts::kRestart : Counts::kContinue,
                         .step = watch.last_step(),
                         .summary = watch.Summary(),
                         .at = now};
  const MutexLock lock(mutex_);
  store::StepRecord& noted = steps_[job];
  // The earlier note, which is not written yet, may be the first note after a restart. The new note
  // has to keep this fact.
  if (noted.counts == Counts::kRestart) step.counts = Counts::kRestart;
  noted = std::move(step);
}

Result<void> NodeReports::Judge(const std::string& node, const store::JobRecord& job,
                                JobWatch& watch, const std::vector<protocol::StepReport>& steps,
                                Milliseconds now) {
  const JobWatch::Settings settings = watch.settings();
  if (watch.NeedsNotices(job.generation)) {
    PERSEUS_ASSIGN_OR_RETURN(const auto stragglers, store_.ListStragglers(job.id));
    watch.SetNotices(stragglers, job.generation);
  }
  std::vector<StragglerChange> changes;
  for (const protocol::StepReport& step : steps) {
    const bool is_too_far = job.last_step >= 0 && step.step > job.last_step + kMaxStepsAhead;
    if (step.dp_rank >= settings.pipelines || is_too_far) continue;
    PERSEUS_ASSIGN_OR_RETURN(const auto expected_s, ExpectedTime(job, watch, step));
    const auto of_step = watch.Add(node, step, expected_s, now);
    changes.insert(changes.end(), of_step.begin(), of_step.end());
  }
  if (callbacks_.judged) callbacks_.judged(watch.TakeJudgedEnergy());
  if (watch.IsDue(now, kWriteStepsEvery)) {
    NoteStep(job.id, watch, now);
    PERSEUS_RETURN_IF_ERROR(GuardPlan(job, watch, now));
  }
  if (!settings.detects_stragglers) return {};
  PERSEUS_RETURN_IF_ERROR(StoreStragglers(job.id, std::move(changes), now));
  return StoreNotices(job, watch.TakeNoticeChanges(), now);
}

Result<void> NodeReports::GuardPlan(const store::JobRecord& job, const JobWatch& watch,
                                    Milliseconds now) {
  const StepTimes times = watch.GuardedSteps();
  if (times.steps < kGuardSteps) return {};
  // A newer assignment, such as one for a straggler, may be on its way to the nodes.
  const bool is_newest =
      times.version == job.assignment_version && job.planned_generation == job.generation;
  if (!is_newest) return {};
  PERSEUS_ASSIGN_OR_RETURN(const auto guard, store_.FindGuard(job));
  auto next = NextGuard(guard, times, watch.settings().most_harm, now);
  if (!next) return {};
  next->job = job.id;
  next->profile_version = job.profile_version;
  next->target = job.target;
  if (next->state == store::GuardState::kTrial) next->why = watch.Problem();
  const auto state = guard ? std::optional(guard->state) : std::nullopt;
  PERSEUS_ASSIGN_OR_RETURN(const bool is_new, store_.PutGuard(*next, state, now));
  if (is_new && callbacks_.guarded) callbacks_.guarded(job.key, *next);
  return {};
}

Result<void> NodeReports::StoreNotices(const store::JobRecord& job,
                                       const std::vector<NoticeChange>& changes, Milliseconds now) {
  for (const NoticeChange& change : changes) {
    PERSEUS_RETURN_IF_ERROR(store_.MarkStraggler({.job = job.id,
                                                  .dp_rank = change.dp_rank,
                                                  .source = change.source,
                                                  .slowdown = change.slowdown,
                                                  .suspended = change.is_suspended ? now : 0,
                                                  .measured = change.measured},
                                                 now));
    if (callbacks_.noticed) callbacks_.noticed(job.key, change);
  }
  return {};
}

Result<void> NodeReports::StartJudging(const store::JobRecord& job, JobWatch& watch,
                                       Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(const auto spec, job_planning::StoredJobSpec(job.body));
  PERSEUS_ASSIGN_OR_RETURN(const auto stragglers, store_.ListStragglers(job.id));
  std::map<int, double> raised;
  for (const store::StragglerRecord& straggler : stragglers) {
    if (straggler.source == store::StragglerSource::kDetected && straggler.expires > now) {
      raised[straggler.dp_rank] = straggler.slowdown;
    }
  }
  watch.StartJudging({.pipelines = spec.planned.pipelines,
                      .detects_stragglers = spec.detects_stragglers,
                      .most_harm = spec.most_harm_percent / 100},
                     raised, now);
  return {};
}

Result<void> NodeReports::ReadNodes(const std::string& job, JobWatch& watch, Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(const auto records, store_.ListNodesOfJob(job));
  std::map<int, std::set<std::string>> nodes;
  std::string first;
  bool is_first_lost = true;
  for (const store::NodeRecord& record : records) {
    PERSEUS_ASSIGN_OR_RETURN(const auto ranks, ParseNodeRanks(record.ranks));
    for (const auto& [pipeline, ignored] : ranks) nodes[pipeline].insert(record.node);
    const bool is_lost = record.seen + kNodeIsSilentAfter < now;
    if (std::pair(is_lost, record.node) < std::pair(is_first_lost, first) || first.empty()) {
      first = record.node;
      is_first_lost = is_lost;
    }
  }
  watch.SetNodes(std::move(nodes), first, now);
  return {};
}

Result<void> NodeReports::StoreStragglers(const std::string& job,
                                          std::vector<StragglerChange> changes, Milliseconds now) {
  for (const StragglerChange& change : changes) {
    if (change.slowdown == 1) {
      PERSEUS_RETURN_IF_ERROR(
          store_.DeleteStraggler(job, change.dp_rank, store::StragglerSource::kDetected, now));
      continue;
    }
    PERSEUS_RETURN_IF_ERROR(store_.PutStraggler({.job = job,
                                                 .dp_rank = change.dp_rank,
                                                 .source = store::StragglerSource::kDetected,
                                                 .slowdown = change.slowdown,
                                                 .starts = now,
                                                 .expires = now + kDetectionLasts},
                                                now));
  }
  return {};
}

Result<double> NodeReports::ExpectedTime(const store::JobRecord& job, JobWatch& watch,
                                         const protocol::StepReport& step) {
  const bool is_known = step.version <= job.assignment_version &&
                        step.version + kAssignmentsRead > job.assignment_version;
  if (!is_known) return 0;
  if (!watch.Knows(step.version)) PERSEUS_RETURN_IF_ERROR(Learn(job.id, watch, step.version));
  return watch.ExpectedTime(step.version, step.dp_rank);
}

Result<void> NodeReports::Learn(const std::string& job, JobWatch& watch, std::int64_t version) {
  const MutexLock lock(watch.reading());
  if (watch.Knows(version)) return {};
  PERSEUS_ASSIGN_OR_RETURN(const auto assignments, store_.ListAssignments(job, kAssignmentsRead));
  for (const store::AssignmentRecord& record : assignments) {
    watch.Learn(record.version, record.assignment);
  }
  // If the assignment does not exist, the version is from a database that was lost.
  if (!watch.Knows(version)) watch.Learn(version, store::PlannedAssignment());
  return {};
}

}  // namespace perseus::telemetry
