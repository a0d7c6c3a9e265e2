#include "perseus/planning/plan/planner.h"

#include <algorithm>

#include "perseus/base/stopped.h"
#include "perseus/planning/frontier/check.h"
#include "perseus/planning/frontier/deadline.h"
#include "perseus/planning/plan/relaxations.h"
#include "perseus/planning/plan/search/choices.h"
#include "perseus/planning/plan/switching.h"
#include "perseus/planning/plan/target.h"

namespace perseus::plan {
namespace {

// The blocking power of all pp_ranks together. It is rounded down, so that a lower bound stays a
// lower bound. CheckBlockingPower has checked that the value fits.
Microwatts BlockingPrice(const ExecutionModel& model, int pp_ranks) {
  return FromWatts(model.blocking_power_w * static_cast<double>(pp_ranks));
}

// A flow can be as large as the blocking price plus the savings of all instructions. BuildNetwork
// limits only the savings to this value. Here, the whole sum is limited.
constexpr double kMostPriceW = ToWatts(frontier::kMostPower);

Result<void> CheckBlockingPower(const ExecutionModel& model, int pp_ranks, double could_save_w) {
  if (model.blocking_power_w * pp_ranks + could_save_w <= kMostPriceW) return {};
  return Fail(
      "a blocking power of {} W on each of {} pp_ranks{} is more than the {:.0f} W that fit the "
      "planner's microwatts (check the blocking power, in watts, and the GPUs per stage)",
      model.blocking_power_w, pp_ranks,
      could_save_w > 0
          ? fmt::format(", with {:.0f} W that their instructions could save,", could_save_w)
          : "",
      kMostPriceW);
}

// The maximum power that all instructions together save with more time.
double SteepestSavingW(const frontier::Network& network) {
  Microwatts sum = 0;  // BuildNetwork has checked that this sum fits.
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    const profile::Curve& curve = network.curve_of(network.arcs[static_cast<std::size_t>(i)]);
    if (!curve.slopes.empty()) sum += curve.slopes.front();
  }
  return ToWatts(sum);
}

tl::unexpected<Error> FailWithoutChoice(const schedule::OptionSet& set) {
  const auto [fastest, slowest] = std::ranges::minmax(set.options, {}, &profile::Option::time);
  if (set.options.size() > 1 && fastest.time == slowest.time) {
    return Fail(
        "{}: all {} measured options take the same time, and no other instruction has a choice, so "
        "there is nothing to plan (a stage that only moves memory behaves so: give it more layers; "
        "so does a GPU whose power limit permits none of these clocks: measure lower ones)",
        set.name, set.options.size());
  }
  return Fail(
      "{}: only 1 of {} measured options is useful, because no slower option saves effective "
      "energy, and no other instruction has a choice (measure more frequencies, or check the "
      "blocking power)",
      set.name, set.options.size());
}

Result<std::vector<profile::Curve>> HullsOf(const schedule::InstructionGraph& graph,
                                            double blocking_power_w, Planner::FewOptions few) {
  std::vector<profile::Curve> curves;
  const schedule::OptionSet* without_choice = nullptr;
  bool has_choice = false;
  for (const schedule::OptionSet& set : graph.option_sets) {
    const std::size_t useful = profile::ParetoFront(set.options, blocking_power_w).size();
    has_choice = has_choice || useful > 1;
    if (IsComputation(set.kind) && useful < 2 && without_choice == nullptr) without_choice = &set;
    Result<profile::Curve> curve = profile::LowerHull(set.options, blocking_power_w);
    if (!curve) return Fail(curve, set.name);
    curves.push_back(std::move(*curve));
  }
  if (without_choice != nullptr && !has_choice && few == Planner::FewOptions::kRefuse) {
    return FailWithoutChoice(*without_choice);
  }
  return curves;
}

}  // namespace

Result<Planner> Planner::Create(schedule::InstructionGraph graph, const ExecutionModel& model,
                                FewOptions few) {
  Planner planner;
  planner.relaxations_ = std::make_shared<Relaxations>();
  planner.graph_ = std::move(graph);
  planner.model_ = model;
  const int pp_ranks = planner.pp_ranks();
  if (const Result<void> fits = CheckBlockingPower(model, pp_ranks, 0); !fits) return Fail(fits);
  PERSEUS_ASSIGN_OR_RETURN(std::vector<profile::Curve> curves,
                           HullsOf(planner.graph_, model.blocking_power_w, few));
  PERSEUS_ASSIGN_OR_RETURN(frontier::Network network,
                           frontier::BuildNetwork(planner.graph_, curves));
  planner.network_ = std::move(network);
  if (const auto fits = CheckBlockingPower(model, pp_ranks, SteepestSavingW(planner.network_));
      !fits) {
    return Fail(fits);
  }
  planner.baseline_ = Evaluator(planner.graph_, model).Evaluate(BaselineOptions(planner.graph_));
  planner.least_time_ = frontier::EarliestTimes(
      planner.network_, frontier::Pace::kFastest)[static_cast<std::size_t>(planner.network_.sink)];
  for (const schedule::InstructionNode& instruction : planner.graph_.instructions) {
    planner.least_effective_energy_j_ +=
        curves[static_cast<std::size_t>(instruction.option_set)].least_effective_energy_j;
  }
  return planner;
}

