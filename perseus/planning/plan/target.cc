#include "perseus/planning/plan/target.h"
#include "perseus/base/limits.h"
#include "perseus/planning/plan/slow_plans.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace perseus::plan {
namespace {

// The longest time, which is far from the limit of 64 bits.
constexpr double kMostNanoseconds = 4e18;
constexpr double kSecondsPerHour = 3600;
constexpr double kJoulesPerKilowattHour = 3.6e6;
// The maximum number of plans for one budget or cap. The search also ends when the interval of
// times is at most kTimeTolerance of the time.
constexpr int kMostAttempts = 10;
constexpr double kTimeTolerance = 1e-4;

double EnergyOf(double, double energy_j) { return energy_j; }
double PowerOf(double time_s, double energy_j) { return energy_j / time_s; }

// A limit of the energy or of the power of an iteration.
struct Limit {
  double most = 0;
  double (*cost)(double time_s, double energy_j) = nullptr;
  std::span<const FrontierPoint> points;  // The useful ones: more time does not lower the cost.

  double CostOf(const Evaluation& evaluation) const {
    return cost(ToSeconds(evaluation.time), evaluation.energy_j);
  }
};

// Beyond the least energy, energy rises with time, but the power still falls.
Limit LimitOf(const Target& target, const Frontier& frontier) {
  const std::span<const FrontierPoint> points(frontier.points);
  if (target.kind == Target::Kind::kPowerCap) return {target.value, PowerOf, points};
  return {target.value, EnergyOf, points.first(frontier.least_energy + 1)};
}

// Returns the least time on the frontier at which the cost is at most limit.most - margin. Returns
// nullopt if no useful point of the frontier is within the limit. Finds the segment of the frontier
// that contains this time, and then bisects it.
std::optional<Nanoseconds> FastestWithin(const Frontier& frontier, const Limit& limit,
                                         double margin) {
  const auto within = [&](Nanoseconds time) {
    return limit.cost(ToSeconds(time), frontier.BoundLasting(time)) <= limit.most - margin;
  };
  const std::span<const FrontierPoint> points = limit.points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!within(points[i].time)) continue;
    if (i == 0) return points[0].time;
    Nanoseconds outside = points[i - 1].time;
    Nanoseconds inside = points[i].time;
    while (inside - outside > 1) {
      const Nanoseconds middle = outside + (inside - outside) / 2;
      (within(middle) ? inside : outside) = middle;
    }
    return inside;
  }
  return std::nullopt;
}

double CostAt(const Target& target, double time_s, double energy_j) {
  switch (target.kind) {
    case Target::Kind::kEnergyBudget:
    case Target::Kind::kPowerCap:
      return time_s;
    case Target::Kind::kEdp:
      return time_s * energy_j;
    case Target::Kind::kPrice:
      return energy_j / kJoulesPerKilowattHour * target.value +
             time_s / kSecondsPerHour * target.gpu_hour * target.gpus;
    default:
      return energy_j;
  }
}

// For kEdp and kPrice: the time of the cheapest point.
Nanoseconds TimeOfCheapest(const Frontier& frontier, const Target& target) {
  // Between two points, energy falls linearly with time. So a cost that is linear in time and
  // energy is linear there, and energy * time is concave. Both have their least value at a point.
  const auto best = std::min_element(frontier.points.begin(), frontier.points.end(),
                                     [&](const FrontierPoint& a, const FrontierPoint& b) {
                                       return CostAt(target, ToSeconds(a.time), a.bound_j) <
                                              CostAt(target, ToSeconds(b.time), b.bound_j);
                                     });
  return best->time;
}

// Returns the time of the cheapest point of the exact frontier, for kEdp and kPrice. Solves single
// deadlines if `frontier` is not exact.
Result<Nanoseconds> Cheapest(const Planner& planner, const Frontier& frontier,
                             const Target& target) {
  const Nanoseconds first = TimeOfCheapest(frontier, target);
  if (frontier.exact()) return first;
  if (target.kind == Target::Kind::kPrice) {
    // The price of time, as a power. At this power, a second of energy costs as much as a second of
    // time.
    const double second = CostAt(target, 1, 0);
    const double joule = CostAt(target, 0, 1);
    if (joule == 0 && second > 0) return planner.least_time();
    PERSEUS_ASSIGN_OR_RETURN(const FrontierPoint best,
                             planner.CheapestPoint(second > 0 ? second / joule : 0));
    return best.time;
  }
  // log(energy * time) is concave, so it is below its tangents. The tangent at a point of the
  // frontier gives time the price energy / time. So the best point at this price has a lower
  // product, unless it is the same point.
  FrontierPoint best{.time = first, .bound_j = frontier.BoundAt(first)};
  for (bool is_exact = false;; is_exact = true) {
    PERSEUS_ASSIGN_OR_RETURN(const FrontierPoint next,
                             planner.CheapestPoint(best.bound_j / ToSeconds(best.time)));
    const double gain = CostAt(target, ToSeconds(best.time), best.bound_j) -
                        CostAt(target, ToSeconds(next.time), next.bound_j);
    if (is_exact && gain <= 0) return best.time;
    best = next;
  }
}

