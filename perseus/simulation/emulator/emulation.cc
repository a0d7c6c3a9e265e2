#include "perseus/simulation/emulator/emulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/random.h"
#include "perseus/base/result.h"
#include "perseus/planning/plan/target.h"
#include "perseus/simulation/emulator/pipeline_runs.h"
#include "perseus/simulation/emulator/power_over_time.h"

namespace perseus::emulator {
namespace {

// The maximum number of plans to try for a pipeline that is slow, but not the slowest. The times of
// these plans are multiples of 1 / kParts of the time of the base plan, so that many nearly equal
// pipelines share a plan. (A plan takes a tenth of a second. Everything else is fast.)
constexpr int kMostAttempts = 3;
constexpr Nanoseconds kParts = 32;

// time * up / down, rounded down.
Nanoseconds Scaled(Nanoseconds time, Nanoseconds up, Nanoseconds down) {
  __extension__ using Wide = __int128;
  return static_cast<Nanoseconds>(static_cast<Wide>(time) * up / std::max<Nanoseconds>(down, 1));
}

// Returns the index of the latest event for which `holds` is true in `iteration`, or nullopt.
template <typename Event, typename Holds>
std::optional<std::size_t> Latest(const std::vector<Event>& events, const JobClock& clock,
                                  int iteration, Holds holds) {
  std::optional<std::size_t> latest;
  Nanoseconds arrival = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (!clock.HasCome(events[i].from, iteration) || !holds(events[i])) continue;
    const Nanoseconds time = *clock.TimeOf(events[i].from, iteration);
    if (latest && time < arrival) continue;
    latest = i;
    arrival = time;
  }
  return latest;
}

// Chooses the plan of each pipeline of an emulated job. This is the base plan, which depends on new
// plans and power caps, or a plan for waiting for a straggler. emulation.h has the rules.
class PlanChoice {
 public:
  // Keeps references to all parameters, and adds its plans to `runs`.
  PlanChoice(const plan::Planner& planner, const EmulationSpec& spec, const JobClock& clock,
             PipelineRuns& runs)
      : planner_(planner),
        spec_(spec),
        clock_(clock),
        runs_(runs),
        plan_(runs.AddPlan(spec.options)),
        change_in_force_(spec.changes.size()),
        cap_in_force_(spec.power_caps.size()) {
    for (const PlanChange& change : spec.changes) {
      plan_of_change_.push_back(runs.AddPlan(change.options));
    }
    for (const PowerCap& cap : spec.power_caps) plan_of_cap_.push_back(runs.AddPlan(cap.options));
  }

  // The plan of each pipeline in an iteration that has begun. Fails as planning does.
  Result<std::vector<int>> PlansIn(int iteration) {
    PERSEUS_ASSIGN_OR_RETURN(const auto base, BaseIn(iteration));
    std::vector<int> plans(At(spec_.pipelines), base.plan);
    // The controller knows what happened `delay` iterations ago.
    const int known = iteration - spec_.delay;
    if (spec_.reaction == Reaction::kNone || known < 0) return plans;
    PERSEUS_ASSIGN_OR_RETURN(const auto base_known, BaseIn(known));
    if (base_known.plan != base.plan) return plans;
    PERSEUS_ASSIGN_OR_RETURN(const auto slowest, SlowestIn(known, base.plan));
    PERSEUS_ASSIGN_OR_RETURN(const auto undisturbed, runs_.StateUndisturbed(base.plan));
    if (slowest <= runs_.run(undisturbed).time) return plans;
    std::optional<int> of_undisturbed;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      if (!runs_.IsDisturbed(pipeline) && of_undisturbed) {
        plans[At(pipeline)] = *of_undisturbed;
        continue;
      }
      PERSEUS_ASSIGN_OR_RETURN(const auto plan, PlanBeside(slowest, known, pipeline, base));
      plans[At(pipeline)] = plan;
      if (!runs_.IsDisturbed(pipeline)) of_undisturbed = plan;
    }
    return plans;
  }

