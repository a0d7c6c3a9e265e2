#include "perseus/planning/recipe/recipe.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/planning/discrete_bound/discrete_bound.h"
#include "perseus/planning/recipe/limited_plans.h"

namespace perseus::recipe {
namespace {

// Replaces the bound of a plan without a limit by one that counts what changes cost, if this bound
// is greater.
void CountSwitches(const plan::Planner& planner, const std::stop_token& stop, plan::Plan& plan) {
  const int any = few_switches::MostPossibleSwitches(planner.graph());
  const auto bounds =
      few_switches::BoundFewSwitches(planner, plan.deadline, std::span(&any, 1), {.stop = stop});
  if (!bounds || !bounds->front().best.exists) return;
  plan.lower_bound_j = std::max(plan.lower_bound_j, ToJoules(bounds->front().best.bound));
}

// Replaces the bound of a plan by the bound for measured options (planning/discrete_bound), if this
// bound is greater. For a power cap, also uses the frontier at the time of the plan. Leaves out
// stops, which have no row in the table. `raised` is a plan that already has a bound for measured
// options. Other plans with its deadline get this bound, too.
void RaiseBounds(const plan::Planner& planner, const std::optional<plan::Frontier>& frontier,
                 const std::stop_token& stop, std::vector<PlannedTarget>& planned,
                 const plan::Plan* raised = nullptr) {
  ForEachOnAllCores(planned.size(), [&](std::size_t i) {
    plan::Plan& plan = planned[i].plan;
    if (planned[i].is_stop()) return;
    if (planned[i].target.kind == plan::Target::Kind::kPowerCap) {
      plan.lower_bound_j =
          std::max(plan.lower_bound_j, frontier->BoundLasting(plan.evaluation.time));
    }
    if (raised != nullptr && raised->deadline == plan.deadline) {
      plan.lower_bound_j = std::max(plan.lower_bound_j, raised->lower_bound_j);
    } else {
      discrete_bound::RaiseBound(planner, plan, {.stop = stop});
    }
    const bool is_free = planner.model().switch_cost.IsNone();
    const bool has_deadline = !plan::NeedsFrontier(planned[i].target.kind);
    if (!is_free && has_deadline && !planned[i].most_switches) CountSwitches(planner, stop, plan);
  });
}

// Leaves out the plans of the table that are better for an asked target. `noise` (if any) has the
// results for `planned`, in the same order.
void LeaveOutContradictions(std::vector<PlannedTarget>& planned,
                            std::optional<NoiseOutcome>& noise) {
  const auto contradicts = [&](const PlannedTarget& row) {
    return std::ranges::any_of(planned, [&](const PlannedTarget& asked) {
      if (MayTake(row.group, asked.group)) return false;
      const bool keeps_limit =
          !asked.most_switches ||
          few_switches::MostSwitches(row.plan.evaluation) <= *asked.most_switches;
      const plan::Plan best = plan::BestPlan(asked.target, asked.plan, std::span(&row.plan, 1));
      return keeps_limit && best.options != asked.plan.options;
    });
  };
  std::vector<bool> leaves_out;
  for (const PlannedTarget& row : planned) leaves_out.push_back(contradicts(row));
  const auto keep = [&](auto& rows) {
    std::size_t i = 0;
    std::erase_if(rows, [&](const auto&) { return leaves_out[i++]; });
  };
  keep(planned);
  if (!noise) return;
  keep(noise->without_margin);
  keep(noise->with_margin);
  keep(noise->most_savings);
}

constexpr double kAnyChangesPerS = std::numeric_limits<double>::infinity();

// The effort rises with the size of the job, from 200 instructions up to kFullEffortInstructions.
// The search of a small job has more moves (few_switches.cc), so only a smaller effort makes it
// fast.
constexpr double kFullEffortInstructions = 1'500;
constexpr double kSmallTradeoffEffort = 0.11;
constexpr double kSmallPlanEffort = 0.09;
constexpr double kLargePlanEffort = 0.25;

// Fills the plans of one job.
class Run {
 public:
  Run(const plan::Planner& planner, const Wishes& wishes, Progress& progress,
      std::stop_token finish, std::stop_token stop, JobPlans& result)
      : planner_(planner),
        wishes_(wishes),
        changes_(wishes.changes),
        progress_(progress),
        finish_(std::move(finish)),
        stop_(std::move(stop)),
        result_(result),
        plans_(planner, progress,
               has_limit() ? Progress::Stage::kBeforeLimit : Progress::Stage::kFinal) {}

