#include "perseus/cluster/server/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/cluster/server/straggler_times.h"
#include "perseus/planning/plan/make_plan_file.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::server {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostPoints = 1000;
// The whole frontier of more takes longer than everything else together (docs/benchmarks.md).
constexpr std::size_t kMostFrontierInstructions = 10'000;
constexpr std::size_t kMostFrontierAtOnce = 2'000;
// A second look at more keeps a worker for minutes, to save a tenth of a percent.
constexpr std::size_t kMostRefinedInstructions = 10'000;
// Other jobs' first looks go first.
constexpr store::Milliseconds kRefineAfter = 2000;
constexpr std::string_view kQuick = "~quick";

// What a planning needs of a plan.
struct Known {
  store::PlanRecord record;
  Nanoseconds time = 0;
  double energy_j = 0;
  Nanoseconds baseline_time = 0;
  double baseline_energy_j = 0;
  bool is_new = false;
  bool is_renamed = false;  // There already; a second look found nothing better.

  bool is_hasty() const { return record.slug.ends_with(kQuick); }
};

Result<Known> Read(store::PlanRecord record) {
  PERSEUS_ASSIGN_OR_RETURN(auto file, plan_file::ParsePlan(record.body, record.id));
  return Known{.record = std::move(record),
               .time = file.time,
               .energy_j = file.energy_j,
               .baseline_time = file.baseline_time,
               .baseline_energy_j = file.baseline_energy_j};
}

// Plans of one planning: found in the store, or made, each once.
class Plans {
 public:
  Plans(const PlanningInput& input, const PreparedJob& job, plan::SearchEffort effort)
      : input_(input), job_(job), limits_{effort, input.stop} {}

  // `factor` times as long as the target's plan; 1: that plan.
  Result<const Known*> Get(const plan::Target& target, double factor) {
    const std::string slug = SlugOf(target, factor);
    if (const auto found = known_.find(slug); found != known_.end()) return &found->second;
    auto plan = Find(slug);
    if (!plan) return Fail(plan);
    if (!*plan) {
      auto made = Make(target, factor, slug);
      if (made && limits_.effort == plan::SearchEffort::kFull)
        made = Settle(*std::move(made), slug);
      if (!made) return Fail(made);
      *plan = *std::move(made);
    }
    return &known_.emplace(slug, **std::move(plan)).first->second;
  }

  // Whether some plan could be better for more time spent on it.
  bool AreHasty() const {
    return std::ranges::any_of(known_, [](const auto& entry) { return entry.second.is_hasty(); });
  }

  void MoveTo(store::PlanningOutcome& outcome) {
    for (auto& [slug, known] : known_) {
      if (known.is_new) outcome.plans.push_back(std::move(known.record));
      if (known.is_renamed) outcome.renamed_plans.emplace(known.record.id, slug);
    }
  }

 private:
  static std::string SlugOf(const plan::Target& target, double factor) {
    return factor == 1 ? plan::Slug(target)
                       : fmt::format("{}+straggler-{:.4g}", plan::Slug(target), factor);
  }

  Result<std::optional<Known>> Find(const std::string& slug) const {
    auto found = FindNamed(slug);
    if (!found || *found || limits_.effort == plan::SearchEffort::kFull) return found;
    return FindNamed(slug + std::string(kQuick));
  }

  Result<std::optional<Known>> FindNamed(const std::string& name) const {
    PERSEUS_ASSIGN_OR_RETURN(auto record, input_.find_plan(name));
    if (!record) return std::optional<Known>();
    PERSEUS_ASSIGN_OR_RETURN(auto known, Read(*std::move(record)));
    return std::optional<Known>(std::move(known));
  }

  // What a second look made; or what the first one did, where that is as good: then nodes have
  // nothing to change.
  Result<Known> Settle(Known made, const std::string& slug) const {
    PERSEUS_ASSIGN_OR_RETURN(auto hasty, FindNamed(slug + std::string(kQuick)));
    const bool is_better = !hasty || made.time != hasty->time || made.energy_j < hasty->energy_j;
    if (is_better) return made;
    hasty->record.slug = slug;
    hasty->is_renamed = true;
    return *std::move(hasty);
  }

  Result<Known> Make(const plan::Target& target, double factor, const std::string& slug) {
    Result<plan::Plan> plan = factor == 1 ? ForTarget(target) : ForStraggler(target, factor);
    if (!plan) return Fail(plan);
    const plan_file::PlanFile file = plan::MakePlanFile(job_.planner, *plan, job_.spec.planned);
    Known known{
        .record = {.id = input_.new_plan_id(),
                   .job = input_.job.id,
                   .slug = limits_.effort == plan::SearchEffort::kFull ? slug
                                                                       : slug + std::string(kQuick),
                   .profile_version = input_.profile->version,
                   .body = plan_file::FormatPlan(file),
                   .created = input_.now},
        .time = file.time,
        .energy_j = file.energy_j,
        .baseline_time = file.baseline_time,
        .baseline_energy_j = file.baseline_energy_j,
        .is_new = true};
    return known;
  }