  // Whether each change was active in an iteration for which PlansIn was called.
  const std::vector<bool>& changes_in_force() const { return change_in_force_; }
  const std::vector<bool>& caps_in_force() const { return cap_in_force_; }

 private:
  struct Base {
    int plan = 0;
    double most_w = 0;  // The maximum mean power of a pipeline.
  };

  Result<Base> BaseIn(int iteration) {
    Base base{plan_, std::numeric_limits<double>::infinity()};
    const auto change = Latest(spec_.changes, clock_, iteration, [](const auto&) { return true; });
    if (change) {
      base.plan = plan_of_change_[*change];
      change_in_force_[*change] = true;
    }
    const auto cap = Latest(spec_.power_caps, clock_, iteration, [&](const PowerCap& of) {
      return !clock_.HasCome(of.until, iteration);
    });
    if (!cap) return base;
    cap_in_force_[*cap] = true;
    base.most_w = spec_.power_caps[*cap].watts / spec_.pipelines;
    PERSEUS_ASSIGN_OR_RETURN(const auto power_w, PowerOf(base.plan));
    if (power_w > base.most_w) base.plan = plan_of_cap_[*cap];
    return base;
  }

  // Returns the time of the slowest pipeline in `iteration` if all pipelines run `plan`.
  Result<Nanoseconds> SlowestIn(int iteration, int plan) {
    PERSEUS_ASSIGN_OR_RETURN(const auto undisturbed, runs_.StateUndisturbed(plan));
    Nanoseconds slowest = 0;
    bool are_all_disturbed = true;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      if (!runs_.IsDisturbed(pipeline)) {
        are_all_disturbed = false;
        continue;
      }
      PERSEUS_ASSIGN_OR_RETURN(const auto state, runs_.StateIn(iteration, pipeline, plan));
      slowest = std::max(slowest, runs_.run(state).time);
    }
    return are_all_disturbed ? slowest : std::max(slowest, runs_.run(undisturbed).time);
  }

  // Returns the plan of a pipeline that waits for a straggler with the time `straggler`, as known
  // in `iteration`. If the pipeline itself is slow, tries several times for its plan.
  Result<int> PlanBeside(Nanoseconds straggler, int iteration, int pipeline, const Base& base) {
    PERSEUS_ASSIGN_OR_RETURN(const auto own, runs_.StateIn(iteration, pipeline, base.plan));
    PERSEUS_ASSIGN_OR_RETURN(const auto undisturbed, runs_.StateUndisturbed(base.plan));
    const Nanoseconds base_time = runs_.run(undisturbed).time;
    Nanoseconds time = Scaled(base_time, straggler, runs_.run(own).time);
    for (int attempt = 0; attempt < kMostAttempts && time > base_time; ++attempt) {
      const Nanoseconds part = std::max<Nanoseconds>(base_time / kParts, 1);
      const bool is_healthy = time == straggler;
      PERSEUS_ASSIGN_OR_RETURN(
          const auto plan,
          PlanFollowing(is_healthy ? time : std::max(time / part * part, base_time)));
      PERSEUS_ASSIGN_OR_RETURN(const auto state, runs_.StateIn(iteration, pipeline, plan));
      if (runs_.run(state).time > straggler) {
        time = Scaled(time, straggler, runs_.run(state).time);
        continue;
      }
      PERSEUS_ASSIGN_OR_RETURN(const auto power_w, PowerOf(plan));
      const bool keeps_to_cap =
          power_w <= base.most_w && runs_.run(state).average_power_w() <=
                                        std::max(base.most_w, runs_.run(own).average_power_w());
      return keeps_to_cap && EnergyUntil(straggler, state) < EnergyUntil(straggler, own)
                 ? plan
                 : base.plan;
    }
    return base.plan;
  }

  double EnergyUntil(Nanoseconds time, int state) const {
    const RunSummary& run = runs_.run(state);
    return run.energy_j +
           planner_.model().blocking_power_w * planner_.pp_ranks() * ToSeconds(time - run.time);
  }

  // Returns the plan for a straggler with an iteration of length `time`.
  Result<int> PlanFollowing(Nanoseconds time) {
    const auto known = following_.find(time);
    if (known != following_.end()) return known->second;
    if (spec_.plan_beside) {
      PERSEUS_ASSIGN_OR_RETURN(auto options, spec_.plan_beside(time));
      return following_[time] = runs_.AddPlan(std::move(options));
    }
    PERSEUS_ASSIGN_OR_RETURN(auto plan, planner_.PlanForStraggler(time));
    return following_[time] = runs_.AddPlan(std::move(plan.options));
  }

  Result<double> PowerOf(int plan) {
    PERSEUS_ASSIGN_OR_RETURN(const auto state, runs_.StateUndisturbed(plan));
    return runs_.run(state).average_power_w();
  }

  const plan::Planner& planner_;
  const EmulationSpec& spec_;
  const JobClock& clock_;
  PipelineRuns& runs_;
  int plan_ = 0;                          // The number of the spec's plan.
  std::vector<int> plan_of_change_;       // By index in the spec.
  std::vector<int> plan_of_cap_;          // By index in the spec.
  std::map<Nanoseconds, int> following_;  // By the straggler's time.
  std::vector<bool> change_in_force_;
  std::vector<bool> cap_in_force_;
};

