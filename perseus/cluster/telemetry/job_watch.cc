#include "perseus/cluster/telemetry/job_watch.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/statistics.h"

namespace perseus::telemetry {
namespace {

constexpr std::size_t kVersionsKept = 16;
// If a job is slower or uses more energy than promised by more than this fraction, it needs an
// explanation.
constexpr double kTolerance = 0.01;
// Above this number of nodes, JobWatch forgets the nodes that have not reported for a while.
constexpr std::size_t kMaxReportingNodes = 1000;

nlohmann::ordered_json PromiseJson(std::int64_t version, const Promise& promise) {
  nlohmann::ordered_json json{{"version", version},
                              {"steps", promise.steps},
                              {"promised_s", promise.promised_s},
                              {"measured_s", promise.measured_s}};
  if (promise.promised_j) json["promised_j"] = *promise.promised_j;
  if (promise.measured_j) json["measured_j"] = *promise.measured_j;
  if (promise.limited_ranks > 0) json["limited_ranks"] = promise.limited_ranks;
  if (promise.ranks_without_clocks > 0) {
    json["ranks_without_clocks"] = promise.ranks_without_clocks;
  }
  const std::string problem = ExplainPromise(promise, kTolerance);
  if (!problem.empty()) json["problem"] = problem;
  auto pipelines = nlohmann::ordered_json::object();
  for (const auto& [dp_rank, pipeline] : promise.pipelines) {
    auto& of_pipeline = pipelines[std::to_string(dp_rank)];
    of_pipeline["time_ratio"] = pipeline.time_ratio;
    if (pipeline.energy_ratio) of_pipeline["energy_ratio"] = *pipeline.energy_ratio;
  }
  json["pipelines"] = std::move(pipelines);
  return json;
}

// Returns by how many seconds the slowest pipeline lengthened the step. Each pipeline is compared
// with its expected time, as in straggler_detector.h, but for this step alone.
double Straggling(const MeasuredStep& step, const std::vector<double>& expected_s) {
  std::vector<double> ratios;
  double slowest_s = 0;
  double longest_s = 0;
  for (const auto& [dp_rank, pipeline] : step.pipelines) {
    const auto index = static_cast<std::size_t>(dp_rank);
    if (index >= expected_s.size() || !(expected_s[index] > 0)) return 0;
    ratios.push_back(pipeline.busy_s / expected_s[index]);
    slowest_s = std::max(slowest_s, pipeline.busy_s);
    longest_s = std::max(longest_s, expected_s[index]);
  }
  if (ratios.empty()) return 0;
  return std::max(0.0, slowest_s - longest_s * LowerMedian(std::move(ratios)));
}

}  // namespace

bool IsWithin(Milliseconds pause, Milliseconds then, Milliseconds now) {
  return then - pause < now && now < then + pause;
}

std::int64_t JobWatch::last_step() const {
  const MutexLock lock(mutex_);
  return last_step_;
}

JobWatch::Followed JobWatch::FollowedSteps() const {
  Followed followed;
  for (const auto& [step, pipelines] : steps_) {
    for (const auto& [pipeline, nodes] : pipelines) {
      for (const auto& [node, report] : nodes) {
        followed.version = std::max(followed.version, report.version);
      }
    }
  }
  const auto assignment = assignments_.find(followed.version);
  if (followed.version == 0 || assignment == assignments_.end()) return followed;
  followed.assignment = &assignment->second;
  bool is_first = true;  // In the first step, ranks may have changed plans.
  for (const auto& [step, pipelines] : steps_) {
    if (step == last_step_) continue;  // Some nodes may not have reported this step yet.
    MeasuredStep of_step;
    bool follows = static_cast<int>(pipelines.size()) == settings_.pipelines;
    for (const auto& [pipeline, nodes] : pipelines) {
      MeasuredStep::Pipeline& of_pipeline = of_step.pipelines[pipeline];
      of_pipeline.energy_j = 0;
      for (const auto& [node, report] : nodes) {
        follows = follows && report.version == followed.version;
        of_step.time_s = std::max(of_step.time_s, report.time_s);
        of_step.limited_ranks += report.limited;
        of_step.ranks_without_clocks += report.without_clocks;
        of_pipeline.busy_s = std::max(of_pipeline.busy_s, report.busy_s);
        if (!report.energy_j) of_pipeline.energy_j.reset();
        if (of_pipeline.energy_j) *of_pipeline.energy_j += *report.energy_j;
      }
    }
    if (follows && !std::exchange(is_first, false)) followed.steps.push_back(std::move(of_step));
  }
  return followed;
}

std::optional<std::pair<std::int64_t, Promise>> JobWatch::CurrentPromise() const {
  const Followed followed = FollowedSteps();
  if (followed.assignment == nullptr) return std::nullopt;
  auto promise = ComparePromise(*followed.assignment, followed.steps);
  if (!promise) return std::nullopt;
  return std::pair(followed.version, *std::move(promise));
}

std::string JobWatch::Problem() const {
  const MutexLock lock(mutex_);
  const auto promise = CurrentPromise();
  return promise ? ExplainPromise(promise->second, settings_.most_harm) : "";
}

StepTimes JobWatch::GuardedSteps() const {
  const MutexLock lock(mutex_);
  const Followed followed = FollowedSteps();
  if (followed.assignment == nullptr || followed.assignment->time_s <= 0) return {};
  const bool has_plans = !followed.assignment->pipelines.empty();
  const bool leaves_out = has_plans && settings_.detects_stragglers;
  std::vector<double> times;
  for (const MeasuredStep& step : followed.steps) {
    // Ranks without a lease do not follow the plan, so their steps do not speak against it.
    if (!(step.time_s > 0) || step.ranks_without_clocks > 0) continue;
    const double straggling = leaves_out ? Straggling(step, expected_.at(followed.version)) : 0;
    times.push_back(step.time_s - straggling);
  }
  StepTimes summary = SummarizeTimes(std::move(times), followed.assignment->time_s);
  summary.version = followed.version;
  summary.has_plans = has_plans;
  return summary;
}

JudgedEnergy JobWatch::TakeJudgedEnergy() {
  const MutexLock lock(mutex_);
  return std::exchange(judged_, {});
}

// Adds the energy of a step of a pipeline. Counts each step of each pipeline once.
void JobWatch::CountEnergy(const protocol::StepReport& step, const Nodes& nodes) {
  const auto assignment = assignments_.find(step.version);
  if (assignment == assignments_.end() || assignment->second.pipelines.empty()) return;
  double energy_j = 0;
  for (const auto& [node, report] : nodes) {
    if (!report.energy_j || report.version != step.version || report.without_clocks > 0) return;
    energy_j += *report.energy_j;
  }
  if (!judged_steps_[step.step].insert(step.dp_rank).second) return;
  while (judged_steps_.size() > kWindow) judged_steps_.erase(judged_steps_.begin());
  judged_.baseline_j += assignment->second.baseline_energy_j;
  judged_.measured_j += energy_j;
}

std::string JobWatch::Summary() const {
  struct Sum {
    double busy_s = 0;
    int steps = 0;
    double energy_j = 0;
    int steps_with_energy = 0;
  };
  double time_s = 0;
  int timed = 0;
  std::map<int, Sum> sums;
  std::optional<std::pair<std::int64_t, Promise>> promise;
  {
    const MutexLock lock(mutex_);
    promise = CurrentPromise();
    // Some nodes may not have reported the newest step yet.
    for (const auto& [step, pipelines] : steps_) {
      if (step == last_step_) continue;
      double longest_s = 0;
      for (const auto& [pipeline, nodes] : pipelines) {
        double busy_s = 0;
        double energy_j = 0;
        bool is_energy_known = true;
        for (const auto& [node, of_node] : nodes) {
          longest_s = std::max(longest_s, of_node.time_s);
          busy_s = std::max(busy_s, of_node.busy_s);
          is_energy_known = is_energy_known && of_node.energy_j.has_value();
          energy_j += of_node.energy_j.value_or(0);
        }
        Sum& sum = sums[pipeline];
        sum.busy_s += busy_s;
        ++sum.steps;
        if (!is_energy_known) continue;
        sum.energy_j += energy_j;
        ++sum.steps_with_energy;
      }
      if (longest_s == 0) continue;
      time_s += longest_s;
      ++timed;
    }
  }
  nlohmann::ordered_json json;
  if (timed > 0) json["step_s"] = time_s / timed;
  auto pipelines = nlohmann::ordered_json::object();
  for (const auto& [pipeline, sum] : sums) {
    auto& of_pipeline = pipelines[std::to_string(pipeline)];
    of_pipeline["busy_s"] = sum.busy_s / sum.steps;
    if (sum.steps_with_energy > 0) of_pipeline["energy_j"] = sum.energy_j / sum.steps_with_energy;
  }
  json["pipelines"] = std::move(pipelines);
  if (promise) json["promise"] = PromiseJson(promise->first, promise->second);
  return JsonText(json);
}

std::vector<StragglerChange> JobWatch::Add(const std::string& node,
                                           const protocol::StepReport& step, double expected_s,
                                           Milliseconds now) {
  const MutexLock lock(mutex_);
  if (!HasRanks(node, step.dp_rank)) return {};
  const auto [newest, is_first] = newest_.try_emplace(node, step.step);
  if (step.step + kMaxUnsent < newest->second) {
    ForgetSteps();
    newest_ = {{node, step.step}};
    has_restarted_ = true;
    detector_.Restart();
  } else {
    newest->second = std::max(newest->second, step.step);
  }
  std::vector<StragglerChange> changes;
  if (step.step + static_cast<std::int64_t>(kWindow) <= last_step_) return changes;
  last_step_ = std::max(last_step_, step.step);
  Nodes& nodes = steps_[step.step][step.dp_rank];
  nodes[node] = step;
  while (steps_.size() > kWindow) steps_.erase(steps_.begin());
  const auto expected_nodes = nodes_.find(step.dp_rank);
  const bool is_whole = expected_nodes != nodes_.end() &&
                        std::ranges::all_of(expected_nodes->second, [&](const std::string& name) {
                          return nodes.contains(name);
                        });
  // Without an assignment of the server, clocks may have any value, because `perseus tune` may
  // choose them. Such steps are not judged.
  if (!is_whole || step.version == 0) return changes;
  CountEnergy(step, nodes);
  // Ranks without a lease run at other clocks than planned, so their times say nothing about the
  // pipeline.
  const auto lacks_lease = [](const auto& of_node) { return of_node.second.without_clocks > 0; };
  if (std::ranges::any_of(nodes, lacks_lease)) return changes;
  double busy_s = 0;
  for (const auto& [name, of_node] : nodes) busy_s = std::max(busy_s, of_node.busy_s);
  StragglerVerdicts verdicts = detector_.Add({.step = step.step,
                                              .dp_rank = step.dp_rank,
                                              .busy_s = busy_s,
                                              .expected_s = expected_s,
                                              .version = step.version});
  changes = std::move(verdicts.changes);
  std::set<int> detected;
  for (const auto& [pipeline, slowdown] : detector_.Stragglers()) detected.insert(pipeline);
  for (const auto& ratios : verdicts.ratios) {
    auto of_step = notices_.Add(ratios, detected, now);
    notice_changes_.insert(notice_changes_.end(), of_step.begin(), of_step.end());
  }
  for (const auto& [pipeline, slowdown] : verdicts.unchanged) {
    if (!IsWithin(kRenew, returned_[pipeline], now)) changes.push_back({pipeline, slowdown});
  }
  for (const StragglerChange& change : changes) returned_[change.dp_rank] = now;
  return changes;
}

std::vector<NoticeChange> JobWatch::TakeNoticeChanges() {
  const MutexLock lock(mutex_);
  return std::exchange(notice_changes_, {});
}

bool JobWatch::NeedsNotices(std::int64_t generation) const {
  const MutexLock lock(mutex_);
  return notices_generation_ != generation;
}

void JobWatch::SetNotices(const std::vector<store::StragglerRecord>& stragglers,
                          std::int64_t generation) {
  const MutexLock lock(mutex_);
  notices_.SetNotices(stragglers);
  notices_generation_ = generation;
}

void JobWatch::ForgetSteps() {
  steps_.clear();
  newest_.clear();
  judged_steps_.clear();
  last_step_ = -1;
}

void JobWatch::Restart() {
  const MutexLock lock(mutex_);
  ForgetSteps();
  detector_.Restart();
}

bool JobWatch::TakeRestart() {
  const MutexLock lock(mutex_);
  return std::exchange(has_restarted_, false);
}

bool JobWatch::HasRanks(const std::string& node, int pipeline) const {
  const auto nodes = nodes_.find(pipeline);
  return nodes != nodes_.end() && nodes->second.contains(node);
}

bool JobWatch::NeedsNodes(const std::string& node, Milliseconds now,
                          const std::vector<protocol::StepReport>& steps) const {
  const MutexLock lock(mutex_);
  bool is_known = all_nodes_.contains(node);
  for (const protocol::StepReport& step : steps) {
    is_known = is_known && HasRanks(node, step.dp_rank);
  }
  const Milliseconds pause =
      is_known ? kReadNodesEvery
               : Milliseconds(static_cast<std::int64_t>(all_nodes_.size() / kNodesAMillisecond));
  return !IsWithin(pause, read_nodes_at_, now);
}

void JobWatch::SetNodes(std::map<int, std::set<std::string>> nodes, const std::string& first,
                        Milliseconds now) {
  const MutexLock lock(mutex_);
  nodes_ = std::move(nodes);
  all_nodes_.clear();
  for (const auto& [pipeline, names] : nodes_) all_nodes_.insert(names.begin(), names.end());
  first_node_ = first;
  read_nodes_at_ = now;
}

bool JobWatch::HasNode(const std::string& node) const {
  const MutexLock lock(mutex_);
  return all_nodes_.contains(node);
}

void JobWatch::NoteReport(const std::string& node, Milliseconds now) {
  const MutexLock lock(mutex_);
  received_here_[node] = now;
  if (received_here_.size() <= kMaxReportingNodes) return;
  std::erase_if(received_here_,
                [now](const auto& entry) { return !IsWithin(kRecently, entry.second, now); });
}

bool JobWatch::ReceivesFirstNode(Milliseconds now) const {
  const auto received = received_here_.find(first_node_);
  return received != received_here_.end() && IsWithin(kRecently, received->second, now);
}

bool JobWatch::Judges(Milliseconds now) const {
  const MutexLock lock(mutex_);
  return judges_ && ReceivesFirstNode(now);
}

JobWatch::Role JobWatch::RoleAt(Milliseconds now, bool has_replicas) {
  const MutexLock lock(mutex_);
  if (has_replicas && !ReceivesFirstNode(now)) {
    judges_ = false;
    return Role::kDoesNotJudge;
  }
  return judges_ ? Role::kJudges : Role::kStartsToJudge;
}

void JobWatch::StartJudging(const Settings& settings, const std::map<int, double>& raised,
                            Milliseconds now) {
  const MutexLock lock(mutex_);
  if (judges_) return;
  judges_ = true;
  settings_ = settings;
  ForgetSteps();
  returned_.clear();
  has_restarted_ = false;
  detector_ = StragglerDetector();
  notices_ = NoticeCheck();
  notices_generation_ = -1;
  notice_changes_.clear();
  for (const auto& [pipeline, slowdown] : raised) {
    detector_.Raise(pipeline, slowdown);
    returned_[pipeline] = now;
  }
}

JobWatch::Settings JobWatch::settings() const {
  const MutexLock lock(mutex_);
  return settings_;
}

bool JobWatch::Knows(std::int64_t version) const {
  const MutexLock lock(mutex_);
  return version == 0 || expected_.contains(version);
}

void JobWatch::Learn(std::int64_t version, const store::PlannedAssignment& assignment) {
  std::vector<double> times;
  // Subtract the tail, because reported times end with the last instruction.
  for (const store::PlannedAssignment::Share& share : assignment.pipelines) {
    times.push_back(share.time_s - assignment.tail_s);
  }
  const MutexLock lock(mutex_);
  // Without plans, ranks run at the default clocks. Stragglers are detected in this case, too.
  if (times.empty() && assignment.baseline_time_s > assignment.tail_s) {
    times.assign(static_cast<std::size_t>(settings_.pipelines),
                 assignment.baseline_time_s - assignment.tail_s);
  }
  expected_[version] = std::move(times);
  while (expected_.size() > kVersionsKept) expected_.erase(expected_.begin());
  assignments_[version] = assignment;
  while (assignments_.size() > kVersionsKept) assignments_.erase(assignments_.begin());
}

double JobWatch::ExpectedTime(std::int64_t version, int pipeline) const {
  const MutexLock lock(mutex_);
  const auto found = expected_.find(version);
  if (found == expected_.end() || pipeline < 0 ||
      pipeline >= static_cast<int>(found->second.size())) {
    return 0;
  }
  return found->second[static_cast<std::size_t>(pipeline)];
}

bool JobWatch::IsDue(Milliseconds now, Milliseconds pause) {
  const MutexLock lock(mutex_);
  if (IsWithin(pause, stored_, now)) return false;
  stored_ = now;
  return true;
}

std::map<int, double> JobWatch::Stragglers() const {
  const MutexLock lock(mutex_);
  return detector_.Stragglers();
}

std::shared_ptr<JobWatch> JobWatches::Of(const std::string& job, Milliseconds now) {
  const MutexLock lock(mutex_);
  Watched& watched = watches_[job];
  if (!watched.watch) watched.watch = std::make_shared<JobWatch>();
  watched.used = now;
  return watched.watch;
}

std::shared_ptr<JobWatch> JobWatches::Find(const std::string& job) const {
  const MutexLock lock(mutex_);
  const auto found = watches_.find(job);
  return found == watches_.end() ? nullptr : found->second.watch;
}

void JobWatches::Forget(const std::string& job) {
  const MutexLock lock(mutex_);
  watches_.erase(job);
}

void JobWatches::ForgetBefore(Milliseconds time) {
  const MutexLock lock(mutex_);
  std::erase_if(watches_, [time](const auto& entry) { return entry.second.used < time; });
}

int JobWatches::jobs() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(watches_.size());
}

}  // namespace perseus::telemetry
