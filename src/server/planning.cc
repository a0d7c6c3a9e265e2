#include "perseus/server/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/plan/plan_file.h"
#include "perseus/server/straggler_times.h"

namespace perseus {
namespace {

using nlohmann::ordered_json;

constexpr double kMillisecondsPerSecond = 1e3;
constexpr std::size_t kMostPoints = 1000;
// The whole frontier of more takes longer than everything else together (docs/benchmarks.md).
constexpr std::size_t kMostFrontierOperations = 10'000;
constexpr std::size_t kMostFrontierAtOnce = 2'000;
// A second look at more would take longer than a worker's claim.
constexpr std::size_t kMostRefinedOperations = 10'000;
// Other jobs' first looks go first.
constexpr Milliseconds kRefineAfter = 2000;
constexpr std::string_view kQuick = "~quick";

// What a planning needs of a plan.
struct Known {
  PlanRecord record;
  Nanoseconds time = 0;
  double energy_j = 0;
  Nanoseconds baseline_time = 0;
  double baseline_energy_j = 0;
  bool is_new = false;

  bool is_hasty() const { return record.slug.ends_with(kQuick); }
};

Result<Known> Read(PlanRecord record) {
  auto file = ParsePlan(record.body, record.id);
  if (!file) return Fail(file);
  return Known{.record = std::move(record),
               .time = file->time,
               .energy_j = file->energy_j,
               .baseline_time = file->baseline_time,
               .baseline_energy_j = file->baseline_energy_j};
}

// Plans of one planning: found in the store, or made, each once.
class Plans {
 public:
  Plans(const PlanningInput& input, const PreparedJob& job, SearchEffort effort)
      : input_(input), job_(job), effort_(effort) {}

  // `factor` times as long as the target's plan; 1: that plan.
  Result<const Known*> Get(const Target& target, double factor) {
    const std::string slug = SlugOf(target, factor);
    if (const auto found = known_.find(slug); found != known_.end()) return &found->second;
    auto plan = Find(slug);
    if (!plan) return Fail(plan);
    if (!*plan) {
      auto made = Make(target, factor, slug);
      if (!made) return Fail(made);
      *plan = *std::move(made);
    }
    return &known_.emplace(slug, **std::move(plan)).first->second;
  }

  // Whether some plan could be better for more time spent on it.
  bool AreHasty() const {
    return std::ranges::any_of(known_, [](const auto& entry) { return entry.second.is_hasty(); });
  }

  std::vector<PlanRecord> TakeNew() {
    std::vector<PlanRecord> plans;
    for (auto& [slug, known] : known_) {
      if (known.is_new) plans.push_back(std::move(known.record));
    }
    return plans;
  }

 private:
  static std::string SlugOf(const Target& target, double factor) {
    return factor == 1 ? Slug(target) : fmt::format("{}+straggler-{:.4g}", Slug(target), factor);
  }

  Result<std::optional<Known>> Find(const std::string& slug) const {
    std::vector<std::string> names{slug};
    if (effort_ == SearchEffort::kFirstLook) names.push_back(slug + std::string(kQuick));
    for (const std::string& name : names) {
      auto record = input_.find_plan(name);
      if (!record) return Fail(record);
      if (!*record) continue;
      auto known = Read(**std::move(record));
      if (!known) return Fail(known);
      return std::optional<Known>(*std::move(known));
    }
    return std::optional<Known>();
  }

  Result<Known> Make(const Target& target, double factor, const std::string& slug) {
    Result<Plan> plan = factor == 1 ? ForTarget(target) : ForStraggler(target, factor);
    if (!plan) return Fail(plan);
    const PlanFile file = MakePlanFile(job_.planner, *plan, job_.spec.planned);
    Known known{
        .record = {.id = input_.new_plan_id(),
                   .job = input_.job.id,
                   .slug = effort_ == SearchEffort::kFull ? slug : slug + std::string(kQuick),
                   .profile_version = input_.profile->version,
                   .body = FormatPlan(file),
                   .created = input_.now},
        .time = file.time,
        .energy_j = file.energy_j,
        .baseline_time = file.baseline_time,
        .baseline_energy_j = file.baseline_energy_j,
        .is_new = true};
    return known;
  }

  Result<Plan> ForTarget(const Target& target) {
    if (NeedsFrontier(target.kind) && !frontier_) {
      if (job_.planner.graph().operations.size() > kMostFrontierOperations) {
        return FailAs(ErrorKind::kUnreachable,
                      "{}: the job has too many instructions for that on a server (choose a "
                      "slowdown, a deadline or least energy, or use perseus plan)",
                      Describe(target));
      }
      auto frontier = job_.planner.ComputeFrontier();
      if (!frontier) return Fail(frontier);
      frontier_ = *std::move(frontier);
    }
    return PlanForTarget(job_.planner, frontier_ ? &*frontier_ : nullptr, target, effort_);
  }

  Result<Plan> ForStraggler(const Target& target, double factor) {
    auto base = Get(target, 1);
    if (!base) return Fail(base);
    const auto time = static_cast<Nanoseconds>(static_cast<double>((*base)->time) * factor);
    auto plan = job_.planner.PlanForStraggler(time, effort_);
    if (plan) plan->target = fmt::format("straggler {:.4g}, {}", factor, Describe(target));
    return plan;
  }

