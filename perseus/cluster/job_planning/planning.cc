#include "perseus/cluster/job_planning/planning.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cluster/job_planning/straggler_times.h"
#include "perseus/planning/job/plausibility.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/planning/recipe/recipe.h"

namespace perseus::job_planning {
namespace {

using nlohmann::ordered_json;
using store::PlannedAssignment;

// GET …/frontier returns about this many points.
constexpr std::size_t kMaxFrontierPoints = 1'000;
// The largest job whose whole frontier is computed. For a larger job, the frontier would take
// longer than everything else (docs/benchmarks.md).
constexpr std::size_t kMaxFrontierInstructions = 10'000;
// The largest job whose frontier is computed together with its plans. For a larger job, the
// frontier takes longer than the plans. So nodes first get their plans, and a later planning of the
// same state computes the frontier.
constexpr std::size_t kMaxImmediateFrontierInstructions = 2'000;
constexpr Milliseconds kFrontierDelay = 2'000;
// Up to this size, the search for a plan has the usual effort, about a second. Larger jobs get a
// first look (choice_search.h).
constexpr std::size_t kMaxUsualEffortInstructions = 400;

int EffortFor(std::size_t instructions) {
  return instructions <= kMaxUsualEffortInstructions ? plan::kUsualEffort : plan::kFirstLook;
}

// A pipeline that waits for a straggler gets the plan with the least energy. The job's target only
// determines the time.
constexpr plan::Target kBesideStraggler{.kind = plan::Target::Kind::kMinEnergy};

recipe::ChangeRules RulesOf(const PreparedJob& job) {
  return recipe::RulesFor({}, {job.spec.most_switches, job.spec.most_changes_per_s},
                          job.spec.planned, job.planner.graph());
}

// Returns the plan for a target of the job, in the form that nodes get.
Result<plan::Plan> PlanTarget(const PreparedJob& job, const plan::Target& target,
                              const plan::SearchLimits& limits) {
  const recipe::Wishes wishes{
      .targets = {target}, .effort = limits.effort, .changes = RulesOf(job), .noise = job.noise};
  recipe::Progress silent;
  PERSEUS_ASSIGN_OR_RETURN(
      const auto plans, recipe::PlanJob(job.planner, wishes, silent, limits.finish, limits.stop));
  return plans.Find(target)->plan;
}

// Returns the record of a plan. Members that are not in the file stay empty.
store::PlanRecord RecordOf(const plan_file::PlanFile& file) {
  return {.body = plan_file::FormatPlan(file),
          .time_s = ToSeconds(file.time),
          .energy_j = file.energy_j,
          .baseline_time_s = ToSeconds(file.baseline_time),
          .baseline_energy_j = file.baseline_energy_j};
}

// The plans of one planning. Each plan is found in the store, or made once.
class Plans {
 public:
  Plans(const PlanningInput& input, const PreparedJob& job)
      : input_(input),
        job_(job),
        limits_{.effort = EffortFor(job.planner.graph().instructions.size()), .stop = input.stop} {}

  // Returns the plan with `factor` times the iteration time of the target's plan. For the factor 1,
  // returns the target's plan.
  Result<const store::PlanRecord*> Get(const plan::Target& target, double factor) {
    const std::string slug = factor == 1
                                 ? plan::Slug(target)
                                 : fmt::format("{}+straggler-{:.4g}", plan::Slug(target), factor);
    if (const auto found = plans_.find(slug); found != plans_.end()) return &found->second;
    PERSEUS_ASSIGN_OR_RETURN(auto plan, Find(slug));
    if (!plan) {
      PERSEUS_ASSIGN_OR_RETURN(plan, Make(target, factor, slug));
    }
    return &plans_.emplace(slug, *std::move(plan)).first->second;
  }

  // Returns the new plans, for the store.
  std::vector<store::PlanRecord> TakeNew() {
    std::vector<store::PlanRecord> records;
    for (const std::string& slug : made_) records.push_back(std::move(plans_.at(slug)));
    return records;
  }