  // Plans every target: first fast plans, then better ones, until the effort is used or a finish is
  // requested. Then makes plans with few clock changes, or with a margin for noise.
  Result<void> ComputePlans() {
    PERSEUS_RETURN_IF_ERROR(LookFirst());
    const plan::SearchLimits search{.effort = wishes_.effort, .stop = stop_, .finish = finish_};
    if (is_short()) PERSEUS_RETURN_IF_ERROR(TradeOffShortly(search));
    PlansOfEfforts of_less_effort;  // Starts for plans with a margin or a limit.
    if (!result_.limit.most_switches) {
      const bool needs_all = wishes_.noise || is_given();
      for (int effort = 1; needs_all && effort < wishes_.effort; ++effort) {
        PERSEUS_RETURN_IF_ERROR(
            plans_.Improve({.effort = effort, .stop = stop_, .finish = finish_}));
        of_less_effort.push_back(plans_.Best());
      }
      PERSEUS_RETURN_IF_ERROR(plans_.Improve(search));
    }
    std::vector<PlannedTarget>& planned = result_.targets = plans_.Best();
    if (!result_.limit.most_switches) {
      if (!is_given()) {
        ImproveUnderSwitchCost(planner_, EffortUnderSwitchCost(), stop_, finish_, planned);
      }
      RaiseBounds(planner_, result_.frontier, stop_, planned);
    }
    if (!is_short()) {
      if (is_given()) result_.limit.most_switches = changes_.most_changes;
      if (changes_.has_tradeoff()) {
        PERSEUS_RETURN_IF_ERROR(TradeOff(TradedPlan(planned).plan));
        ShareBetterPlans(planned);
      }
    }
    if (auto limited = LimitPlans(of_less_effort); !limited) {
      const bool is_unreachable = limited.error().kind == ErrorKind::kUnreachable;
      if (!is_unreachable || !changes_.changes_per_s) return limited;
      return FailAs(limited.error().kind,
                    "{} (the hardware facts allow {:.3g} clock changes a second; a limit of your "
                    "own replaces that: `max_switches`)",
                    limited.error().Message(), *changes_.changes_per_s);
    }
    TakePlanOfLeastEnergy(planned);
    if (wishes_.noise) PERSEUS_RETURN_IF_ERROR(AddMargins(std::move(of_less_effort)));
    LeaveOutContradictions(planned, result_.noise);
    for (const PlannedTarget& one : planned) {
      PERSEUS_RETURN_IF_ERROR(plan::CheckKeeps(planner_, one.target, one.plan));
    }
    result_.was_interrupted = finish_.stop_requested();
    return {};
  }

 private:
  using Limit = ChangeRules::Limit;

  bool is_given() const { return changes_.limit == Limit::kGiven; }
  bool is_short() const { return changes_.limit == Limit::kPickShortly; }
  bool has_limit() const { return is_given() || changes_.picks(); }