  Result<plan::Plan> ForTarget(const plan::Target& target) {
    if (plan::NeedsFrontier(target.kind) && !frontier_) {
      if (job_.planner.graph().instructions.size() > kMostFrontierInstructions) {
        return FailAs(ErrorKind::kUnreachable,
                      "{}: the job has too many instructions for that on a server (choose a "
                      "slowdown, a deadline or least energy, or use perseus plan)",
                      Describe(target));
      }
      PERSEUS_ASSIGN_OR_RETURN(auto frontier, job_.planner.ComputeFrontier({}, limits_.stop));
      frontier_ = std::move(frontier);
    }
    return plan::PlanForTarget(job_.planner, frontier_ ? &*frontier_ : nullptr, target, limits_);
  }

  Result<plan::Plan> ForStraggler(const plan::Target& target, double factor) {
    PERSEUS_ASSIGN_OR_RETURN(auto base, Get(target, 1));
    const auto time = static_cast<Nanoseconds>(static_cast<double>(base->time) * factor);
    auto plan = job_.planner.PlanForStraggler(time, limits_);
    if (plan) plan->target = fmt::format("straggler {:.4g}, {}", factor, Describe(target));
    return plan;
  }

  const PlanningInput& input_;
  const PreparedJob& job_;
  plan::SearchLimits limits_;
  std::optional<plan::Frontier> frontier_;
  std::map<std::string, Known> known_;
};

std::string Reason(const PlanningInput& input, const std::map<int, double>& slowdowns) {
  std::string reason = fmt::format("profile {}", input.profile->version);
  for (const auto& [pipeline, slowdown] : slowdowns) {
    reason += fmt::format(", straggler {}: {:.4g}", pipeline, slowdown);
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
  assignment.reason = Reason(input, slowdowns);
  assignment.baseline_time_s = ToSeconds(base->baseline_time);
  assignment.baseline_energy_j = base->baseline_energy_j;
  double slowest = 1;
  for (const auto& [pipeline, slowdown] : slowdowns) slowest = std::max(slowest, slowdown);
  assignment.time_s = ToSeconds(base->time) * slowest;
  for (const double factor : FactorsOf(slowdowns, pipelines)) {
    PERSEUS_ASSIGN_OR_RETURN(auto plan, plans.Get(target, factor));
    assignment.pipelines.push_back({plan->record.id, ToSeconds(plan->time), plan->energy_j});
  }
  // What will hold when the next straggler begins, or the last one ends.
  if (const auto next = NextChange(input.stragglers, input.now)) {
    for (const double factor :
         FactorsOf(SlowdownsAt(input.stragglers, pipelines, *next), pipelines)) {
      PERSEUS_ASSIGN_OR_RETURN(auto plan, plans.Get(target, factor));
      const std::string& id = plan->record.id;
      const bool is_known =
          std::ranges::any_of(assignment.pipelines,
                              [&](const auto& share) { return share.plan == id; }) ||
          std::ranges::find(assignment.upcoming, id) != assignment.upcoming.end();
      if (!is_known) assignment.upcoming.push_back(id);
    }
  }
  return assignment;
}

// Assignment, and the plans that they name.
struct Seen {
  PlannedAssignment assignment;
  store::PlanningOutcome plans;
};
Result<Seen> Look(const PlanningInput& input, const PreparedJob& job, const plan::Target& target,
                  plan::SearchEffort effort) {
  Plans plans(input, job, effort);
  PERSEUS_ASSIGN_OR_RETURN(auto assignment, MakeAssignment(input, job, target, plans));
  const bool is_large = job.planner.graph().instructions.size() > kMostRefinedInstructions;
  assignment.is_refined = is_large || !plans.AreHasty();
  Seen seen{.assignment = std::move(assignment), .plans = {}};
  plans.MoveTo(seen.plans);
  return seen;
}

Result<store::PlanningOutcome> PlanPrepared(const PlanningInput& input, const PreparedJob& job,
                                            const plan::Target& target) {
  std::optional<PlannedAssignment> last;
  if (input.assignment) {
    PERSEUS_ASSIGN_OR_RETURN(auto parsed, ParsePlannedAssignment(input.assignment->body));
    last = std::move(parsed);
  }
  auto seen = Look(input, job, target, plan::SearchEffort::kFirstLook);
  if (!seen) return Fail(seen);
  // Whoever waits for something has it.
  const bool is_quiet =
      last && last->SameFor(seen->assignment) && input.job.planned == input.job.generation;
  if (is_quiet && !seen->assignment.is_refined) {
    seen = Look(input, job, target, plan::SearchEffort::kFull);
    if (!seen) return Fail(seen);
  }
  PlannedAssignment& assignment = seen->assignment;
  store::PlanningOutcome outcome = std::move(seen->plans);
  outcome.generation = input.job.generation;
  // A large one takes longer than the plans, for which everybody waits.
  const std::size_t most = assignment.is_refined ? kMostFrontierInstructions : kMostFrontierAtOnce;
  if (!input.has_frontier && job.planner.graph().instructions.size() <= most) {
    PERSEUS_ASSIGN_OR_RETURN(auto frontier,
                             MakeFrontier(job.planner, input.profile->version, input.stop));
    outcome.frontier = std::move(frontier);
  }
  if (!last || !last->SameFor(assignment)) {
    outcome.assignment = FormatPlannedAssignment(assignment);
  } else {
    assignment.from_step = last->from_step;
    std::string body = FormatPlannedAssignment(assignment);
    if (body != input.assignment->body) outcome.amended_assignment = std::move(body);
  }
  outcome.again_at = NextChange(input.stragglers, input.now);
  if (!assignment.is_refined) {
    const store::Milliseconds soon = input.now + kRefineAfter;
    outcome.again_at = std::min(outcome.again_at.value_or(soon), soon);
  }
  return outcome;
}

store::PlanningOutcome Failed(const PlanningInput& input, const Error& error) {
  return {.generation = input.job.generation,
          .status = "failed",
          .problem = error.message,
          .again_at = NextChange(input.stragglers, input.now)};
}

Result<plan::Target> StoredTarget(const store::JobRecord& job, const plan::Target& registered) {
  if (job.target.empty()) return registered;
  auto target = ReadTargetBody(job.target, registered.gpus);
  if (!target) return Fail("the job's target: {}", target.error().detail);
  return *target;
}

}  // namespace

