#include "perseus/runtime/tuner/pace_keeping.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "perseus/base/statistics.h"
#include "perseus/base/wording.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/tuner/conductor.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "perseus/runtime/tuner/pace_rule.h"
#include "perseus/runtime/tuner/paced_plans.h"
#include "perseus/runtime/tuner/tuned_job.h"
#include "perseus/runtime/tuner/verification.h"

namespace perseus::tuner {
namespace {

constexpr Nanoseconds kLookEvery = 50'000'000;
// A step is judged without the ranks that are further behind.
constexpr std::int64_t kMostBehind = 3;
constexpr std::int64_t kStepsKept = 32;
// How long a temporary assignment lasts if it is not renewed.
constexpr double kLeaseSeconds = 60;
constexpr std::int64_t kLeastLeaseSteps = 50;
// The steps before and after a change that show whether it made steps longer.
constexpr int kJudgedSteps = 8;
constexpr double kMostHarm = 0.001;
constexpr double kStandardErrorsOfHarm = 4;
// Pipelines whose factors differ by less share a plan.
constexpr double kLeastStep = 0.001;

// What a change needs from `tune`.
struct KnownJob {
  std::set<protocol::RankId> ranks;
  profiler::SweepJob sweep;
  std::vector<AlikePipelines> groups;
  std::optional<noise::Noise> noise;
  Meeting meeting = Meeting::kOnceAStep;
};

// The plan of a pipeline.
struct FollowedPlan {
  std::shared_ptr<const plan_file::PlanFile> file;
  PlannedPace pace;
};
using FollowedPlans = std::map<int, FollowedPlan>;  // By dp_rank.

using OptionKey = std::tuple<int, int, InstructionKind, int>;  // pp_rank, chunk, kind, MHz.
using OptionTimes = std::map<OptionKey, double>;

OptionTimes TimesOf(const profile::Profile& profile) {
  OptionTimes times;
  for (const profile::ProfileEntry& entry : profile.entries()) {
    for (const profile::Option& option : entry.options) {
      times[{entry.pp_rank, entry.chunk, entry.kind, option.frequency_mhz}] =
          ToSeconds(option.time);
    }
  }
  return times;
}

std::vector<int> ClocksOf(const plan_file::PlanFile& file) {
  std::vector<int> clocks;
  for (const plan_file::PlannedRank& rank : file.pp_ranks) {
    for (const auto& instruction : rank.instructions) clocks.push_back(instruction.frequency_mhz);
  }
  return clocks;
}

bool HaveSameClocks(const FollowedPlans& a, const FollowedPlans& b) {
  return std::ranges::equal(a, b, [](const auto& one, const auto& other) {
    return one.first == other.first && (one.second.file == other.second.file ||
                                        ClocksOf(*one.second.file) == ClocksOf(*other.second.file));
  });
}

// The time of a step's instructions, without waits / the time that the plan has for them. nullopt
// if the rank ran other ones.
std::optional<double> RatioOf(const protocol::RanStep& step, const plan_file::PlannedRank& plan) {
  Nanoseconds planned = 0;
  auto count = std::ssize(step.instructions);
  for (const plan_file::PlannedInstruction& one : plan.instructions) {
    if (!plan_file::IsPlanned(one.kind)) continue;
    planned += one.duration;
    --count;
  }
  if (count != 0 || planned <= 0) return std::nullopt;
  return static_cast<double>(step.TimeOfWork()) / static_cast<double>(planned);
}

FollowedPlans FollowedOf(const PacedPlans& plans, const std::optional<noise::Noise>& noise) {
  int pipelines = 0;
  for (const auto& one : plans.plans())
    pipelines += static_cast<int>(one.pipelines.dp_ranks.size());
  const double deadline_s = ToSeconds(DeadlineOfOthers(plans.pace().file(), pipelines, noise));
  FollowedPlans followed;
  for (const PacedPlans::PipelinesPlan& one : plans.plans()) {
    const auto file = std::make_shared<const plan_file::PlanFile>(one.plan.file());
    const double time_s = ToSeconds(file->time);
    const bool sets_pace = &one == &plans.plans().front();
    const PlannedPace pace{time_s, sets_pace ? time_s : std::max(time_s, deadline_s), sets_pace};
    for (const int dp_rank : one.pipelines.dp_ranks) followed[dp_rank] = {file, pace};
  }
  return followed;
}

class PaceKeeper {
 public:
  PaceKeeper(const TuningOptions& options, Clock& clock, JobLogs logs, KnownJob job)
      : options_(options), clock_(clock), logs_(std::move(logs)), job_(std::move(job)) {}