  const PlanningInput& input_;
  const PreparedJob& job_;
  SearchEffort effort_;
  std::optional<Frontier> frontier_;
  std::map<std::string, Known> known_;
};

std::string Reason(const PlanningInput& input, const std::map<int, double>& slowdowns) {
  std::string reason = fmt::format("profile {}", input.profile->version);
  for (const auto& [pipeline, slowdown] : slowdowns) {
    reason += fmt::format(", straggler {}: {:.4g}", pipeline, slowdown);
  }
  return reason;
}

Result<PlannedOrders> MakeOrders(const PlanningInput& input, const PreparedJob& job,
                                 const Target& target, Plans& plans) {
  const int pipelines = job.spec.planned.pipelines;
  const std::map<int, double> slowdowns = SlowdownsAt(input.stragglers, pipelines, input.now);
  auto base = plans.Get(target, 1);
  if (!base) return Fail(base);
  PlannedOrders orders;
  orders.target = Describe(target);
  const FixedOperations& fixed = job.spec.planned.model.fixed;
  orders.tail_s = ToSeconds(fixed.all_reduce.time + fixed.optimizer.time);
  orders.reason = Reason(input, slowdowns);
  orders.baseline_time_s = ToSeconds((*base)->baseline_time);
  orders.baseline_energy_j = (*base)->baseline_energy_j;
  double slowest = 1;
  for (const auto& [pipeline, slowdown] : slowdowns) slowest = std::max(slowest, slowdown);
  orders.time_s = ToSeconds((*base)->time) * slowest;
  for (const double factor : FactorsOf(slowdowns, pipelines)) {
    auto plan = plans.Get(target, factor);
    if (!plan) return Fail(plan);
    orders.pipelines.push_back({(*plan)->record.id, ToSeconds((*plan)->time), (*plan)->energy_j});
  }
  // What will hold when the next straggler begins, or the last one ends.
  if (const auto next = NextChange(input.stragglers, input.now)) {
    for (const double factor :
         FactorsOf(SlowdownsAt(input.stragglers, pipelines, *next), pipelines)) {
      auto plan = plans.Get(target, factor);
      if (!plan) return Fail(plan);
      const std::string& id = (*plan)->record.id;
      const bool is_known =
          std::ranges::any_of(orders.pipelines,
                              [&](const auto& share) { return share.plan == id; }) ||
          std::ranges::find(orders.upcoming, id) != orders.upcoming.end();
      if (!is_known) orders.upcoming.push_back(id);
    }
  }
  return orders;
}

Result<PlanningOutcome> PlanPrepared(const PlanningInput& input, const PreparedJob& job,
                                     const Target& target) {
  PlanningOutcome outcome{.generation = input.job.generation};
  std::optional<PlannedOrders> last;
  if (input.orders) {
    auto parsed = ParsePlannedOrders(input.orders->body);
    if (!parsed) return Fail(parsed);
    last = *std::move(parsed);
  }
  const std::size_t operations = job.planner.graph().operations.size();
  const bool is_large = operations > kMostRefinedOperations;
  const bool refines =
      !is_large && last && !last->is_refined && input.job.planned == input.job.generation;
  Plans plans(input, job, refines ? SearchEffort::kFull : SearchEffort::kFirstLook);
  auto orders = MakeOrders(input, job, target, plans);
  if (!orders) return Fail(orders);
  orders->is_refined = is_large || !plans.AreHasty();
  // A large one takes longer than the plans, for which everybody waits.
  const std::size_t most = orders->is_refined ? kMostFrontierOperations : kMostFrontierAtOnce;
  if (!input.has_frontier && operations <= most) {
    auto frontier = MakeFrontier(job.planner, input.profile->version);
    if (!frontier) return Fail(frontier);
    outcome.frontier = *std::move(frontier);
  }
  outcome.plans = plans.TakeNew();
  if (!last || !last->SameFor(*orders)) outcome.orders = FormatPlannedOrders(*orders);
  outcome.again_at = NextChange(input.stragglers, input.now);
  if (!orders->is_refined) {
    const Milliseconds soon = input.now + kRefineAfter;
    outcome.again_at = std::min(outcome.again_at.value_or(soon), soon);
  }
  return outcome;
}

PlanningOutcome Failed(const PlanningInput& input, const Error& error) {
  return {.generation = input.job.generation,
          .status = "failed",
          .problem = error.message,
          .again_at = NextChange(input.stragglers, input.now)};
}

Result<Target> StoredTarget(const JobRecord& job, const Target& registered) {
  if (job.target.empty()) return registered;
  auto target = ReadTargetBody(job.target, registered.gpus);
  if (!target) return Fail("the job's target: {}", target.error().detail);
  return *target;
}

}  // namespace

std::string FormatPlannedOrders(const PlannedOrders& orders) {
  auto pipelines = ordered_json::array();
  for (const PlannedOrders::Share& share : orders.pipelines) {
    pipelines.push_back(
        {{"plan", share.plan}, {"time_s", share.time_s}, {"energy_j", share.energy_j}});
  }
  const ordered_json json{
      {"from_step", orders.from_step},
      {"target", orders.target},
      {"reason", orders.reason},
      {"pipelines", std::move(pipelines)},
      {"upcoming", orders.upcoming},
      {"time_s", orders.time_s},
      {"tail_s", orders.tail_s},
      {"baseline", {{"time_s", orders.baseline_time_s}, {"energy_j", orders.baseline_energy_j}}},
      {"refined", orders.is_refined}};
  return json.dump();
}

Result<PlannedOrders> ParsePlannedOrders(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  try {
    PlannedOrders orders;
    orders.from_step = json.at("from_step");
    orders.target = json.at("target");
    orders.reason = json.at("reason");
    for (const auto& share : json.at("pipelines")) {
      orders.pipelines.push_back({share.at("plan"), share.at("time_s"), share.at("energy_j")});
    }
    orders.upcoming = json.at("upcoming").get<std::vector<std::string>>();
    orders.time_s = json.at("time_s");
    orders.tail_s = json.at("tail_s");
    orders.baseline_time_s = json.at("baseline").at("time_s");
    orders.baseline_energy_j = json.at("baseline").at("energy_j");
    orders.is_refined = json.at("refined");
    return orders;
  } catch (const nlohmann::json::exception& error) {
    return FailAs(ErrorKind::kSystem, "orders in the database cannot be read: {}", error.what());
  }
}

std::int64_t FirstStep(const JobRecord& job, double iteration_s, Milliseconds now, double lead_s) {
  if (job.last_step < 0) return 0;
  const double since_s = static_cast<double>(std::max<Milliseconds>(0, now - job.last_step_at)) /
                         kMillisecondsPerSecond;
  // A job that stands still, or is gone, has not gone on by itself for long.
  const double ahead = std::ceil((std::min(since_s, 10 * iteration_s) + lead_s) / iteration_s);
  return job.last_step + static_cast<std::int64_t>(ahead) + 1;
}

std::string WithFirstStep(const PlannedOrders& orders, const JobRecord& job,
                          const std::optional<PlannedOrders>& in_force, Milliseconds now,
                          double lead_s) {
  double iteration_s = orders.time_s;
  if (in_force) iteration_s = std::min(iteration_s, in_force->time_s);
  const auto summary = nlohmann::json::parse(job.summary, nullptr, false);
  if (summary.is_object())
    iteration_s = std::min(iteration_s, summary.value("step_s", iteration_s));
  PlannedOrders dated = orders;
  dated.from_step = FirstStep(job, iteration_s, now, lead_s);
  return FormatPlannedOrders(dated);
}

Result<PlanningOutcome> PlanJob(const PlanningInput& input) {
  if (!input.profile) {
    return PlanningOutcome{.generation = input.job.generation, .status = "waiting"};
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

Result<PreparedJob> PrepareJob(const JobRecord& job, const Store::Profile& profile) {
  auto spec = StoredJobSpec(job.body);
  if (!spec) return Fail(spec);
  spec->planned.profile = fmt::format("profile {} of {}", profile.version, job.key);
  const auto parsed = ParseProfile(profile.csv, spec->planned.profile);
  if (!parsed) return Fail(parsed);
  const PipelineModel& pipeline = spec->planned.model;
  auto graph = BuildOperationGraph(spec->planned.schedule, *parsed, pipeline);
  if (!graph) return Fail(graph);
  ExecutionModel model;
  model.blocking_power_w = pipeline.blocking_power_w * pipeline.gpus_per_stage;
  model.switch_latency = spec->planned.switch_latency;
  auto planner = Planner::Create(*std::move(graph), model);
  if (!planner) return Fail(planner);
  return PreparedJob{*std::move(spec), *std::move(planner)};
}

Result<MadePlan> MakePlan(const PreparedJob& job, const Target& target, SearchEffort effort) {
  std::optional<Frontier> frontier;
  if (NeedsFrontier(target.kind)) {
    auto computed = job.planner.ComputeFrontier();
    if (!computed) return Fail(computed);
    frontier = *std::move(computed);
  }
  auto plan = PlanForTarget(job.planner, frontier ? &*frontier : nullptr, target, effort);
  if (!plan) return Fail(plan);
  const PlanFile file = MakePlanFile(job.planner, *plan, job.spec.planned);
  return MadePlan{Slug(target), FormatPlan(file), ToSeconds(file.time), file.energy_j};
}

Result<std::string> MakeFrontier(const Planner& planner, std::int64_t profile_version) {
  auto frontier = planner.ComputeFrontier();
  if (!frontier) return Fail(frontier);
  const std::size_t all = frontier->points.size();
  const std::size_t stride = 1 + (all - 1) / kMostPoints;
  auto points = ordered_json::array();
  std::size_t least_energy = 0;
  for (std::size_t i = 0; i < all; ++i) {
    if (i % stride != 0 && i != all - 1 && i != frontier->least_energy) continue;
    if (i == frontier->least_energy) least_energy = points.size();
    const FrontierPoint& point = frontier->points[i];
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

}  // namespace perseus