 private:
  Result<std::optional<store::PlanRecord>> Find(const std::string& slug) const {
    PERSEUS_ASSIGN_OR_RETURN(auto found, input_.find_plan(slug));
    if (!found || found->time_s > 0) return found;
    // An older program stored the plan without these numbers.
    PERSEUS_ASSIGN_OR_RETURN(const auto file, plan_file::ParsePlan(found->body, found->id));
    store::PlanRecord record = RecordOf(file);
    record.id = found->id;
    return std::optional(std::move(record));
  }

  Result<store::PlanRecord> Make(const plan::Target& target, double factor,
                                 const std::string& slug) {
    PERSEUS_ASSIGN_OR_RETURN(auto plan,
                             factor == 1 ? ForTarget(target) : ForStraggler(target, factor));
    PERSEUS_ASSIGN_OR_RETURN(
        auto file, plan::MakePlanFile(job_.planner, plan, factor == 1 ? target : kBesideStraggler,
                                      job_.spec.planned));
    store::PlanRecord record = RecordOf(file);
    record.id = input_.new_plan_id();
    record.job = input_.job.id;
    record.slug = slug;
    record.profile_version = input_.profile->version;
    record.created = input_.now;
    files_.emplace(slug, std::move(file));
    made_.push_back(slug);
    return record;
  }

  Result<plan::Plan> ForTarget(const plan::Target& target) {
    if (plan::NeedsFrontier(target.kind) &&
        job_.planner.graph().instructions.size() > kMaxFrontierInstructions) {
      return FailAs(ErrorKind::kUnreachable,
                    "{}: the job has too many instructions for this target on a server (choose "
                    "a slowdown, a deadline or least energy, or use perseus plan)",
                    Describe(target));
    }
    return PlanTarget(job_, target, limits_);
  }

  Result<plan::Plan> ForStraggler(const plan::Target& target, double factor) {
    PERSEUS_ASSIGN_OR_RETURN(const auto base, Get(target, 1));
    PERSEUS_ASSIGN_OR_RETURN(const auto file, FileOf(plan::Slug(target), *base));
    const auto time = static_cast<Nanoseconds>(static_cast<double>(file->time) * factor);
    const schedule::InstructionGraph& graph = job_.planner.graph();
    PERSEUS_ASSIGN_OR_RETURN(const auto options, plan_file::FindOptions(*file, graph, base->id));
    const plan::Evaluation usual = plan::Evaluator(graph, job_.planner.model()).Evaluate(options);
    return recipe::PlanForStraggler(job_.planner, RulesOf(job_), usual, time,
                                    fmt::format("straggler {:.4g}, {}", factor, Describe(target)),
                                    limits_);
  }

  Result<const plan_file::PlanFile*> FileOf(const std::string& slug,
                                            const store::PlanRecord& record) {
    if (const auto known = files_.find(slug); known != files_.end()) return &known->second;
    PERSEUS_ASSIGN_OR_RETURN(auto file, plan_file::ParsePlan(record.body, record.id));
    return &files_.emplace(slug, std::move(file)).first->second;
  }