constexpr int kPowerWindows = 256;  // In the baseline's iteration time.

std::vector<Moment> EdgesOf(const EmulationSpec& spec) {
  std::vector<Moment> edges;
  for (const Disturbance& disturbance : spec.disturbances) {
    edges.push_back(disturbance.from);
    edges.push_back(disturbance.until);
  }
  for (const PlanChange& change : spec.changes) edges.push_back(change.from);
  for (const PowerCap& cap : spec.power_caps) {
    edges.push_back(cap.from);
    edges.push_back(cap.until);
  }
  return edges;
}

// The events of a spec that had an effect, each by its index.
struct Noticed {
  std::vector<bool> disturbances;  // An instruction began while the disturbance was present.
  std::vector<bool> changes;       // The plan was active in some iteration.
  std::vector<bool> power_caps;    // The cap was active in some iteration.
};

// If no clock within the throttle was measured for an instruction, the instruction runs at a clock
// above the throttle. Returns the highest such clock over all instructions, or 0 if there is none.
double LowestClockAbove(const schedule::InstructionGraph& graph, const Disturbance& throttle) {
  double highest = 0;
  if (throttle.kind != Disturbance::Kind::kThrottle) return highest;
  for (const schedule::InstructionNode& instruction : graph.instructions) {
    const schedule::OptionSet& set =
        graph.option_sets[static_cast<std::size_t>(instruction.option_set)];
    if (!set.HasClock()) continue;
    if (throttle.pp_rank >= 0 && instruction.pp_rank != throttle.pp_rank) continue;
    const double lowest =
        std::ranges::min_element(set.options, {}, &profile::Option::frequency_mhz)->frequency_mhz;
    if (lowest > throttle.value) highest = std::max(highest, lowest);
  }
  return highest;
}

std::string_view WhatDidNotBegin(Disturbance::Kind kind) {
  return kind == Disturbance::Kind::kInput ? "iteration" : "computation of its ranks";
}

// Returns a remark about a power cap that its own plan exceeds, or nullopt.
std::optional<std::string> RemarkOnCap(const plan::Planner& planner, const PowerCap& cap,
                                       int pipelines) {
  const plan::Evaluator evaluator(planner.graph(), planner.model());
  const double least_w = pipelines * evaluator.Evaluate(cap.options).average_power_w();
  if (least_w <= cap.watts) return std::nullopt;
  const double waiting_w = pipelines * ToWatts(planner.blocking_price());
  return fmt::format(
      "{}no plan meets this power cap of {} W: the job had the plan of least power, {} W ({})",
      cap.where.empty() ? "" : cap.where + ": ", cap.watts, plan::RoundedUp(least_w),
      cap.watts > waiting_w
          ? fmt::format("to meet the cap, pause it for {:.3g} % of the time",
                        100 * plan::PauseFor(cap.watts, least_w, waiting_w))
          : fmt::format("even GPUs that only wait draw {} W", plan::RoundedUp(waiting_w)));
}