  Result<KeptPace> Run() {
    PERSEUS_RETURN_IF_ERROR(TakeOver());
    const auto run = Follow();
    // If another coordinator holds the directory, the temporary assignment ends by itself.
    auto writer = OpenWriter();
    if (has_temporary_ && writer) PERSEUS_RETURN_IF_ERROR(Restore(*writer));
    if (!run) return Fail(run);
    return kept_;
  }

 private:
  // ---- The plans in force ----

  // Reads the plans of `tune`.
  Result<void> TakeOver() {
    PERSEUS_ASSIGN_OR_RETURN(const auto now, protocol::ReadAssignment(options_.job_directory));
    if (!now || now->plan.empty() || now->until_step || now->server) {
      return Fail(InFile(options_.job_directory.string()),
                  "no plans of tune are in force (run perseus tune first)");
    }
    PERSEUS_ASSIGN_OR_RETURN(lasting_plans_, ReadPlans(*now));
    const auto sets_pace = [](const auto& one) { return one.second.pace.sets_pace; };
    const auto slowest = std::ranges::find_if(lasting_plans_, sets_pace);
    if (now->plans.empty()) {
      return FailAs(ErrorKind::kUnreachable,
                    "tune found no difference between pipelines, so their plans do not follow the "
                    "slowest one");
    }
    if (slowest == lasting_plans_.end() || job_.groups.size() == 1) {
      return Fail(InFile(options_.job_directory.string()),
                  "the plans in force do not come from its measurements (run perseus tune again)");
    }
    // With the blocking power and the transfer time of these plans.
    job_.sweep.model = slowest->second.file->job.model;
    for (const AlikePipelines& group : job_.groups) {
      PERSEUS_ASSIGN_OR_RETURN(const auto profile,
                               profiler::PlanningProfile(job_.sweep, group.options, 0));
      times_.push_back(TimesOf(profile));
    }
    lasting_ = *now;
    Adopt(*now);
    return {};
  }

  // Reads the plans of an assignment.
  Result<FollowedPlans> ReadPlans(const protocol::Assignment& assignment) const {
    const protocol::AssignmentPlaces places = protocol::FindPlaces(options_.job_directory);
    std::map<std::string, std::shared_ptr<const plan_file::PlanFile>> files;
    const auto read = [&](const std::string& path) -> Result<void> {
      if (files.contains(path)) return {};
      const auto& place = protocol::PlaceOfPlan(places, assignment, path);
      PERSEUS_ASSIGN_OR_RETURN(const auto text, protocol::ReadJobFile(place, path));
      PERSEUS_ASSIGN_OR_RETURN(auto file, plan_file::ParsePlan(text, (place / path).string()));
      files[path] = std::make_shared<const plan_file::PlanFile>(std::move(file));
      return {};
    };
    FollowedPlans plans;
    PERSEUS_RETURN_IF_ERROR(read(assignment.plan));
    const plan_file::PlanFile& pace = *files.at(assignment.plan);
    const double deadline_s = ToSeconds(DeadlineOfOthers(pace, options_.job.pipelines, job_.noise));
    for (const AlikePipelines& group : job_.groups) {
      for (const int dp_rank : group.dp_ranks) {
        const std::string& path = assignment.PlanOf(dp_rank);
        PERSEUS_RETURN_IF_ERROR(read(path));
        const double time_s = ToSeconds(files.at(path)->time);
        const bool sets_pace = path == assignment.plan;
        plans[dp_rank] = {files.at(path),
                          {time_s, sets_pace ? time_s : std::max(time_s, deadline_s), sets_pace}};
      }
    }
    return plans;
  }

  // Follows the lasting plans, which an assignment has put in force.
  void Adopt(const protocol::Assignment& assignment) {
    has_temporary_ = false;
    versions_ = {assignment.version};
    Begin(lasting_plans_);
  }

