#include "perseus/server/node_reports.h"

#include <algorithm>
#include <array>
#include <utility>

#include "perseus/server/event_hub.h"
#include "perseus/server/job_spec.h"

namespace perseus {
namespace {

using json_file::Node;

constexpr int kDeepest = 6;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;
constexpr double kMostSeconds = 1e6;
constexpr double kMostJoules = 1e12;
constexpr std::size_t kMostReports = 10'000;
constexpr Milliseconds kTellEvery = 5'000;
constexpr Milliseconds kStepsEvery = 500;
// A straggler whose detector died with its replica is none soon after.
constexpr Milliseconds kDetectionLasts = 60'000;
constexpr int kOrdersLookedThrough = 16;
// A step's number that no job comes to between two reports.
constexpr std::int64_t kFarthestAhead = 1'000'000;
// Then it is another report's turn: this one's node waits for its answer.
constexpr int kWritesInARow = 3;

ReportedStep ReadStep(const Node& node) {
  constexpr std::array<std::string_view, 7> kKeys{"step",     "pipeline", "time_s", "busy_s",
                                                  "energy_j", "version",  "ranks"};
  node.RequireObject(kKeys);
  ReportedStep step;
  step.step = node.Member("step").Whole(0, kMostSteps, "a step's number");
  step.pipeline = node.Member("pipeline").Count(0, 999'999, "a pipeline, from 0");
  step.busy_s = node.Member("busy_s").Number(0, kMostSeconds, "seconds");
  if (node.Has("time_s")) step.time_s = node.Member("time_s").Number(0, kMostSeconds, "seconds");
  if (node.Has("energy_j")) {
    step.energy_j = node.Member("energy_j").Number(0, kMostJoules, "joules");
  }
  if (node.Has("version")) step.version = node.Member("version").Whole(0, kMostSteps, "a version");
  step.ranks = node.Member("ranks").Count(1, 999'999, "how many ranks it is of");
  return step;
}

NodeJobReport ReadReport(const Node& node) {
  constexpr std::array<std::string_view, 5> kKeys{"job", "acknowledged", "following", "since_step",
                                                  "steps"};
  node.RequireObject(kKeys);
  NodeJobReport report;
  report.job = node.Member("job").Text();
  const auto whole = [&](std::string_view key, std::int64_t least, std::int64_t& value) {
    if (node.Has(key)) value = node.Member(key).Whole(least, kMostSteps, "a whole number");
  };
  whole("acknowledged", 0, report.acknowledged);
  whole("following", 0, report.following);
  whole("since_step", -1, report.since_step);
  if (node.Has("steps")) {
    const Node steps = node.Member("steps");
    for (std::size_t i = 0; i < steps.ListSize(); ++i) report.steps.push_back(ReadStep(steps[i]));
  }
  return report;
}

}  // namespace

Answer<std::vector<NodeJobReport>> ReadReports(std::string_view body) {
  return ReadBody(body, kDeepest, [](const Node& node) {
    constexpr std::array<std::string_view, 1> kKeys{"jobs"};
    node.RequireObject(kKeys);
    const Node jobs = node.Member("jobs");
    if (jobs.ListSize() > kMostReports) {
      json_file::ThrowAt(jobs.path, "has more than {} jobs (send them in parts)", kMostReports);
    }
    std::vector<NodeJobReport> reports;
    for (std::size_t i = 0; i < jobs.ListSize(); ++i) reports.push_back(ReadReport(jobs[i]));
    return reports;
  });
}

Result<void> NodeReports::Take(const std::string& node, const std::vector<NodeJobReport>& reports,
                               Milliseconds now) {
  for (const NodeJobReport& report : reports) {
    if (auto taken = TakeJob(node, report, now); !taken) return taken;
  }
  return WriteSeen();
}

Result<void> NodeReports::TakeJob(const std::string& node, const NodeJobReport& report,
                                  Milliseconds now) {
  const auto job = store_.FindJob(report.job);
  if (!job) return Fail(job);
  if (!*job || (*job)->ended != 0) return {};
  See(node, (*job)->id, report, now);
  if (report.steps.empty()) return {};
  return TakeSteps(node, **job, report, now);
}

void NodeReports::See(const std::string& node, const std::string& job, const NodeJobReport& report,
                      Milliseconds now) {
  const MutexLock lock(mutex_);
  Known& known = known_[{job, node}];
  if (known.acknowledged == report.acknowledged && known.following == report.following &&
      now - known.told < kTellEvery) {
    return;
  }
  known = {report.acknowledged, report.following, now};
  // Nodes that are gone.
  if (known_.size() > 100'000) {
    std::erase_if(known_, [now](const auto& entry) { return now - entry.second.told > 60'000; });
  }
  NodeRecord record;
  record.job = job;
  record.node = node;
  record.acknowledged = report.acknowledged;
  record.following = report.following;
  record.since_step = report.since_step;
  record.seen = now;
  seen_.push_back(std::move(record));
}

Result<void> NodeReports::WriteSeen() {
  for (int round = 0; round < kWritesInARow; ++round) {
    std::vector<NodeRecord> seen;
    {
      const MutexLock lock(mutex_);
      if (is_writing_ || seen_.empty()) return {};
      is_writing_ = true;
      seen.swap(seen_);
    }
    auto told = store_.Acknowledge(seen);
    const MutexLock lock(mutex_);
    is_writing_ = false;
    if (!told) return told;
  }
  return {};
}

Result<void> NodeReports::TakeSteps(const std::string& node, const JobRecord& job,
                                    const NodeJobReport& report, Milliseconds now) {
  const std::shared_ptr<JobWatch> watch = watches_.Of(job.id, now);
  if (!watch->settings()) {
    const auto spec = StoredJobSpec(job.body);
    if (!spec) return Fail(spec);
    watch->SetSettings({spec->planned.pipelines, spec->detects_stragglers});
    if (auto taken = TakeOver(job.id, *watch, now); !taken) return taken;
  }
  if (watch->WantsNodes(node, now)) {
    if (auto looked = LookAtNodes(job.id, *watch, now); !looked) return looked;
  }
  const JobWatch::Settings settings = *watch->settings();
  std::vector<StragglerChange> changes;
  for (const ReportedStep& step : report.steps) {
    const bool is_absurd = job.last_step >= 0 && step.step > job.last_step + kFarthestAhead;
    if (step.pipeline >= settings.pipelines || is_absurd) continue;
    const auto expected_s = ExpectedTime(job.id, *watch, step);
    if (!expected_s) return Fail(expected_s);
    const auto of_step = watch->Add(node, step, *expected_s, now);
    changes.insert(changes.end(), of_step.begin(), of_step.end());
  }
  if (watch->IsDue(now, kStepsEvery)) {
    const auto steps = watch->HasBegunAnew() ? Store::Steps::kAnew : Store::Steps::kOn;
    auto told = store_.Heartbeat(job.id, steps, watch->last_step(), watch->Summary(), now);
    if (!told) return told;
  }
  if (settings.pipelines < 2 || !settings.detects_stragglers) return {};
  return TellStragglers(job.id, std::move(changes), now);
}

// What a detector that is gone had raised.
Result<void> NodeReports::TakeOver(const std::string& job, JobWatch& watch, Milliseconds now) {
  const auto stragglers = store_.Stragglers(job);
  if (!stragglers) return Fail(stragglers);
  for (const StragglerRecord& straggler : *stragglers) {
    if (straggler.source == "detected" && straggler.expires > now) {
      watch.Raise(straggler.pipeline, straggler.slowdown, now);
    }
  }
  return {};
}

Result<void> NodeReports::LookAtNodes(const std::string& job, JobWatch& watch, Milliseconds now) {
  const auto records = store_.NodesOf(job);
  if (!records) return Fail(records);
  std::map<int, std::set<std::string>> nodes;
  for (const NodeRecord& record : *records) {
    const auto ranks = ParseNodeRanks(record.ranks);
    if (!ranks) return Fail(ranks);
    for (const auto& [pipeline, ignored] : *ranks) nodes[pipeline].insert(record.node);
  }
  watch.SetNodes(std::move(nodes), now);
  return {};
}

Result<void> NodeReports::TellStragglers(const std::string& job,
                                         std::vector<StragglerChange> changes, Milliseconds now) {
  for (const StragglerChange& change : changes) {
    if (change.slowdown == 1) {
      const auto deleted = store_.DeleteStraggler(job, change.pipeline, "detected", now);
      if (!deleted) return Fail(deleted);
      continue;
    }
    auto put = store_.PutStraggler({.job = job,
                                    .pipeline = change.pipeline,
                                    .source = "detected",
                                    .slowdown = change.slowdown,
                                    .starts = now,
                                    .expires = now + kDetectionLasts},
                                   now);
    if (!put) return put;
  }
  return {};
}

Result<double> NodeReports::ExpectedTime(const std::string& job, JobWatch& watch,
                                         const ReportedStep& step) {
  if (!watch.Knows(step.version)) {
    const auto orders = store_.ListOrders(job, kOrdersLookedThrough);
    if (!orders) return Fail(orders);
    for (const OrdersRecord& record : *orders) {
      auto parsed = ParsePlannedOrders(record.body);
      if (!parsed) return Fail(parsed);
      watch.Learn(record.version, *parsed);
    }
  }
  return watch.ExpectedTime(step.version, step.pipeline);
}

}  // namespace perseus