// Returns remarks for the user about events that had no effect, or an effect that differs from the
// file: one line for each. `time` is the time of all iterations.
std::vector<std::string> RemarksOn(const plan::Planner& planner, const EmulationSpec& spec,
                                   Nanoseconds time, const Noticed& noticed) {
  std::vector<std::string> remarks;
  const std::string job =
      fmt::format("the job's {} iterations take {} s", spec.iterations, ToSeconds(time));
  for (std::size_t i = 0; i < spec.disturbances.size(); ++i) {
    const Disturbance& disturbance = spec.disturbances[i];
    if (!noticed.disturbances[i]) {
      remarks.push_back(fmt::format("{}: this straggler had no effect: no {} began meanwhile ({})",
                                    NameOf(disturbance), WhatDidNotBegin(disturbance.kind), job));
    } else if (const double lowest = LowestClockAbove(planner.graph(), disturbance); lowest > 0) {
      remarks.push_back(fmt::format(
          "{}: some instructions were not measured at {} MHz or less: they ran at their lowest "
          "clock (up to {} MHz)",
          NameOf(disturbance), disturbance.value, lowest));
    }
  }
  const auto add = [&](const std::string& where, std::string_view what) {
    remarks.push_back(
        fmt::format("{}this {} was never in force: no iteration began while it was the latest one "
                    "({})",
                    where.empty() ? "" : where + ": ", what, job));
  };
  for (std::size_t i = 0; i < spec.changes.size(); ++i) {
    if (!noticed.changes[i]) add(spec.changes[i].where, "plan");
  }
  for (std::size_t i = 0; i < spec.power_caps.size(); ++i) {
    const PowerCap& cap = spec.power_caps[i];
    if (!noticed.power_caps[i]) {
      add(cap.where, "power cap");
    } else if (auto remark = RemarkOnCap(planner, cap, spec.pipelines)) {
      remarks.push_back(*std::move(remark));
    }
  }
  return remarks;
}

class Engine {
 public:
  Engine(const plan::Planner& planner, const EmulationSpec& spec)
      : planner_(planner),
        graph_(planner.graph()),
        spec_(spec),
        random_(spec.seed),
        clock_(EdgesOf(spec)),
        runs_(planner, spec.disturbances, spec.pipelines, clock_),
        plans_(planner, spec, clock_, runs_),
        totals_(At(spec.pipelines), std::vector<Totals>(graph_.pp_rank_orders.size())),
        noticed_(spec.disturbances.size()) {}

  Result<Emulation> Run() {
    Emulation emulation;
    emulation.iterations.reserve(At(spec_.iterations));
    for (int iteration = 0; iteration < spec_.iterations; ++iteration) {
      clock_.Begin(emulation.time, reach_);
      PERSEUS_ASSIGN_OR_RETURN(const auto result,
                               HasNoise() ? RunWithNoise(iteration) : RunWithoutNoise(iteration));
      if (result.time > kLongestRun - emulation.time) {
        return Fail(
            "{} iterations take more than 36 years, which 64-bit nanoseconds cannot represent "
            "(emulate at most {})",
            spec_.iterations, iteration);
      }
      emulation.time += result.time;
      emulation.energy_j += result.energy_j;
      emulation.iterations.push_back(result);
    }
    AddEqualIterations();
    emulation.pp_ranks = RankTotalsUntil(emulation.time);
    emulation.executions = runs_.executions() + executions_with_noise_;
    emulation.remarks = RemarksOn(planner_, spec_, emulation.time,
                                  {noticed_, plans_.changes_in_force(), plans_.caps_in_force()});
    return emulation;
  }