  void Begin(FollowedPlans plans) {
    plans_ = std::move(plans);
    std::map<int, PlannedPace> paces;
    for (const auto& [dp_rank, plan] : plans_) paces[dp_rank] = plan.pace;
    rule_.Begin(std::move(paces));
  }

  // Whether the plans of this coordinator are in force. They are not while another coordinator
  // verifies, for example. Fails if it replaced them.
  Result<bool> IsInForce() {
    PERSEUS_ASSIGN_OR_RETURN(const auto now, protocol::ReadAssignment(options_.job_directory));
    if (now && now->version == *versions_.rbegin()) return true;
    if (now && now->until_step) return false;
    if (now && now->plan == lasting_.plan && now->plans == lasting_.plans && !now->server) {
      Adopt(*now);
      return true;
    }
    return Fail("another assignment replaced the plans of tune, so the pace is not followed");
  }

  // ---- The steps ----

  Result<void> Follow() {
    std::int64_t seen = logs_.LastCommonStep(job_.ranks);
    Nanoseconds deadline = clock_.Now() + options_.timeout;
    while (!options_.should_end() && !HaveEnded()) {
      PERSEUS_RETURN_IF_ERROR(logs_.ReadNew());
      PERSEUS_RETURN_IF_ERROR(CheckRestart());
      const std::int64_t last =
          std::max(logs_.LastCommonStep(job_.ranks), logs_.LastStep(job_.ranks) - kMostBehind);
      if (last <= seen) {
        if (clock_.Now() >= deadline) {
          return FailAs(ErrorKind::kSystem, "no step was recorded for {:g} s (has the job ended?)",
                        ToSeconds(options_.timeout));
        }
        clock_.WaitUntil(clock_.Now() + kLookEvery);
        continue;
      }
      deadline = clock_.Now() + options_.timeout;
      PERSEUS_ASSIGN_OR_RETURN(const bool is_in_force, IsInForce());
      for (; seen < last; ++seen) rule_.Add(seen + 1, RatiosOf(seen + 1));
      logs_.ForgetBefore(last - kStepsKept);
      if (!is_in_force) continue;
      PERSEUS_RETURN_IF_ERROR(CheckHarm(last));
      PERSEUS_RETURN_IF_ERROR(Adapt(last));
    }
    return {};
  }

  // The times from step to step of the steps [first, end).
  std::vector<double> StepTimes(std::int64_t first, std::int64_t end) const {
    std::vector<double> times;
    const LoggedRank& any = logs_.ranks().at(*job_.ranks.begin());
    for (std::int64_t number = first; number < end; ++number) {
      const protocol::RanStep* step = any.Find(number);
      const protocol::RanStep* next = any.Find(number + 1);
      if (step != nullptr && next != nullptr) times.push_back(ToSeconds(next->begin - step->begin));
    }
    return times;
  }

  // Fails if the latest change made steps longer. That must not happen. It happens if the times of
  // instructions contain waiting for other ranks that was not seen.
  Result<void> CheckHarm(std::int64_t last) {
    if (before_s_.empty() || last <= changed_at_ + kJudgedSteps) return {};
    const std::vector<double> before_s = std::exchange(before_s_, {});
    const std::vector<double> after_s = StepTimes(changed_at_ + 1, changed_at_ + 1 + kJudgedSteps);
    if (after_s.empty()) return {};
    const double noise = StepNoise(std::vector{before_s, after_s});
    const double error = kErrorOfMedian * noise * std::sqrt(2.0 / kJudgedSteps);
    const double longer = Median(after_s) / Median(before_s) - 1;
    if (longer <= kMostHarm + kStandardErrorsOfHarm * error) return {};
    return FailAs(ErrorKind::kUnreachable,
                  "plans that follow the slowest pipeline made steps {} longer, so they are taken "
                  "back (do instructions wait for other ranks where Perseus does not see it?)",
                  FormatPercent(longer));
  }

  // Changes or renews the plans after this step, if necessary.
  Result<void> Adapt(std::int64_t last) {
    const auto changes = rule_.FindChanges();
    const bool has_to_renew = has_temporary_ && last + 2 * Ahead() + lease_ / 2 > until_step_;
    if (!changes && !has_to_renew) return {};
    auto writer = OpenWriter();
    // Another coordinator has begun. IsInForce() sees what it does.
    if (!writer || writer->version() != *versions_.rbegin()) return {};
    return changes ? Change(*writer, *changes) : Assign(*writer, assignment_);
  }