// A planner, and the limits of its searches.
struct Plans {
  const Planner& planner;
  const SearchLimits& limits;
  Result<Plan> For(Nanoseconds deadline) const { return planner.PlanFor(deadline, limits); }
};

// Returns the plan for `time`. If the switch latency makes this impossible, returns the plan for
// the baseline time.
Result<Plan> PlanAtOrAfter(const Plans& plans, Nanoseconds time) {
  const Planner& planner = plans.planner;
  Result<Plan> plan = plans.For(std::max(time, planner.least_time()));
  const bool retry = !plan && plan.error().kind == ErrorKind::kUnreachable;
  if (!retry || time >= planner.baseline().time) return plan;
  return plans.For(planner.baseline().time);
}

// Returns the plan for a time beyond the least energy: the least energy until `time`. No plan that
// lasts as long as this plan has less energy than its bound. A switch latency may make the plan
// longer than `time`, which lowers its power.
Result<Plan> PlanLasting(const Plans& plans, const Frontier& frontier, Nanoseconds time) {
  const Planner& planner = plans.planner;
  PERSEUS_ASSIGN_OR_RETURN(Plan plan, DeadlineSearch(planner, time, 0).PlanWith(plans.limits));
  plan.evaluation = Evaluator(planner.graph(), planner.model()).Evaluate(plan.options);
  plan.deadline = std::max(time, plan.evaluation.time);
  plan.lower_bound_j = frontier.BoundLasting(plan.evaluation.time);
  return plan;
}

// Returns the fastest plan within the limit, or nullopt if none is found up to the last useful
// point. The first attempt uses the time at which the lower bound meets the limit. The cost of a
// plan is a little above its bound. So the second attempt lowers the limit by the difference
// between the last plan and its bound. Each later attempt lowers it by at least twice as much. When
// a plan fits, the search bisects between this plan and the last plan that did not fit, to find a
// faster one.
Result<std::optional<Plan>> FastestPlanWithin(const Plans& plans, const Frontier& frontier,
                                              const Limit& limit) {
  const Nanoseconds longest = limit.points.back().time;
  const Nanoseconds of_least_energy = frontier.points[frontier.least_energy].time;
  std::optional<Plan> best;
  const std::optional<Nanoseconds> first = FastestWithin(frontier, limit, 0);
  if (!first) return best;
  Nanoseconds too_fast = *first;
  Nanoseconds fits = longest;
  Nanoseconds time = *first;
  double margin = 0;  // Between the limit and the bound at the next time.
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    Result<Plan> plan =
        time > of_least_energy ? PlanLasting(plans, frontier, time) : PlanAtOrAfter(plans, time);
    if (!plan) return Fail(plan);
    const double reached = limit.CostOf(plan->evaluation);
    if (reached <= limit.most) {
      fits = time;
      if (!best || plan->evaluation.time < best->evaluation.time) best = *std::move(plan);
      if (attempt == 0) break;
    } else {
      too_fast = time;
    }
    if (static_cast<double>(fits - too_fast) < kTimeTolerance * static_cast<double>(fits)) break;
    const double bound = limit.cost(ToSeconds(time), frontier.BoundLasting(time));
    margin = std::max(2 * margin, reached - bound);
    time = FastestWithin(frontier, limit, margin).value_or(longest);
    if (best || time <= too_fast || time >= fits) time = too_fast + (fits - too_fast) / 2;
  }
  return best;
}

Result<Plan> PlanWithinEnergy(const Plans& plans, const Frontier& frontier, const Target& target) {
  const Limit limit = LimitOf(target, frontier);
  PERSEUS_ASSIGN_OR_RETURN(auto best, FastestPlanWithin(plans, frontier, limit));
  if (best) return *std::move(best);
  Result<Plan> least = PlanAtOrAfter(plans, limit.points.back().time);
  if (!least || IsWithin(target, least->evaluation)) return least;
  return FailAs(ErrorKind::kUnreachable,
                "no plan between the least time and the least energy meets an energy budget of {} "
                "J: the least is {} J (allow that much, or give another target)",
                target.value, RoundedUp(least->evaluation.energy_j));
}

