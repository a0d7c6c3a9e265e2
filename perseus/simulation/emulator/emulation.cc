#include "perseus/simulation/emulator/emulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/index.h"
#include "perseus/base/random.h"
#include "perseus/simulation/emulator/pipeline_runs.h"
#include "perseus/simulation/emulator/plan_choice.h"
#include "perseus/simulation/emulator/power_over_time.h"

namespace perseus::emulator {
namespace {

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

// Which events of a spec had an effect, each by its index.
struct Noticed {
  std::vector<bool> disturbances;  // An instruction began while the disturbance was present.
  std::vector<bool> changes;       // The plan was in force in some iteration.
  std::vector<bool> power_caps;    // The cap was in force in some iteration.
};

// The lowest clock that instructions run at because no clock within the throttle was measured: the
// highest one over all instructions. 0: all instructions have a clock within the throttle.
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

// Remarks for the user about events that had no effect, or another effect than the file says: one
// line for each. `time` is the time of all iterations.
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
    if (!noticed.power_caps[i]) add(spec.power_caps[i].where, "power cap");
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

  // The state of each pipeline in that iteration.
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

  // An iteration of pipelines in `states_`. The result is kept for equal numbers of pipelines in
  // each state.
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
      // Executions are computed again here, because keeping all of them would need much memory.
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

  // A rank that is not busy waits.
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
  // Without noise: the states and the result of the last iteration that may have differed from the
  // previous one, and how many iterations are equal to it.
  std::vector<int> states_;  // By pipeline.
  EmulatedIteration last_;
  Nanoseconds reach_ = 0;
  std::int64_t equal_iterations_ = 0;
  // By the number of pipelines in each state.
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