  bool HaveEnded() const {
    return std::ranges::all_of(job_.ranks, [&](const protocol::RankId& name) {
      const auto& remarks = logs_.ranks().at(name).remarks;
      return !remarks.empty() && remarks.back() == protocol::Remark::kEnd;
    });
  }

  Result<void> CheckRestart() const {
    for (const protocol::RankId& name : job_.ranks) {
      if (!logs_.ranks().at(name).has_restarted) continue;
      return FailAs(ErrorKind::kSystem, "rank {} has restarted (begin again when the job runs)",
                    Name(name));
    }
    return {};
  }

  // The ratios of the ranks that ran this step with the plans in force, and not as the first one:
  // their clocks changed in it.
  RankRatios RatiosOf(std::int64_t number) const {
    RankRatios ratios;
    for (const protocol::RankId& name : job_.ranks) {
      const LoggedRank& rank = logs_.ranks().at(name);
      const protocol::RanStep* step = rank.Find(number);
      const protocol::RanStep* before = rank.Find(number - 1);
      const auto follows = [&](const protocol::RanStep* ran) {
        return ran != nullptr && ran->on_plan && versions_.contains(ran->assignment_version);
      };
      if (!follows(step) || !follows(before)) continue;
      const auto plan = plans_.find(name.dp_rank);
      if (plan == plans_.end()) continue;
      const auto& pp_ranks = plan->second.file->pp_ranks;
      const auto ratio = RatioOf(*step, pp_ranks[static_cast<std::size_t>(name.pp_rank)]);
      if (!ratio) continue;
      double& slowest = ratios[{name.dp_rank, name.pp_rank}];
      slowest = std::max(slowest, *ratio);
    }
    return ratios;
  }

  std::int64_t Ahead() const {
    return protocol::StepsAhead(options_.assignment_delay_s,
                                logs_.StepTime(job_.ranks).value_or(1));
  }

  // ---- Other plans ----

  // The factor of each pp_rank of a pipeline: its time / the time that `tune` measured.
  std::vector<double> FactorsOf(int dp_rank, const OptionTimes& times,
                                const RankChanges& changes) const {
    std::vector<double> factors;
    const plan_file::PlanFile& file = *plans_.at(dp_rank).file;
    for (const plan_file::PlannedRank& rank : file.pp_ranks) {
      const auto pp_rank = static_cast<int>(factors.size());
      double planned_s = 0;
      double measured_s = 0;
      for (const plan_file::PlannedInstruction& one : rank.instructions) {
        const auto known = times.find({pp_rank, one.chunk, one.kind, one.frequency_mhz});
        if (known == times.end()) continue;
        planned_s += ToSeconds(one.duration);
        measured_s += known->second;
      }
      const auto found = changes.find({dp_rank, pp_rank});
      const RankChange change = found == changes.end() ? RankChange() : found->second;
      const double factor = change.ratio * (measured_s > 0 ? planned_s / measured_s : 1);
      // A rank that has recovered is as fast as before.
      factors.push_back(std::abs(std::log(factor)) < 2 * change.error ? 1 : factor);
    }
    return factors;
  }

  // Divides the pipelines that still train into groups with nearly equal factors.
  std::vector<AlikePipelines> GroupsBy(const RankChanges& changes) const {
    struct Group {
      std::vector<int> dp_ranks;
      std::vector<double> factors;  // By pp_rank, of the slowest.
    };
    std::map<std::pair<std::size_t, std::vector<long>>, Group> groups;  // By group of `tune`.
    for (double step = kLeastStep; groups.empty() || std::ssize(groups) > kMostPlans; step *= 1.5) {
      groups.clear();
      for (std::size_t i = 0; i < job_.groups.size(); ++i) {
        for (const int dp_rank : job_.groups[i].dp_ranks) {
          if (!changes.contains({dp_rank, 0})) continue;
          const std::vector<double> factors = FactorsOf(dp_rank, times_[i], changes);
          std::vector<long> key;
          for (const double factor : factors) key.push_back(std::lround(std::log(factor) / step));
          Group& group = groups[{i, std::move(key)}];
          group.dp_ranks.push_back(dp_rank);
          group.factors.resize(factors.size());
          std::ranges::transform(group.factors, factors, group.factors.begin(),
                                 [](double a, double b) { return std::max(a, b); });
        }
      }
    }
    std::vector<AlikePipelines> alike;
    for (auto& [key, group] : groups) {
      AlikePipelines one{std::move(group.dp_ranks), job_.groups[key.first].options};
      for (profiler::MeasuredOption& option : one.options) {
        const double factor = group.factors[static_cast<std::size_t>(option.group.rank)];
        option.time_s *= factor;
        option.time_ci_s *= factor;
      }
      alike.push_back(std::move(one));
    }
    return alike;
  }