  // Computes the frontier and makes a first plan for each target. Shows each plan as soon as it is
  // ready: first the plan with no slowdown, and then all plans that need no frontier. At the same
  // time, another core finds the time of least energy. The frontier of a large job comes last,
  // because it takes the longest. After a finish request, skips the frontier if no target needs it.
  Result<void> LookFirst() {
    const bool with_table = wishes_.with_table || NeedsCandidates(wishes_.targets);
    const bool with_frontier = wishes_.with_frontier || with_table ||
                               std::ranges::any_of(wishes_.targets, [](const plan::Target& target) {
                                 return plan::NeedsFrontier(target.kind);
                               });
    const bool is_exact = wishes_.precision == plan::FrontierPrecision::kExact;
    const bool walks = is_exact || planner_.ProbablyWalks();
    Result<void> first;
    Result<plan::FrontierPoint> least_energy;
    const bool with_least_energy = with_table || PermitsMoreTime(planner_, wishes_.targets);
    ForEachOnAllCores(3, [&](std::size_t task) {
      if (task == 0) {
        first = plans_.LookFirst(nullptr, TargetsToPlan({}, planner_, std::nullopt, Table::kNo, 0),
                                 stop_);
      }
      // The planner stores the optimum. A failure of this task is ignored, because the same failure
      // occurs again later and is reported then.
      if (task == 1 && with_frontier && !walks) {
        (void)planner_.Relax(planner_.least_time(), planner_.blocking_price());
      }
      if (task == 2 && with_least_energy) least_energy = planner_.CheapestPoint(0);
    });
    PERSEUS_RETURN_IF_ERROR(first);
    PERSEUS_RETURN_IF_ERROR(least_energy);
    const std::vector<WantedTarget> wanted =
        TargetsToPlan(wishes_.targets, planner_,
                      with_least_energy ? std::optional(least_energy->time) : std::nullopt,
                      with_table ? Table::kYes : Table::kNo, wishes_.stops);
    std::vector<WantedTarget> deadlines = wanted;
    std::erase_if(deadlines,
                  [](const WantedTarget& one) { return plan::NeedsFrontier(one.target.kind); });
    PERSEUS_RETURN_IF_ERROR(plans_.LookFirst(nullptr, deadlines, stop_));
    if (!with_frontier) return {};
    progress_.Begin("frontier");
    const bool may_stop = deadlines.size() == wanted.size();
    Result<plan::Frontier> computed = planner_.ComputeFrontier(
        [&](double part) { progress_.Update(part); },
        may_stop && finish_.stop_possible() ? finish_ : stop_, wishes_.precision);
    if (!computed && may_stop && finish_.stop_requested()) return {};
    if (!computed) return Fail(computed);
    result_.frontier = *std::move(computed);
    return plans_.LookFirst(&*result_.frontier, wanted, stop_);
  }

  // Returns the plan for which the limits are compared. A picked limit applies to all plans. If
  // another target decided the limit, the plan with no slowdown would lose the most. So the limits
  // are compared for this plan. If no limit is picked, or if this plan saves nothing, uses another
  // one: the plan with the least time among the asked plans that have a time.
  const PlannedTarget& TradedPlan(const std::vector<PlannedTarget>& planned) const {
    const auto no_slowdown = std::ranges::find(planned, plan::Slug({}), &PlannedTarget::slug);
    const PlannedTarget& reference = no_slowdown == planned.end() ? planned.front() : *no_slowdown;
    if (changes_.picks() && Saves(planner_, reference.plan)) return reference;
    const PlannedTarget* least = nullptr;
    for (const PlannedTarget& one : planned) {
      if (!one.is_asked() || plan::NeedsFrontier(one.target.kind)) continue;
      if (least == nullptr || one.plan.deadline < least->plan.deadline) least = &one;
    }
    return least == nullptr ? reference : *least;
  }

  int Searches() const { return std::max(1, wishes_.effort); }

  // The work of a search for plans within limits, relative to the usual work. With the effort of a
  // first look, the search is short.
  double WorkWithinLimits() const { return wishes_.effort == plan::kFirstLook ? 0.1 : 1; }

  // The size of the job, relative to a job with the full effort. Users wait for the short search.
  double SizeOfSearch() const {
    return static_cast<double>(planner_.graph().instructions.size()) / kFullEffortInstructions;
  }

  // The work of ImproveUnderSwitchCost. Users wait for the plans of the short search, and a large
  // job takes long.
  double EffortUnderSwitchCost() const {
    return is_short() || SizeOfSearch() > 1 ? kLargePlanEffort : 1;
  }

  few_switches::SwitchLimits TradeoffLimits() const {
    const double effort = is_short() ? std::clamp(SizeOfSearch(), kSmallTradeoffEffort, 1.0) : 1;
    return {.effort = effort * WorkWithinLimits(),
            .searches = Searches(),
            .stop = stop_,
            .finish = finish_,
            .threads = few_switches::SwitchLimits::Threads::kAllCores};
  }

