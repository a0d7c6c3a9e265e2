#include "perseus/simulation/emulator/emulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/base/random.h"
#include "perseus/simulation/emulator/pipeline_runs.h"
#include "perseus/simulation/emulator/plan_choice.h"
#include "perseus/simulation/emulator/power_over_time.h"
#include "perseus/simulation/emulator/remarks.h"

namespace perseus::emulator {
namespace {

constexpr int kPowerWindows = 256;  // Of the baseline's iteration time.

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
        felt_(spec.disturbances.size()) {}

  Result<Emulation> Run() {
    Emulation emulation;
    emulation.iterations.reserve(At(spec_.iterations));
    for (int iteration = 0; iteration < spec_.iterations; ++iteration) {
      clock_.Begin(emulation.time, reach_);
      PERSEUS_ASSIGN_OR_RETURN(const auto result,
                               HasNoise() ? RunEach(iteration) : RunAlike(iteration));
      if (result.time > kLongestRun - emulation.time) {
        return Fail(
            "{} iterations take more than 36 years, which does not fit the nanoseconds that times "
            "are counted in (emulate at most {})",
            spec_.iterations, iteration);
      }
      emulation.time += result.time;
      emulation.energy_j += result.energy_j;
      emulation.iterations.push_back(result);
    }
    AddAlike();
    emulation.ranks = RankTotalsUntil(emulation.time);
    emulation.executions = runs_.executions() + executions_with_noise_;
    emulation.remarks = RemarksOn(planner_, spec_, emulation.time,
                                  {felt_, plans_.changes_in_force(), plans_.caps_in_force()});
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
  bool HasNoise() const { return spec_.noise > 0 || spec_.latency_spread > 0; }

  // What a pipeline's state is in that iteration, for each of them.
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

  // Whether pipelines may be in other states than in the iteration before.
  bool MayDiffer(int iteration) const {
    if (iteration == 0 || clock_.HasEdge(iteration)) return true;
    const int known = iteration - spec_.delay;
    return spec_.reaction == Reaction::kFollow && known >= 0 &&
           (known == 0 || clock_.HasEdge(known));
  }

  // Without noise: an iteration in which nothing differs is the one before.
  Result<EmulatedIteration> RunAlike(int iteration) {
    if (MayDiffer(iteration)) {
      AddAlike();
      PERSEUS_ASSIGN_OR_RETURN(auto states, StatesIn(iteration));
      states_ = std::move(states);
      reach_ = runs_.TakeReach();
      auto result = Compute();
      if (!result) return result;
      alike_ = *result;
      NoteFelt();
    }
    ++times_alike_;
    return alike_;
  }

  // An iteration of pipelines in `states_`. Computed once for the same number in each state.
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
      // Kept for none of them: only what is summed up is small.
      PERSEUS_ASSIGN_OR_RETURN(const auto execution, runs_.Execute(runs_.state(state)));
      AddPower(power, execution.run.evaluation, times);
    }
    result.peak_power_w = power.Peak(result.time, WaitingW() * spec_.pipelines);
    return computed_[std::move(kinds)] = result;
  }