  Result<void> Change(protocol::AssignmentWriter& writer, const RankChanges& changes) {
    const auto made = PacedPlans::Make(job_.sweep, options_.job, options_.target, GroupsBy(changes),
                                       job_.noise, options_.changes, job_.meeting);
    if (!made) {
      if (made.error().kind != ErrorKind::kUnreachable) return Fail(made);
      Begin(plans_);  // The slow pipeline cannot reach the target.
      return {};
    }
    FollowedPlans plans = FollowedOf(*made, job_.noise);
    if (HaveSameClocks(plans, plans_)) {
      Begin(std::move(plans));
      return {};
    }
    if (has_temporary_ && HaveSameClocks(plans, lasting_plans_)) {
      PERSEUS_RETURN_IF_ERROR(Restore(writer));
    } else {
      PERSEUS_ASSIGN_OR_RETURN(const auto assignment, AddPlans(writer, *made));
      versions_.clear();
      PERSEUS_RETURN_IF_ERROR(Assign(writer, assignment));
      RemoveOldPlans(writer, assignment);
    }
    ++kept_.changes;
    changed_at_ = from_step_;
    const std::int64_t last = logs_.LastCommonStep(job_.ranks);
    before_s_ = StepTimes(last - kJudgedSteps, last);
    Announce(changes, plans);
    Begin(std::move(plans));
    return {};
  }

  // Writes the plans for an assignment.
  static Result<protocol::Assignment> AddPlans(const protocol::AssignmentWriter& writer,
                                               const PacedPlans& plans) {
    protocol::Assignment assignment;
    for (const PacedPlans::PipelinesPlan& one : plans.plans()) {
      const std::string text = plan_file::FormatPlan(one.plan.file());
      const std::string name =
          fmt::format("{}-dp{}", writer.version() + 1, one.pipelines.dp_ranks.front());
      PERSEUS_ASSIGN_OR_RETURN(const auto path, writer.AddPlan(name, text));
      if (assignment.plan.empty()) {
        assignment.plan = path;
        continue;
      }
      for (const int dp_rank : one.pipelines.dp_ranks) assignment.plans[dp_rank] = path;
    }
    return assignment;
  }

  // Deletes the plans of earlier changes. Ranks may still read those of the one before.
  void RemoveOldPlans(const protocol::AssignmentWriter& writer,
                      const protocol::Assignment& newest) {
    constexpr std::size_t kKept = 2;
    std::set<std::string>& paths = added_plans_.emplace_back();
    paths.insert(newest.plan);
    for (const auto& [dp_rank, path] : newest.plans) paths.insert(path);
    if (added_plans_.size() <= kKept) return;
    for (const std::string& path : added_plans_.front()) writer.RemovePlan(path);
    added_plans_.pop_front();
  }

  // Fails while another coordinator holds the job directory.
  Result<protocol::AssignmentWriter> OpenWriter() const {
    return protocol::AssignmentWriter::Open(options_.job_directory);
  }

  // Makes the assignment the temporary one, or renews it.
  Result<void> Assign(protocol::AssignmentWriter& writer, protocol::Assignment assignment) {
    const double step_s = logs_.StepTime(job_.ranks).value_or(1);
    lease_ = std::max<std::int64_t>(kLeastLeaseSteps, std::llround(kLeaseSeconds / step_s));
    from_step_ = logs_.LastStep(job_.ranks) + 1 + Ahead();
    until_step_ = from_step_ + lease_;
    assignment.until_step = until_step_;
    assignment_ = assignment;
    PERSEUS_ASSIGN_OR_RETURN(const auto version, writer.Write(std::move(assignment), from_step_));
    versions_.insert(version);
    has_temporary_ = true;
    return {};
  }