// `least` is the plan of least power.
tl::unexpected<Error> FailToMeetCap(const Planner& planner, const Target& target,
                                    const Plan& least) {
  const double least_w = least.evaluation.average_power_w();
  const double waiting_w = ToWatts(planner.blocking_price());
  if (target.value <= waiting_w) {
    return FailAs(ErrorKind::kUnreachable,
                  "no clocks meet a power cap of {} W: the least is {} W, and even GPUs that only "
                  "wait draw {} W (allow more, or use fewer GPUs)",
                  target.value, RoundedUp(least_w), RoundedUp(waiting_w));
  }
  return FailAs(ErrorKind::kUnreachable,
                "no clocks meet a power cap of {} W: the least is {} W, and GPUs that wait draw {} "
                "W (allow the least, or use it and pause the job for {:.3g} % of the time)",
                target.value, RoundedUp(least_w), RoundedUp(waiting_w),
                100 * PauseFor(target.value, least_w, waiting_w));
}

Result<Plan> PlanWithinPower(const Plans& plans, const Frontier& frontier, const Target& target) {
  PERSEUS_ASSIGN_OR_RETURN(auto best,
                           FastestPlanWithin(plans, frontier, LimitOf(target, frontier)));
  if (best) return *std::move(best);
  const SlowPlans slow(plans.planner);
  if (auto plan = slow.Within(target.value)) return *std::move(plan);
  if (target.or_nearest) return slow.least_power();
  return FailToMeetCap(plans.planner, target, slow.least_power());
}

// Checks the values that every target has.
Result<void> CheckValues(const Target& target) {
  for (const double value : {target.value, target.gpu_hour}) {
    if (std::isfinite(value) && value >= 0) continue;
    return Fail("{}: {} is out of range (expected a number from 0)", Describe(target), value);
  }
  return {};
}

Result<void> CheckFrontier(const Frontier* frontier, const Target& target) {
  if (frontier != nullptr || !NeedsFrontier(target.kind)) return {};
  return Fail("{} needs the frontier (compute it)", Describe(target));
}

Result<Nanoseconds> SlowdownDeadline(const Planner& planner, double percent) {
  const double time = static_cast<double>(planner.baseline().time) * (1 + percent / 100);
  if (time > kMostNanoseconds) {
    return Fail("a slowdown of {:g} % is out of range (it would take {:g} s)", percent,
                time / kNanosecondsPerSecond);
  }
  return static_cast<Nanoseconds>(std::floor(time));
}

Result<Plan> PlanOf(const Plans& plans, const Frontier* frontier, const Target& target) {
  if (IsOneDeadline(target.kind)) {
    PERSEUS_ASSIGN_OR_RETURN(const Nanoseconds deadline,
                             DeadlineOf(plans.planner, frontier, target));
    return NeedsFrontier(target.kind) ? PlanAtOrAfter(plans, deadline) : plans.For(deadline);
  }
  PERSEUS_RETURN_IF_ERROR(CheckFrontier(frontier, target));
  return target.kind == Target::Kind::kEnergyBudget ? PlanWithinEnergy(plans, *frontier, target)
                                                    : PlanWithinPower(plans, *frontier, target);
}

// Returns a time that no plan exceeds: each instruction has its slowest option, and stalls for a
// clock change. (Even a dominated option counts: a plan with few clock changes may use an option
// although another option of the same instruction is faster and cheaper.)
Nanoseconds LongestTime(const Planner& planner) {
  const schedule::InstructionGraph& graph = planner.graph();
  std::vector<int> slowest;
  for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
    const auto& options = graph.options_of(static_cast<int>(i)).options;
    const auto found = std::ranges::max_element(options, {}, &profile::Option::time);
    slowest.push_back(static_cast<int>(found - options.begin()));
  }
  ExecutionModel without_clocks = planner.model();
  without_clocks.switch_latency = 0;
  without_clocks.switch_cost = {};
  const Nanoseconds stalls = planner.model().switch_cost.stall * std::ssize(slowest);
  return std::max(planner.baseline().time,
                  Evaluator(graph, without_clocks).Evaluate(slowest).time + stalls);
}

// Whether `other` meets a target that `own` was made for.
bool Meets(const Target& target, const Plan& own, const Evaluation& other) {
  return (!LimitsTime(target.kind) || other.time <= own.deadline) && IsWithin(target, other);
}

}  // namespace