Microwatts Planner::blocking_price() const { return BlockingPrice(model_, pp_ranks()); }

double Planner::BoundOf(Nanoseconds time, Femtojoules extra_energy) const {
  return least_effective_energy_j_ + ToJoules(extra_energy) +
         ToWatts(blocking_price()) * ToSeconds(time);
}

Result<frontier::Solution> Planner::Relax(Nanoseconds deadline, Microwatts price_floor,
                                          const std::stop_token& stop) const {
  if (stop.stop_requested()) return FailAsStopped();
  return relaxations_->Get(deadline, price_floor, [&]() -> Result<frontier::Solution> {
    Result<frontier::Solution> solution =
        frontier::SolveDeadline(network_, deadline, price_floor, stop);
    if (!solution) return solution;
    if (const auto proof = frontier::CheckDeadline(network_, *solution, deadline, price_floor);
        !proof) {
      return FailAs(ErrorKind::kSystem, "a solution failed its own check: {} (please report this)",
                    proof.error().Message());
    }
    return solution;
  });
}

Result<double> Planner::BoundFor(Nanoseconds deadline) const {
  PERSEUS_ASSIGN_OR_RETURN(const frontier::Solution solution,
                           Relax(deadline, blocking_price(), {}));
  return BoundOf(solution.time(network_), solution.extra_energy);
}

Result<Plan> Planner::PlanWithoutLatency(Nanoseconds deadline, const SearchLimits& limits) const {
  return DeadlineSearch(*this, deadline, blocking_price()).PlanWith(limits);
}

Result<Plan> Planner::PlanFor(Nanoseconds deadline, const SearchLimits& limits) const {
  if (!model_.SwitchesAreFree()) return PlanUnderLatency(*this, deadline, limits);
  Result<Plan> plan = PlanWithoutLatency(deadline, limits);
  if (!plan) return plan;
  return Evaluated(*std::move(plan));
}

Result<Plan> Planner::PlanForStraggler(Nanoseconds time, const SearchLimits& limits) const {
  // The iteration lasts until `time` in any case, so time has no price.
  DeadlineSearch search(*this, time, 0);
  PERSEUS_ASSIGN_OR_RETURN(Plan plan, search.PlanWith(limits));
  plan.lower_bound_j = BoundOf(time, search.solution().extra_energy);
  if (model_.SwitchesAreFree()) return Evaluated(std::move(plan));
  // This plan ignores the latency and the cost of switches. So it may be late, or may need more
  // energy than a plan that includes them.
  plan.evaluation = Evaluator(graph_, model_).Evaluate(plan.options);
  auto other = PlanFor(time, limits);
  if (!other) return other;
  if (plan.evaluation.time <= time &&
      EnergyUntil(time, plan.evaluation) <= EnergyUntil(time, other->evaluation)) {
    return plan;
  }
  other->lower_bound_j = plan.lower_bound_j;
  return other;
}

Result<Plan> Planner::Evaluated(Plan plan) const {
  plan.evaluation = Evaluator(graph_, model_).Evaluate(plan.options);
  if (plan.evaluation.time > plan.deadline) {
    return FailAs(ErrorKind::kSystem,
                  "a plan of {} ns misses its deadline of {} ns (please report this)",
                  plan.evaluation.time, plan.deadline);
  }
  return plan;
}

double Planner::EnergyUntil(Nanoseconds time, const Evaluation& evaluation) const {
  return evaluation.energy_j +
         model_.blocking_power_w * pp_ranks() * ToSeconds(time - evaluation.time);
}

InstructionWindows FindWindows(const Planner& planner, Nanoseconds deadline) {
  const ChoiceGraph graph(planner.graph(), planner.model().blocking_power_w);
  const Choices fastest(planner.graph().instructions.size(), 0);
  InstructionWindows windows{EarliestStarts(graph, fastest),
                             LatestStarts(graph, fastest, deadline)};
  for (int i = 0; i < graph.instructions(); ++i) {
    windows.latest_ends[static_cast<std::size_t>(i)] += graph.candidates(i).front().time;
  }
  return windows;
}

}  // namespace perseus::plan