Result<store::PlanningOutcome> PlanJob(const PlanningInput& input) {
  if (!input.profile) {
    return store::PlanningOutcome{.generation = input.job.generation, .status = "waiting"};
  }
  auto job = PrepareJob(input.job, *input.profile);
  if (!job) return Failed(input, job.error());
  auto target = StoredTarget(input.job, job->spec.target);
  if (!target) return Failed(input, target.error());
  auto outcome = PlanPrepared(input, *job, *target);
  if (outcome) return outcome;
  if (outcome.error().kind == ErrorKind::kSystem) return outcome;
  return Failed(input, outcome.error());
}

Result<PreparedJob> PrepareJob(const store::JobRecord& job, const store::Store::Profile& profile) {
  PERSEUS_ASSIGN_OR_RETURN(auto spec, StoredJobSpec(job.body));
  spec.planned.profile = fmt::format("profile {} of {}", profile.version, job.key);
  PERSEUS_ASSIGN_OR_RETURN(const auto parsed,
                           profile::ParseProfile(profile.csv, spec.planned.profile));
  const schedule::PipelineModel& pipeline = spec.planned.model;
  PERSEUS_ASSIGN_OR_RETURN(
      auto graph, schedule::BuildInstructionGraph(spec.planned.schedule, parsed, pipeline));
  plan::ExecutionModel model;
  model.blocking_power_w = pipeline.blocking_power_w * pipeline.gpus_per_stage;
  model.switch_latency = spec.planned.switch_latency;
  PERSEUS_ASSIGN_OR_RETURN(auto planner, plan::Planner::Create(std::move(graph), model));
  return PreparedJob{std::move(spec), std::move(planner)};
}

Result<MadePlan> MakePlan(const PreparedJob& job, const plan::Target& target,
                          const plan::SearchLimits& limits) {
  std::optional<plan::Frontier> frontier;
  if (plan::NeedsFrontier(target.kind)) {
    PERSEUS_ASSIGN_OR_RETURN(auto computed, job.planner.ComputeFrontier({}, limits.stop));
    frontier = std::move(computed);
  }
  auto plan = plan::PlanForTarget(job.planner, frontier ? &*frontier : nullptr, target, limits);
  if (!plan) return Fail(plan);
  const plan_file::PlanFile file = plan::MakePlanFile(job.planner, *plan, job.spec.planned);
  return MadePlan{plan::Slug(target), plan_file::FormatPlan(file), ToSeconds(file.time),
                  file.energy_j};
}

Result<std::string> MakeFrontier(const plan::Planner& planner, std::int64_t profile_version,
                                 const std::stop_token& stop) {
  PERSEUS_ASSIGN_OR_RETURN(auto frontier, planner.ComputeFrontier({}, stop));
  const std::size_t all = frontier.points.size();
  const std::size_t stride = 1 + (all - 1) / kMostPoints;
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
  return json.dump();
}

}  // namespace perseus::server