  // Computes the trade-off, and picks the limit if the rules require it. `bounds` are the result of
  // BoundTradeoff for the deadline of the plan, or empty.
  Result<void> TradeOff(const plan::Plan& unlimited,
                        std::vector<few_switches::BudgetBound> bounds = {}) {
    progress_.Begin("limits of clock changes");
    const double changes_per_s = changes_.picks() ? changes_.followed_per_s() : kAnyChangesPerS;
    PERSEUS_ASSIGN_OR_RETURN(result_.switch_tradeoff,
                             ComputeSwitchTradeoff(planner_, unlimited, TradeoffLimits(),
                                                   changes_per_s, std::move(bounds)));
    for (PlannedTarget& one : result_.targets) {
      if (one.plan.deadline == unlimited.deadline && !plan::NeedsFrontier(one.target.kind)) {
        one.plan.options = result_.switch_tradeoff->unlimited.options;
        one.plan.evaluation = result_.switch_tradeoff->unlimited.evaluation;
      }
    }
    if (!changes_.picks()) return {};
    result_.limit = PickLimit(planner_, *result_.switch_tradeoff, changes_per_s);
    return {};
  }

  // Most plans are only the starts of plans with a limit, and for this, a first look is sufficient.
  // Only the plan of the trade-off improves. At the same time, other cores compute the bounds for
  // its limits.
  Result<void> TradeOffShortly(const plan::SearchLimits& search) {
    const auto traded_plan = [&] { return PlannedTarget(TradedPlan(plans_.Best())); };
    const PlannedTarget first = traded_plan();
    plan::Plan traded;
    Result<void> improved;
    Result<std::vector<few_switches::BudgetBound>> bounds;
    ForEachOnAllCores(2, [&](std::size_t task) {
      if (task == 0) {
        improved = plans_.Improve(search, first.slug);
        if (!improved) return;
        traded = traded_plan().plan;
        discrete_bound::RaiseBound(planner_, traded, {.stop = stop_});
      } else {
        bounds = BoundTradeoff(planner_, first.plan.deadline, TradeoffLimits());
      }
    });
    PERSEUS_RETURN_IF_ERROR(improved);
    PERSEUS_RETURN_IF_ERROR(bounds);
    if (traded.deadline != first.plan.deadline) bounds->clear();
    return TradeOff(traded, *std::move(bounds));
  }

  // Replaces the plans by plans that keep the limit, or else the rate of the hardware facts. If the
  // user gives the limit, plans of less effort are starts, too.
  Result<void> LimitPlans(PlansOfEfforts of_less_effort) {
    std::vector<PlannedTarget>& planned = result_.targets;
    std::optional<SwitchTradeoff>& tradeoff = result_.switch_tradeoff;
    const double effort = is_short() ? std::clamp(kLargePlanEffort * SizeOfSearch(),
                                                  kSmallPlanEffort, kLargePlanEffort)
                                     : 1;
    const few_switches::SwitchLimits limits{.effort = effort * WorkWithinLimits(),
                                            .searches = Searches(),
                                            .breadth = few_switches::SwitchLimits::Breadth::kNarrow,
                                            .stop = stop_,
                                            .finish = finish_};
    if (const std::optional<int> most = result_.limit.most_switches) {
      progress_.Begin("limit of clock changes");
      if (is_given()) {
        of_less_effort.push_back(planned);
        PERSEUS_ASSIGN_OR_RETURN(planned,
                                 ClimbToLimit(planner_, of_less_effort, *most, limits, tradeoff));
        if (tradeoff) TakeBetterPlans(planned, *tradeoff);
      } else {
        const bool may_keep = is_short() && !changes_.changes_per_s;
        const std::vector<PlannedTarget> unlimited = planned;
        PERSEUS_ASSIGN_OR_RETURN(
            planned, LimitSwitches(planner_, std::move(planned), *most, limits, tradeoff,
                                   may_keep ? WithoutPlan::kKeepUnlimited : WithoutPlan::kFail));
        PERSEUS_RETURN_IF_ERROR(
            RaiseLimits(planner_, unlimited, changes_.followed_per_s(), limits, planned));
      }
    } else if (changes_.changes_per_s || (changes_.picks() && !finish_.stop_requested())) {
      progress_.Begin("rate of clock changes");
      PERSEUS_ASSIGN_OR_RETURN(
          planned, KeepChangeRate(
                       planner_, std::move(planned), changes_.followed_per_s(), limits,
                       changes_.changes_per_s ? WithoutPlan::kFail : WithoutPlan::kKeepUnlimited));
    } else {
      return {};
    }
    RaiseBounds(planner_, result_.frontier, stop_, planned,
                tradeoff ? &tradeoff->unlimited : nullptr);
    for (const PlannedTarget& one : planned) {
      if (one.is_stop()) continue;
      progress_.Show(plan::Describe(one.target), one.plan, Progress::Stage::kFinal);
    }
    return {};
  }