std::string RoundedUp(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 5);
  std::string text = fmt::format("{:.6g}", std::ceil(value / unit) * unit);
  if (std::stod(text) < value) text = fmt::format("{:.6g}", (std::ceil(value / unit) + 1) * unit);
  return text;
}

std::string Describe(const Target& target) {
  switch (target.kind) {
    case Target::Kind::kSlowdown:
      return target.value == 0 ? "no slowdown" : fmt::format("{} % slowdown", target.value);
    case Target::Kind::kDeadline:
      return fmt::format("deadline {} s", target.value);
    case Target::Kind::kEnergyBudget:
      return fmt::format("energy budget {} J", target.value);
    case Target::Kind::kPowerCap:
      return fmt::format("power cap {} W", target.value);
    case Target::Kind::kMinEnergy:
      return "least energy";
    case Target::Kind::kEdp:
      return "least energy-delay product";
    case Target::Kind::kPrice:
      break;
  }
  return fmt::format("least cost at {} $/kWh and {} $/GPU-hour", target.value, target.gpu_hour);
}

double PauseFor(double cap_w, double running_w, double waiting_w) {
  return std::clamp((running_w - cap_w) / (running_w - waiting_w), 0.0, 1.0);
}

double CostOf(const Target& target, const Evaluation& evaluation) {
  return CostAt(target, ToSeconds(evaluation.time), evaluation.energy_j);
}

bool IsWithin(const Target& target, const Evaluation& evaluation) {
  if (target.kind == Target::Kind::kEnergyBudget) return evaluation.energy_j <= target.value;
  if (target.kind == Target::Kind::kPowerCap) return evaluation.average_power_w() <= target.value;
  return true;
}

Result<void> CheckKeeps(const Planner& planner, const Target& target, const Plan& plan) {
  Nanoseconds deadline = plan.deadline;
  if (LimitsTime(target.kind)) {
    PERSEUS_ASSIGN_OR_RETURN(const Nanoseconds own, DeadlineOf(planner, nullptr, target));
    deadline = std::min(deadline, own);
  }
  const Evaluation evaluation = Evaluator(planner.graph(), planner.model()).Evaluate(plan.options);
  if (evaluation.time <= deadline && (target.or_nearest || IsWithin(target, evaluation))) return {};
  return FailAs(
      ErrorKind::kSystem,
      "{}: the plan takes {:.9g} s (limit {:.9g} s), {:.9g} J and {:.9g} W, and misses its "
      "target (please report this with your profile and your command)",
      Describe(target), ToSeconds(evaluation.time), ToSeconds(deadline), evaluation.energy_j,
      evaluation.average_power_w());
}

bool NeedsFrontier(Target::Kind kind) {
  return kind == Target::Kind::kEnergyBudget || kind == Target::Kind::kPowerCap ||
         kind == Target::Kind::kEdp || kind == Target::Kind::kPrice;
}

std::string Slug(const Target& target) {
  switch (target.kind) {
    case Target::Kind::kSlowdown:
      return target.value == 0 ? "no-slowdown" : fmt::format("slowdown-{}", target.value);
    case Target::Kind::kDeadline:
      return fmt::format("deadline-{}s", target.value);
    case Target::Kind::kEnergyBudget:
      return fmt::format("energy-budget-{}j", target.value);
    case Target::Kind::kPowerCap:
      return fmt::format("power-cap-{}w", target.value);
    case Target::Kind::kMinEnergy:
      return "least-energy";
    case Target::Kind::kEdp:
      return "least-energy-delay";
    case Target::Kind::kPrice:
      return fmt::format("price-{}-{}", target.value, target.gpu_hour);
  }
  return "plan";
}