  Result<std::vector<RunOfPipelines>> RunsIn(const Emulation& emulation, int iteration) {
    Nanoseconds start = 0;
    for (int i = 0; i <= iteration; ++i) {
      clock_.Begin(start, 0);
      start += emulation.iterations[At(i)].time;
    }
    PERSEUS_ASSIGN_OR_RETURN(auto states, StatesIn(iteration));
    std::map<int, std::vector<int>> pipelines;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      pipelines[states[At(pipeline)]].push_back(pipeline);
    }
    std::vector<RunOfPipelines> runs;
    for (auto& [state, of] : pipelines) {
      PERSEUS_ASSIGN_OR_RETURN(auto execution, runs_.Execute(runs_.state(state)));
      runs.push_back({std::move(of), std::move(execution.run)});
    }
    std::ranges::sort(runs, {}, [](const RunOfPipelines& run) { return run.pipelines.front(); });
    return runs;
  }

 private:
  bool HasNoise() const { return spec_.noise != profile::TimeNoise{} || spec_.latency_spread > 0; }

  // The state of each pipeline in `iteration`.
  Result<std::vector<int>> StatesIn(int iteration) {
    PERSEUS_ASSIGN_OR_RETURN(auto plans, plans_.PlansIn(iteration));
    std::vector<int> states = std::move(plans);
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      PERSEUS_ASSIGN_OR_RETURN(const auto state,
                               runs_.StateIn(iteration, pipeline, states[At(pipeline)]));
      states[At(pipeline)] = state;
    }
    return states;
  }

  // Whether a pipeline may have another state than in the previous iteration.
  bool MayDiffer(int iteration) const {
    if (iteration == 0 || clock_.HasEdge(iteration)) return true;
    const int known = iteration - spec_.delay;
    return spec_.reaction == Reaction::kFollow && known >= 0 &&
           (known == 0 || clock_.HasEdge(known));
  }

  // If nothing differs from the previous iteration, its result is used again.
  Result<EmulatedIteration> RunWithoutNoise(int iteration) {
    if (MayDiffer(iteration)) {
      AddEqualIterations();
      PERSEUS_ASSIGN_OR_RETURN(auto states, StatesIn(iteration));
      states_ = std::move(states);
      reach_ = runs_.TakeReach();
      auto result = Compute();
      if (!result) return result;
      last_ = *result;
      NoteDisturbances();
    }
    ++equal_iterations_;
    return last_;
  }

  // Computes an iteration of pipelines in `states_`. Stores the result, and uses it again if equal
  // numbers of pipelines have each state.
  Result<EmulatedIteration> Compute() {
    std::map<int, std::int64_t> counts;
    EmulatedIteration result;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      ++counts[states_[At(pipeline)]];
      const Nanoseconds time = runs_.run(states_[At(pipeline)]).time;
      if (time <= result.time) continue;
      result.time = time;
      result.slowest_dp_rank = pipeline;
    }
    std::vector<std::pair<int, std::int64_t>> kinds(counts.begin(), counts.end());
    const auto known = computed_.find(kinds);
    if (known != computed_.end()) {
      EmulatedIteration same = known->second;
      same.slowest_dp_rank = result.slowest_dp_rank;
      return same;
    }
    PowerOverTime power(Window());
    for (const auto& [state, count] : kinds) {
      const RunSummary& run = runs_.run(state);
      const auto times = static_cast<double>(count);
      result.energy_j += times * (run.energy_j + WaitingW() * ToSeconds(result.time - run.time));
      result.switches += count * run.switches;
      // Computes executions again, because storing all of them would need much memory.
      PERSEUS_ASSIGN_OR_RETURN(const auto execution, runs_.Execute(runs_.state(state)));
      AddPower(power, execution.run.evaluation, times);
    }
    result.peak_power_w = power.Peak(result.time, WaitingW() * spec_.pipelines);
    return computed_[std::move(kinds)] = result;
  }

  Result<EmulatedIteration> RunWithNoise(int iteration) {
    PERSEUS_ASSIGN_OR_RETURN(const auto plans, plans_.PlansIn(iteration));
    EmulatedIteration result;
    PowerOverTime power(Window());
    std::vector<Nanoseconds> times;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      const PipelineRuns::State state{plans[At(pipeline)],
                                      runs_.PresencesIn(iteration, pipeline, kForever)};
      PERSEUS_ASSIGN_OR_RETURN(const auto execution, runs_.Execute(state, DrawVariation()));
      ++executions_with_noise_;
      const RunSummary run = Summarize(graph_, execution);
      AddPower(power, execution.run.evaluation, 1);
      Add(pipeline, run, 1);
      NoteDisturbances(state.presences, run.noticed);
      times.push_back(run.time);
      result.energy_j += run.energy_j;
      result.switches += run.switches;
      if (run.time <= result.time) continue;
      result.time = run.time;
      result.slowest_dp_rank = pipeline;
    }
    for (const Nanoseconds time : times) {
      result.energy_j += WaitingW() * ToSeconds(result.time - time);
    }
    result.peak_power_w = power.Peak(result.time, WaitingW() * spec_.pipelines);
    return result;
  }

  plan::Variation DrawVariation() {
    plan::Variation variation;
    if (spec_.noise != profile::TimeNoise{}) {
      std::vector<double> of_pp_rank(graph_.pp_rank_orders.size(), 0);
      if (spec_.noise.common > 0) {
        for (double& deviation : of_pp_rank) deviation = spec_.noise.common * Normal(random_);
      }
      variation.time_factors.assign(graph_.instructions.size(), 1);
      for (int i = 0; At(i) < graph_.instructions.size(); ++i) {
        if (!runs_.executor().IsComputation(i)) continue;
        const double own = spec_.noise.independent * Normal(random_);
        const double shared = of_pp_rank[At(graph_.instructions[At(i)].pp_rank)];
        variation.time_factors[At(i)] = std::exp(own + shared);
      }
    }
    if (spec_.latency_spread > 0 && planner_.model().switch_latency > 0) {
      const auto latency = static_cast<double>(planner_.model().switch_latency);
      for (std::size_t i = 0; i < graph_.instructions.size(); ++i) {
        const double drawn = latency * std::exp(spec_.latency_spread * Normal(random_));
        // No instruction is longer than kLongestRun, so a longer latency makes no difference.
        variation.switch_latencies.push_back(static_cast<Nanoseconds>(
            std::llround(std::min(drawn, static_cast<double>(kLongestRun)))));
      }
    }
    return variation;
  }

  // The power of all ranks of a pipeline while they wait.
  double WaitingW() const { return planner_.model().blocking_power_w * planner_.pp_ranks(); }

  Nanoseconds Window() const {
    return std::max<Nanoseconds>(planner_.baseline().time / kPowerWindows, 1);
  }

  // Adds the power of instructions above the blocking power.
  void AddPower(PowerOverTime& power, const plan::Evaluation& evaluation, double count) const {
    for (std::size_t i = 0; i < evaluation.starts.size(); ++i) {
      const Nanoseconds duration = evaluation.durations[i];
      if (duration == 0) continue;
      const double above_w =
          evaluation.energies_j[i] / ToSeconds(duration) - planner_.model().blocking_power_w;
      power.Add(evaluation.starts[i], evaluation.starts[i] + duration, count * above_w);
    }
  }

  // Adds the equal iterations since the last call to the totals of the ranks.
  void AddEqualIterations() {
    if (equal_iterations_ == 0) return;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      Add(pipeline, runs_.run(states_[At(pipeline)]), equal_iterations_);
    }
    equal_iterations_ = 0;
  }

  void Add(int pipeline, const RunSummary& run, std::int64_t times) {
    for (std::size_t rank = 0; rank < run.pp_ranks.size(); ++rank) {
      Totals& totals = totals_[At(pipeline)][rank];
      totals.busy += times * run.pp_ranks[rank].busy;
      totals.energy_j += static_cast<double>(times) * run.pp_ranks[rank].energy_j;
      totals.switches += times * run.pp_ranks[rank].switches;
    }
  }

  // Returns the totals until `end`. A rank that is not busy waits.
  std::vector<std::vector<RankTotals>> RankTotalsUntil(Nanoseconds end) const {
    std::vector<std::vector<RankTotals>> ranks(totals_.size());
    for (std::size_t pipeline = 0; pipeline < totals_.size(); ++pipeline) {
      for (const Totals& totals : totals_[pipeline]) {
        ranks[pipeline].push_back({ToSeconds(totals.busy), totals.energy_j,
                                   planner_.model().blocking_power_w * ToSeconds(end - totals.busy),
                                   totals.switches});
      }
    }
    return ranks;
  }

  void NoteDisturbances() {
    for (const int state : states_) {
      NoteDisturbances(runs_.state(state).presences, runs_.run(state).noticed);
    }
  }

  void NoteDisturbances(const std::vector<Presence>& presences, const std::vector<bool>& noticed) {
    for (std::size_t i = 0; i < presences.size(); ++i) {
      if (noticed[i]) noticed_[At(presences[i].disturbance)] = true;
    }
  }

  struct Totals {
    Nanoseconds busy = 0;
    double energy_j = 0;
    std::int64_t switches = 0;
  };

  const plan::Planner& planner_;
  const schedule::InstructionGraph& graph_;
  const EmulationSpec& spec_;
  std::mt19937_64 random_;
  JobClock clock_;
  PipelineRuns runs_;
  PlanChoice plans_;
  // Used without noise: the states and the result of the last iteration that may have differed from
  // the previous one, and the number of iterations that are equal to it.
  std::vector<int> states_;  // By pipeline.
  EmulatedIteration last_;
  Nanoseconds reach_ = 0;
  std::int64_t equal_iterations_ = 0;
  // The computed iterations, by the number of pipelines in each state.
  std::map<std::vector<std::pair<int, std::int64_t>>, EmulatedIteration> computed_;
  std::vector<std::vector<Totals>> totals_;  // [pipeline][rank]
  std::vector<bool> noticed_;                // By disturbance.
  std::int64_t executions_with_noise_ = 0;
};