  Result<EmulatedIteration> RunEach(int iteration) {
    PERSEUS_ASSIGN_OR_RETURN(const auto plans, plans_.PlansIn(iteration));
    EmulatedIteration result;
    PowerOverTime power(Window());
    std::vector<Nanoseconds> times;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      const PipelineRuns::State state{plans[At(pipeline)],
                                      runs_.PresencesIn(iteration, pipeline, kForever)};
      PERSEUS_ASSIGN_OR_RETURN(const auto execution, runs_.Execute(state, DrawChance()));
      ++executions_with_noise_;
      const RunSummary run = Summarise(graph_, execution);
      AddPower(power, execution.run.evaluation, 1);
      Add(pipeline, run, 1);
      Note(state.presences, run.felt);
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

  plan::Variation DrawChance() {
    plan::Variation chance;
    if (spec_.noise > 0) {
      chance.time_factors.assign(graph_.instructions.size(), 1);
      for (int i = 0; At(i) < graph_.instructions.size(); ++i) {
        if (!runs_.executor().IsComputation(i)) continue;
        chance.time_factors[At(i)] = std::exp(spec_.noise * Normal(random_));
      }
    }
    if (spec_.latency_spread > 0 && planner_.model().switch_latency > 0) {
      const auto latency = static_cast<double>(planner_.model().switch_latency);
      for (std::size_t i = 0; i < graph_.instructions.size(); ++i) {
        const double drawn = latency * std::exp(spec_.latency_spread * Normal(random_));
        // No instruction lasts as long as the limit, so all beyond it are the same.
        chance.switch_latencies.push_back(static_cast<Nanoseconds>(
            std::llround(std::min(drawn, static_cast<double>(kLongestRun)))));
      }
    }
    return chance;
  }

  // What all ranks of a pipeline draw when they wait.
  double WaitingW() const { return planner_.model().blocking_power_w * planner_.pp_ranks(); }

  Nanoseconds Window() const {
    return std::max<Nanoseconds>(planner_.baseline().time / kPowerWindows, 1);
  }

  // What instructions draw above the blocking power.
  void AddPower(PowerOverTime& power, const plan::Evaluation& evaluation, double count) const {
    for (std::size_t i = 0; i < evaluation.starts.size(); ++i) {
      const Nanoseconds duration = evaluation.durations[i];
      if (duration == 0) continue;
      const double above_w =
          evaluation.energies_j[i] / ToSeconds(duration) - planner_.model().blocking_power_w;
      power.Add(evaluation.starts[i], evaluation.starts[i] + duration, count * above_w);
    }
  }

  // The iterations that were alike so far, in the ranks' totals.
  void AddAlike() {
    if (times_alike_ == 0) return;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      Add(pipeline, runs_.run(states_[At(pipeline)]), times_alike_);
    }
    times_alike_ = 0;
  }

  void Add(int pipeline, const RunSummary& run, std::int64_t times) {
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
      Totals& totals = totals_[At(pipeline)][rank];
      totals.busy += times * run.ranks[rank].busy;
      totals.energy_j += static_cast<double>(times) * run.ranks[rank].energy_j;
      totals.switches += times * run.ranks[rank].switches;
    }
  }

  // Whoever is not busy waits.
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

  void NoteFelt() {
    for (const int state : states_) Note(runs_.state(state).presences, runs_.run(state).felt);
  }

  void Note(const std::vector<Presence>& presences, const std::vector<bool>& felt) {
    for (std::size_t i = 0; i < presences.size(); ++i) {
      if (felt[i]) felt_[At(presences[i].disturbance)] = true;
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
  // Of the last iteration that may have differed from the one before,
  std::vector<int> states_;  // [pipeline]
  EmulatedIteration alike_;
  Nanoseconds reach_ = 0;
  std::int64_t times_alike_ = 0;  // and how often it has been since.
  // By state and how many pipelines are in it.
  std::map<std::vector<std::pair<int, std::int64_t>>, EmulatedIteration> computed_;
  std::vector<std::vector<Totals>> totals_;  // [pipeline][rank]
  std::vector<bool> felt_;                   // By disturbance.
  std::int64_t executions_with_noise_ = 0;
};

Result<void> Check(const plan::Planner& planner, const EmulationSpec& spec) {
  for (const Disturbance& disturbance : spec.disturbances) {
    const std::string where = disturbance.where.empty() ? "" : disturbance.where + ": ";
    if (disturbance.dp_rank < 0 || disturbance.dp_rank >= spec.pipelines) {
      return Fail("{}there is no dp_rank {} to slow down (the job has {}: 0 to {})", where,
                  disturbance.dp_rank, spec.pipelines, spec.pipelines - 1);
    }
    if (disturbance.pp_rank >= planner.pp_ranks()) {
      return Fail("{}there is no pp_rank {} to slow down (a pipeline has {}: 0 to {})", where,
                  disturbance.pp_rank, planner.pp_ranks(), planner.pp_ranks() - 1);
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