  Result<void> AddMargins(PlansOfEfforts of_less_effort) {
    noise::MarginLimits margin{.stop = stop_, .finish = finish_};
    const bool has_rate = std::ranges::any_of(
        result_.targets, [](const PlannedTarget& one) { return one.most_switches.has_value(); });
    if (has_rate || changes_.changes_per_s) {
      margin.changes = noise::MarginLimits::Changes::kNoMore;
      of_less_effort.clear();  // These plans have more changes.
    }
    PERSEUS_ASSIGN_OR_RETURN(result_.noise, AddNoiseMargins(planner_, *wishes_.noise, margin,
                                                            result_.targets, of_less_effort));
    return {};
  }

  const plan::Planner& planner_;
  const Wishes& wishes_;
  const ChangeRules& changes_;
  Progress& progress_;
  const std::stop_token finish_;
  const std::stop_token stop_;
  JobPlans& result_;
  TargetPlans plans_;
};

}  // namespace

const PlannedTarget* JobPlans::Find(const plan::Target& target) const {
  const auto found = std::ranges::find(targets, plan::Slug(target), &PlannedTarget::slug);
  return found == targets.end() ? nullptr : &*found;
}

few_switches::ChangeLimit ChangeRules::known_limit() const {
  if (limit == Limit::kGiven) return {.most_changes = most_changes};
  return {.changes_per_s = changes_per_s};
}

ChangeRules RulesWith(ChangeRules asked, const few_switches::ChangeLimit& of_job) {
  using Limit = ChangeRules::Limit;
  if (!asked.picks()) return asked;
  if (asked.limit == Limit::kPickShortly && of_job.most_changes) {
    return {.limit = Limit::kGiven,
            .most_changes = *of_job.most_changes,
            .with_tradeoff = asked.with_tradeoff};
  }
  asked.changes_per_s = of_job.changes_per_s;
  return asked;
}

ChangeRules RulesFor(ChangeRules asked, const few_switches::ChangeLimit& of_job,
                     const plan_file::PlannedJob& job, const schedule::InstructionGraph& graph) {
  using Limit = ChangeRules::Limit;
  asked = RulesWith(asked, of_job);
  if (asked.limit != Limit::kPickShortly) return asked;
  // The resources of a general graph need not be GPUs, and planning a very large job is slow even
  // without a limit.
  constexpr std::size_t kMostInstructions = 20'000;
  const bool is_large = graph.instructions.size() > kMostInstructions;
  if (job.IsGeneralGraph() || is_large) {
    asked.limit = Limit::kNone;
  } else if (asked.with_tradeoff) {
    asked.limit = Limit::kPick;  // The shown table is that of the longer search, so pick from it.
  }
  return asked;
}

Result<JobPlans> PlanJob(const plan::Planner& planner, const Wishes& wishes, Progress& progress,
                         std::stop_token finish, std::stop_token stop) {
  JobPlans result;
  Wishes own = wishes;
  if (own.noise == noise::Noise{}) own.noise.reset();
  PERSEUS_RETURN_IF_ERROR(
      Run(planner, own, progress, std::move(finish), std::move(stop), result).ComputePlans());
  return result;
}

Result<plan::Plan> PlanForStraggler(const plan::Planner& planner, const ChangeRules& changes,
                                    const plan::Evaluation& usual, Nanoseconds time,
                                    std::string name, const plan::SearchLimits& limits) {
  PERSEUS_ASSIGN_OR_RETURN(auto plan, planner.PlanForStraggler(time, limits));
  plan.target = std::move(name);
  few_switches::ChangeLimit limit = changes.known_limit();
  if (changes.picks() && limit.IsNone()) limit.most_changes = few_switches::MostSwitches(usual);
  // Only the time of the straggler limits this plan, not the target of the job.
  PERSEUS_ASSIGN_OR_RETURN(
      auto kept, few_switches::KeepChangeLimit(
                     planner, std::move(plan), {.kind = plan::Target::Kind::kMinEnergy}, limit,
                     {.stop = limits.stop,
                      .finish = limits.finish,
                      .waiting = few_switches::SwitchLimits::Waiting::kUntilDeadline}));
  return std::move(kept.plan);
}

}  // namespace perseus::recipe