NumberRange ValueRange(Target::Kind kind) {
  switch (kind) {
    case Target::Kind::kSlowdown:
      return {0, 10'000, "percent"};
    case Target::Kind::kDeadline:
      return {0, kLongestSeconds, "seconds"};
    case Target::Kind::kEnergyBudget:
      return {0, kMostJoules, "joules"};
    case Target::Kind::kPowerCap:
      return {0, kMostJoules, "watts"};
    case Target::Kind::kPrice:
      return {0, 1e6, "dollars"};
    case Target::Kind::kMinEnergy:
    case Target::Kind::kEdp:
      break;
  }
  return {};
}

bool LimitsTime(Target::Kind kind) {
  return kind == Target::Kind::kSlowdown || kind == Target::Kind::kDeadline;
}

bool IsOneDeadline(Target::Kind kind) {
  return kind != Target::Kind::kEnergyBudget && kind != Target::Kind::kPowerCap;
}

Result<Nanoseconds> DeadlineOf(const Planner& planner, const Frontier* frontier,
                               const Target& target) {
  PERSEUS_RETURN_IF_ERROR(CheckValues(target));
  PERSEUS_RETURN_IF_ERROR(CheckFrontier(frontier, target));
  switch (target.kind) {
    case Target::Kind::kSlowdown:
      return SlowdownDeadline(planner, target.value);
    case Target::Kind::kDeadline:
      if (target.value > kLongestSeconds) {
        return Fail("a deadline of {} s is out of range (at most {:.0f} s)", target.value,
                    kLongestSeconds);
      }
      return ToNanoseconds(target.value);
    case Target::Kind::kMinEnergy:
      return LongestTime(planner);
    default:
      break;
  }
  PERSEUS_ASSIGN_OR_RETURN(const Nanoseconds time, Cheapest(planner, *frontier, target));
  return std::max(time, planner.least_time());
}

Result<Plan> PlanForTarget(const Planner& planner, const Frontier* frontier, const Target& target,
                           const SearchLimits& limits) {
  PERSEUS_RETURN_IF_ERROR(CheckValues(target));
  Result<Plan> plan = PlanOf({planner, limits}, frontier, target);
  if (plan) plan->target = Describe(target);
  return plan;
}

Plan BestPlan(const Target& target, const Plan& own, std::span<const Plan> others) {
  const auto rank = [&](const Plan& plan) {
    return std::pair(CostOf(target, plan.evaluation), plan.evaluation.energy_j);
  };
  const Plan* best = &own;
  for (const Plan& other : others) {
    if (Meets(target, own, other.evaluation) && rank(other) < rank(*best)) best = &other;
  }
  Plan plan = *best;
  plan.target = own.target;
  if (LimitsTime(target.kind)) plan.deadline = own.deadline;
  if (target.kind == Target::Kind::kMinEnergy)
    plan.deadline = std::max(own.deadline, best->deadline);
  if (LimitsTime(target.kind) || target.kind == Target::Kind::kMinEnergy) {
    plan.lower_bound_j = own.lower_bound_j;
  }
  return plan;
}

TargetSearch::TargetSearch(const Planner& planner, const Frontier* frontier, const Target& target)
    : planner_(planner), frontier_(frontier), target_(target) {}

Result<Plan> TargetSearch::PlanWith(const SearchLimits& limits) {
  PERSEUS_ASSIGN_OR_RETURN(Plan plan, Make(limits));
  plan.target = Describe(target_);
  if (!best_ || CostOf(target_, plan.evaluation) < CostOf(target_, best_->evaluation)) {
    best_ = std::move(plan);
  }
  return *best_;
}

Result<Plan> TargetSearch::Make(const SearchLimits& limits) {
  if (!planner_.model().SwitchesAreFree() || !IsOneDeadline(target_.kind)) {
    return PlanForTarget(planner_, frontier_, target_, limits);
  }
  if (!search_) {
    PERSEUS_ASSIGN_OR_RETURN(const Nanoseconds deadline, DeadlineOf(planner_, frontier_, target_));
    search_ = std::make_unique<DeadlineSearch>(planner_, deadline, planner_.blocking_price());
  }
  PERSEUS_ASSIGN_OR_RETURN(Plan plan, search_->PlanWith(limits));
  return planner_.Evaluated(std::move(plan));
}

DeadlineSearch::DeadlineSearch(const Planner& planner, Nanoseconds deadline, Microwatts price_floor)
    : planner_(planner),
      deadline_(deadline),
      price_floor_(price_floor),
      graph_(planner.graph(), planner.model().blocking_power_w) {}

Result<Plan> DeadlineSearch::PlanWith(const SearchLimits& limits) {
  if (!solution_) {
    PERSEUS_ASSIGN_OR_RETURN(auto solution, planner_.Relax(deadline_, price_floor_, limits.stop));
    solution_ = std::move(solution);
    search_.emplace(graph_, planner_.network(), *solution_);
  }
  PERSEUS_ASSIGN_OR_RETURN(const Choices chosen, search_->Spend(limits));
  Plan plan;
  plan.deadline = deadline_;
  plan.options = graph_.Options(chosen);
  plan.lower_bound_j =
      planner_.BoundOf(solution_->time(planner_.network()), solution_->extra_energy);
  return plan;
}

}  // namespace perseus::plan