Result<void> Check(const plan::Planner& planner, const EmulationSpec& spec) {
  for (const Disturbance& disturbance : spec.disturbances) {
    const std::string where = disturbance.where.empty() ? "" : disturbance.where + ": ";
    if (disturbance.dp_rank < 0 || disturbance.dp_rank >= spec.pipelines) {
      return Fail("{}dp_rank {} cannot be slowed down: it does not exist (the job has {}: 0 to {})",
                  where, disturbance.dp_rank, spec.pipelines, spec.pipelines - 1);
    }
    if (disturbance.pp_rank >= planner.pp_ranks()) {
      return Fail(
          "{}pp_rank {} cannot be slowed down: it does not exist (a pipeline has {}: 0 to {})",
          where, disturbance.pp_rank, planner.pp_ranks(), planner.pp_ranks() - 1);
    }
  }
  return {};
}

}  // namespace

double Emulation::peak_power_w() const {
  double peak = 0;
  for (const EmulatedIteration& iteration : iterations) {
    peak = std::max(peak, iteration.peak_power_w);
  }
  return peak;
}

Result<Emulation> Emulate(const plan::Planner& planner, const EmulationSpec& spec) {
  PERSEUS_RETURN_IF_ERROR(Check(planner, spec));
  return Engine(planner, spec).Run();
}

Result<std::vector<RunOfPipelines>> RunsInIteration(const plan::Planner& planner,
                                                    const EmulationSpec& spec,
                                                    const Emulation& emulation, int iteration) {
  PERSEUS_RETURN_IF_ERROR(Check(planner, spec));
  return Engine(planner, spec).RunsIn(emulation, iteration);
}

}  // namespace perseus::emulator