  // Puts the plans of `tune` in force again.
  Result<void> Restore(protocol::AssignmentWriter& writer) {
    PERSEUS_ASSIGN_OR_RETURN(const auto version, writer.Restore());
    from_step_ = logs_.LastStep(job_.ranks) + 1;
    versions_ = {version};
    has_temporary_ = false;
    return {};
  }

  // Says who changed most.
  void Announce(const RankChanges& changes, const FollowedPlans& plans) const {
    if (!options_.say || changes.empty()) return;
    const auto most = std::ranges::max_element(
        changes, {}, [](const auto& one) { return std::abs(std::log(one.second.ratio)); });
    int others = 0;
    for (const auto& [dp_rank, plan] : plans) {
      others += ClocksOf(*plan.file) == ClocksOf(*plans_.at(dp_rank).file) ? 0 : 1;
    }
    options_.say(fmt::format(
        "pipeline {} takes {} time than its plan says, so {} get other plans from step {} on",
        most->first.dp_rank, FormatChange(most->second.ratio - 1), Counted(others, "pipeline"),
        from_step_));
  }

  const TuningOptions& options_;
  Clock& clock_;
  JobLogs logs_;
  KnownJob job_;
  std::vector<OptionTimes> times_;  // By index in job_.groups.
  protocol::Assignment lasting_;    // With the plans of `tune`.
  FollowedPlans lasting_plans_;
  FollowedPlans plans_;              // In force.
  std::set<std::int64_t> versions_;  // The assignments with `plans_`.
  PaceRule rule_;
  bool has_temporary_ = false;
  protocol::Assignment assignment_;  // The temporary one.
  // The paths of the plans of the latest changes, by change.
  std::deque<std::set<std::string>> added_plans_;
  std::int64_t from_step_ = 0;
  std::int64_t until_step_ = 0;
  std::int64_t lease_ = 0;  // In steps.
  // The first step and the step times before the latest change, until CheckHarm().
  std::int64_t changed_at_ = 0;
  std::vector<double> before_s_;
  KeptPace kept_;
};

// Reads what `tune` measured, and checks the ranks. Holds the job directory only in the meantime.
Result<KnownJob> ReadKnownJob(const TuningOptions& options, Clock& clock) {
  PERSEUS_ASSIGN_OR_RETURN(auto logs,
                           JobLogs::Open(options.job_directory, JobLogs::Job::kIsRunning));
  PERSEUS_ASSIGN_OR_RETURN(auto writer, protocol::AssignmentWriter::Open(options.job_directory));
  PERSEUS_ASSIGN_OR_RETURN(auto state, ReadTunerState(options));
  const ConductorOptions conduct{options.assignment_delay_s, options.timeout, options.should_end};
  TunedJob job(options, Conductor(conduct, std::move(logs), std::move(writer), clock),
               std::move(state));
  PERSEUS_RETURN_IF_ERROR(job.AwaitRanks());
  job.LookForPowerLimit();
  KnownJob known;
  known.ranks = job.conductor().ranks();
  known.sweep = job.Job();
  known.meeting = job.meeting();
  const MeasuredGpus gpus = job.RunningGpus();
  known.groups = GroupAlike(gpus, job.Options(), kMostPlans);
  known.noise = job.MeasuredNoise();
  return known;
}

}  // namespace

Result<KeptPace> KeepPace(const TuningOptions& options, Clock& clock) {
  if (!plan::LimitsTime(options.target.kind)) {
    return Fail("the target does not limit the time, so plans do not follow the pace");
  }
  PERSEUS_ASSIGN_OR_RETURN(auto known, ReadKnownJob(options, clock));
  PERSEUS_ASSIGN_OR_RETURN(auto logs,
                           JobLogs::Open(options.job_directory, JobLogs::Job::kIsRunning));
  PERSEUS_RETURN_IF_ERROR(logs.AwaitRanks(known.ranks, options.timeout, options.should_end, clock));
  return PaceKeeper(options, clock, std::move(logs), std::move(known)).Run();
}

}  // namespace perseus::tuner