  const PlanningInput& input_;
  const PreparedJob& job_;
  const plan::SearchLimits limits_;
  std::map<std::string, store::PlanRecord> plans_;    // The plans by slug.
  std::map<std::string, plan_file::PlanFile> files_;  // The plan files that were needed.
  std::vector<std::string> made_;                     // The slugs of the new plans.
};

std::string Reason(const PlanningInput& input, const PreparedJob& job, const plan::Target& target,
                   const std::map<int, double>& slowdowns) {
  std::string reason = fmt::format("profile {}", input.profile->version);
  if (job.noise && plan::LimitsTime(target.kind)) {
    reason += fmt::format(", margin for noise of {:.2g} % and {:.2g} % in common",
                          100 * job.noise->independent, 100 * job.noise->common);
  }
  for (const auto& [pipeline, slowdown] : slowdowns) {
    reason += fmt::format(", straggler {}: {}", pipeline, FormatPercent(slowdown - 1));
  }
  return reason;
}

Result<PlannedAssignment> MakeAssignment(const PlanningInput& input, const PreparedJob& job,
                                         const plan::Target& target, Plans& plans) {
  const int pipelines = job.spec.planned.pipelines;
  const std::map<int, double> slowdowns = SlowdownsAt(input.stragglers, pipelines, input.now);
  PERSEUS_ASSIGN_OR_RETURN(auto base, plans.Get(target, 1));
  PlannedAssignment assignment;
  assignment.target = Describe(target);
  const schedule::FixedInstructions& fixed = job.spec.planned.model.fixed;
  assignment.tail_s = ToSeconds(fixed.all_reduce.time + fixed.optimizer.time);
  assignment.reason = Reason(input, job, target, slowdowns);
  assignment.baseline_time_s = base->baseline_time_s;
  assignment.baseline_energy_j = base->baseline_energy_j;
  assignment.time_s = base->time_s * SlowestOf(slowdowns);
  for (const double factor : FactorsOf(slowdowns, pipelines)) {
    PERSEUS_ASSIGN_OR_RETURN(auto plan, plans.Get(target, factor));
    assignment.pipelines.push_back({plan->id, plan->time_s, plan->energy_j});
  }
  // The plans that are needed when a straggler begins or ends next.
  if (const auto next = NextChange(input.stragglers, input.now)) {
    for (const double factor :
         FactorsOf(SlowdownsAt(input.stragglers, pipelines, *next), pipelines)) {
      PERSEUS_ASSIGN_OR_RETURN(auto plan, plans.Get(target, factor));
      const std::string& id = plan->id;
      const bool is_known =
          std::ranges::any_of(assignment.pipelines,
                              [&](const auto& share) { return share.plan == id; }) ||
          std::ranges::find(assignment.upcoming, id) != assignment.upcoming.end();
      if (!is_known) assignment.upcoming.push_back(id);
    }
  }
  return assignment;
}

// Replaces the plans by default clocks, for a trial or because the plans cost throughput. Ranks
// keep the plans ready, because the plans may become active again.
void TakePlansBack(const store::GuardRecord& guard, double slowest, PlannedAssignment& assignment) {
  std::vector<std::string> plans = std::move(assignment.upcoming);
  for (const PlannedAssignment::Share& share : assignment.pipelines) {
    if (std::ranges::find(plans, share.plan) == plans.end()) plans.push_back(share.plan);
  }
  assignment.upcoming = std::move(plans);
  assignment.pipelines.clear();
  assignment.time_s = assignment.baseline_time_s * slowest;
  const std::string slower = FormatPercent(guard.with_plan - 1);
  if (guard.state == store::GuardState::kTrial) {
    assignment.reason += fmt::format(
        ", trial of the default clocks: steps with the plan took {} longer than planned", slower);
  } else {
    assignment.reason += fmt::format(
        ", plan taken back: steps took {} longer than planned, and {} longer at the default clocks",
        slower, FormatPercent(guard.without_plan - 1));
  }
}

Result<store::PlanningOutcome> PlanPrepared(const PlanningInput& input, const PreparedJob& job,
                                            const plan::Target& target) {
  Plans plans(input, job);
  PERSEUS_ASSIGN_OR_RETURN(auto assignment, MakeAssignment(input, job, target, plans));
  if (input.guard && input.guard->state != store::GuardState::kCleared) {
    const auto slowdowns = SlowdownsAt(input.stragglers, job.spec.planned.pipelines, input.now);
    TakePlansBack(*input.guard, SlowestOf(slowdowns), assignment);
  }
  store::PlanningOutcome outcome;
  outcome.generation = input.job.generation;
  outcome.plans = plans.TakeNew();
  outcome.again_at = NextChange(input.stragglers, input.now);
  if (!input.assignment || !input.assignment->assignment.IsSameExceptFirstStep(assignment)) {
    outcome.assignment = std::move(assignment);
  }
  const std::size_t instructions = job.planner.graph().instructions.size();
  if (input.has_frontier || instructions > kMaxFrontierInstructions) return outcome;
  const bool nodes_wait =
      outcome.assignment || input.job.planned_generation != input.job.generation;
  if (nodes_wait && instructions > kMaxImmediateFrontierInstructions) {
    const Milliseconds later = input.now + kFrontierDelay;
    outcome.again_at = std::min(outcome.again_at.value_or(later), later);
    return outcome;
  }
  PERSEUS_ASSIGN_OR_RETURN(outcome.frontier,
                           MakeFrontier(job.planner, input.profile->version, input.stop));
  return outcome;
}

store::PlanningOutcome Failed(const PlanningInput& input, const Error& error) {
  return {.generation = input.job.generation,
          .status = store::JobStatus::kFailed,
          .problem = error.Message(),
          .again_at = NextChange(input.stragglers, input.now)};
}

// Plans the job for its target.
Result<store::PlanningOutcome> PlanOnce(const PlanningInput& input) {
  if (!input.profile) {
    return store::PlanningOutcome{.generation = input.job.generation,
                                  .status = store::JobStatus::kWaiting};
  }
  auto job = PrepareJob(input.job, *input.profile);
  if (!job) return Failed(input, job.error());
  const auto target = TargetOf(input.job, job->spec.target);
  if (!target) return Failed(input, target.error());
  auto outcome = PlanPrepared(input, *job, target->target);
  if (outcome || outcome.error().kind == ErrorKind::kSystem) return outcome;
  return Failed(input, outcome.error());
}

}  // namespace

Result<store::PlanningOutcome> PlanJob(const PlanningInput& input) {
  Result<store::PlanningOutcome> outcome = PlanOnce(input);
  // GPUs do not matter for the time. A target that cannot be read does not end.
  const auto target = TargetOf(input.job, {});
  if (outcome && target && target->expires != 0) {
    outcome->again_at = std::min(outcome->again_at.value_or(target->expires), target->expires);
  }
  return outcome;
}

Result<PreparedJob> PrepareJob(const store::JobRecord& job, const store::ProfileRecord& profile) {
  PERSEUS_ASSIGN_OR_RETURN(auto spec, StoredJobSpec(job.body));
  spec.planned.profile = fmt::format("profile {} of {}", profile.version, job.key);
  PERSEUS_ASSIGN_OR_RETURN(const auto parsed,
                           profile::ParseProfile(profile.csv, spec.planned.profile));
  const schedule::PipelineModel& pipeline = spec.planned.model;
  PERSEUS_ASSIGN_OR_RETURN(
      auto graph, schedule::BuildInstructionGraph(spec.planned.schedule, parsed, pipeline));
  PERSEUS_ASSIGN_OR_RETURN(auto planner, plan::Planner::Create(graph, plan::ModelOf(spec.planned)));
  auto warnings = job::CheckPlausible({.planned = spec.planned,
                                       .graph = std::move(graph),
                                       .model = planner.model(),
                                       .profile_doubt = parsed.doubt()});
  // An implausible profile is only a warning, because it may describe a GPU that does not exist.
  if (!warnings) warnings = std::vector{warnings.error().Message()};
  return PreparedJob{std::move(spec), std::move(planner), *std::move(warnings), parsed.noise()};
}

Result<store::PlanRecord> MakePlan(const PreparedJob& job, const plan::Target& target,
                                   const plan::SearchLimits& limits) {
  PERSEUS_ASSIGN_OR_RETURN(const auto plan, PlanTarget(job, target, limits));
  PERSEUS_ASSIGN_OR_RETURN(const auto file,
                           plan::MakePlanFile(job.planner, plan, target, job.spec.planned));
  store::PlanRecord record = RecordOf(file);
  record.slug = plan::Slug(target);
  return record;
}

Result<std::string> MakeFrontier(const plan::Planner& planner, std::int64_t profile_version,
                                 const std::stop_token& stop) {
  PERSEUS_ASSIGN_OR_RETURN(auto frontier, planner.ComputeFrontier({}, stop));
  const std::size_t all = frontier.points.size();
  const std::size_t stride = 1 + (all - 1) / kMaxFrontierPoints;
  auto points = ordered_json::array();
  std::size_t least_energy = 0;
  for (std::size_t i = 0; i < all; ++i) {
    if (i % stride != 0 && i != all - 1 && i != frontier.least_energy) continue;
    if (i == frontier.least_energy) least_energy = points.size();
    const plan::FrontierPoint& point = frontier.points[i];
    points.push_back({{"time_s", ToSeconds(point.time)},
                      {"energy_j", point.bound_j},
                      {"price_w", point.price_w}});
  }
  const ordered_json json{{"profile_version", profile_version},
                          {"breakpoints", all},
                          {"points", std::move(points)},
                          {"least_energy", least_energy},
                          {"baseline",
                           {{"time_s", ToSeconds(planner.baseline().time)},
                            {"energy_j", planner.baseline().energy_j}}}};
  return JsonText(json);
}

}  // namespace perseus::job_planning
