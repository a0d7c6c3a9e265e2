#include "perseus/emulator/emulation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "perseus/base/random.h"

namespace perseus {
namespace {

std::size_t At(int i) { return static_cast<std::size_t>(i); }

constexpr int kPowerBins = 256;  // Of the baseline's iteration time.

// What an emulation needs to know of a pipeline's iteration.
struct Run {
  Nanoseconds time = 0;
  double energy_j = 0;
  int switches = 0;
  std::vector<RankTotals> ranks;        // Until its own end.
  std::vector<double> energy_of_bin_j;  // What all ranks draw in each bin until its own end.
};

// Which of the spec's disturbances are active for a pipeline, and the options it runs.
struct State {
  int plan = 0;
  std::vector<int> disturbances;  // Indices, ascending.

  auto operator<=>(const State&) const = default;
};

class Engine {
 public:
  Engine(const Planner& planner, const EmulationSpec& spec)
      : planner_(planner),
        graph_(planner.graph()),
        spec_(spec),
        evaluator_(planner.graph(), planner.model()),
        random_(spec.seed),
        bin_(std::max<Nanoseconds>(planner.baseline().time / kPowerBins, 1)) {
    plans_.push_back(spec.options);
    for (const PlanChange& change : spec.changes) plans_.push_back(change.options);
    disturbed_.assign(At(spec.pipelines), {});
    for (int i = 0; At(i) < spec.disturbances.size(); ++i) {
      disturbed_[At(spec.disturbances[At(i)].pipeline)].push_back(i);
    }
  }

  Result<Emulation> Run() {
    Emulation emulation;
    emulation.ranks.assign(At(spec_.pipelines), std::vector<RankTotals>(graph_.rank_orders.size()));
    emulation.iterations.reserve(At(spec_.iterations));
    for (int iteration = 0; iteration < spec_.iterations; ++iteration) {
      starts_.push_back(emulation.time);
      auto states = StatesIn(iteration);
      if (!states) return Fail(states);
      const EmulatedIteration result = HasNoise() ? RunEach(*states, emulation) : RunAlike(*states);
      emulation.time += result.time;
      emulation.energy_j += result.energy_j;
      emulation.iterations.push_back(result);
    }
    SpreadTotals(emulation);
    emulation.executions = executions_;
    return emulation;
  }

  Result<std::vector<RunOfPipelines>> RunsIn(const Emulation& emulation, int iteration) {
    Nanoseconds start = 0;
    for (int i = 0; i <= iteration; ++i) {
      starts_.push_back(start);
      start += emulation.iterations[At(i)].time;
    }
    auto states = StatesIn(iteration);
    if (!states) return Fail(states);
    std::vector<RunOfPipelines> runs;
    for (const auto& [state, pipelines] : *states) {
      const std::vector<int> options = OptionsOf(state);
      runs.push_back({pipelines, {options, evaluator_.Evaluate(options, VariationOf(state))}});
    }
    return runs;
  }

 private:
  // Pipelines by what they run.
  using States = std::map<State, std::vector<int>>;

  bool HasNoise() const { return spec_.noise > 0 || spec_.latency_spread > 0; }

  // When it is or was, if its iteration has begun.
  std::optional<Nanoseconds> TimeOf(const Moment& moment, int iteration) const {
    if (moment.iteration > iteration) return std::nullopt;
    return starts_[At(moment.iteration)] + moment.after;
  }

  bool HasCome(const Moment& moment, int iteration) const {
    const auto time = TimeOf(moment, iteration);
    return time && *time <= starts_[At(iteration)];
  }

  int BasePlan(int iteration) const {
    int plan = 0;
    Nanoseconds latest = 0;
    for (std::size_t i = 0; i < spec_.changes.size(); ++i) {
      const Moment& from = spec_.changes[i].from;
      if (!HasCome(from, iteration) || *TimeOf(from, iteration) < latest) continue;
      latest = *TimeOf(from, iteration);
      plan = static_cast<int>(i) + 1;
    }
    return plan;
  }

  std::vector<int> ActiveIn(int iteration, int pipeline) const {
    std::vector<int> active;
    for (const int i : disturbed_[At(pipeline)]) {
      const Disturbance& disturbance = spec_.disturbances[At(i)];
      if (HasCome(disturbance.from, iteration) && !HasCome(disturbance.until, iteration)) {
        active.push_back(i);
      }
    }
    return active;
  }

  // The time of the slowest pipeline if all ran the base plan of that iteration.
  Nanoseconds SlowestUnderBase(int iteration) {
    const int plan = BasePlan(iteration);
    Nanoseconds slowest = RunOf({plan, {}}).time;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      if (disturbed_[At(pipeline)].empty()) continue;
      slowest = std::max(slowest, RunOf({plan, ActiveIn(iteration, pipeline)}).time);
    }
    return slowest;
  }

  Result<States> StatesIn(int iteration) {
    const int base = BasePlan(iteration);
    // What is known, is of some iterations ago.
    const int known = iteration - spec_.delay;
    std::optional<Nanoseconds> straggler;
    if (spec_.reaction == Reaction::kFollow && known >= 0) {
      const Nanoseconds slowest = SlowestUnderBase(known);
      if (slowest > RunOf({BasePlan(known), {}}).time) straggler = slowest;
    }
    States states;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      State state{base, ActiveIn(iteration, pipeline)};
      if (straggler) {
        const auto plan = PlanBeside(*straggler, {BasePlan(known), ActiveIn(known, pipeline)});
        if (!plan) return Fail(plan);
        if (*plan) state.plan = **plan;
      }
      states[std::move(state)].push_back(pipeline);
    }
    return states;
  }

  // The index of the plan that a pipeline, known to be in `state`, runs beside a straggler of that
  // time; none for one that has no time to take, as the straggler itself.
  Result<std::optional<int>> PlanBeside(Nanoseconds straggler, const State& state) {
    const Nanoseconds own = RunOf(state).time;
    if (own >= straggler) return std::nullopt;
    // What makes it slow takes its part of the time.
    const double slowness =
        static_cast<double>(own) / static_cast<double>(RunOf({state.plan, {}}).time);
    const auto time = static_cast<Nanoseconds>(static_cast<double>(straggler) / slowness);
    auto plan = PlanFollowing(state.disturbances.empty() ? straggler : time);
    if (!plan) return Fail(plan);
    if (RunOf({*plan, state.disturbances}).time > straggler) return std::nullopt;
    return *plan;
  }

  // The index of the plan for a straggler of that time.
  Result<int> PlanFollowing(Nanoseconds time) {
    const auto known = following_.find(time);
    if (known != following_.end()) return known->second;
    auto plan = planner_.PlanForStraggler(time);
    if (!plan) return Fail(plan);
    plans_.push_back(std::move(plan->options));
    return following_[time] = static_cast<int>(plans_.size()) - 1;
  }

  // A throttled GPU runs the option of the highest clock that it can have.
  std::vector<int> OptionsOf(const State& state) const {
    std::vector<int> options = plans_[At(state.plan)];
    for (const int i : state.disturbances) {
      const Disturbance& disturbance = spec_.disturbances[At(i)];
      if (disturbance.kind != Disturbance::Kind::kThrottle) continue;
      for (std::size_t operation = 0; operation < options.size(); ++operation) {
        if (!Concerns(disturbance, operation)) continue;
        const OptionSet& set = graph_.option_sets[At(graph_.operations[operation].option_set)];
        if (set.options.size() < 2) continue;
        if (set.options[At(options[operation])].frequency_mhz <= disturbance.value) continue;
        options[operation] = HighestWithin(set, disturbance.value);
      }
    }
    return options;
  }

  static int HighestWithin(const OptionSet& set, double frequency_mhz) {
    int best = -1;
    int lowest = 0;
    for (int i = 0; At(i) < set.options.size(); ++i) {
      const double clock = set.options[At(i)].frequency_mhz;
      if (clock < set.options[At(lowest)].frequency_mhz) lowest = i;
      if (clock > frequency_mhz) continue;
      if (best < 0 || clock > set.options[At(best)].frequency_mhz) best = i;
    }
    return best < 0 ? lowest : best;
  }

  bool Concerns(const Disturbance& disturbance, std::size_t operation) const {
    return disturbance.rank < 0 || graph_.operations[operation].rank == disturbance.rank;
  }

  Variation VariationOf(const State& state) const {
    Variation variation;
    for (const int i : state.disturbances) {
      const Disturbance& disturbance = spec_.disturbances[At(i)];
      if (disturbance.kind == Disturbance::Kind::kSlow) {
        variation.time_factors.resize(graph_.operations.size(), 1);
        for (std::size_t operation = 0; operation < graph_.operations.size(); ++operation) {
          if (Concerns(disturbance, operation)) {
            variation.time_factors[operation] *= disturbance.value;
          }
        }
      } else if (disturbance.kind == Disturbance::Kind::kInput) {
        variation.earliest_starts.resize(graph_.operations.size(), 0);
        const auto rank = At(std::max(disturbance.rank, 0));
        if (graph_.rank_orders[rank].empty()) continue;
        Nanoseconds& start = variation.earliest_starts[At(graph_.rank_orders[rank].front())];
        start = std::max(start, ToNanoseconds(disturbance.value));
      }
    }
    return variation;
  }

  // Without noise. Computed once for each state.
  const struct Run& RunOf(const State& state) {
    const auto known = runs_.find(state);
    if (known != runs_.end()) return known->second;
    ++executions_;
    return runs_[state] = Summarise(evaluator_.Evaluate(OptionsOf(state), VariationOf(state)));
  }

  struct Run RunWithNoise(const State& state) {
    Variation variation = VariationOf(state);
    variation.time_factors.resize(graph_.operations.size(), 1);
    for (double& factor : variation.time_factors) factor *= std::exp(spec_.noise * Normal(random_));
    if (spec_.latency_spread > 0 && planner_.model().switch_latency > 0) {
      const auto latency = static_cast<double>(planner_.model().switch_latency);
      for (std::size_t i = 0; i < graph_.operations.size(); ++i) {
        variation.switch_latencies.push_back(static_cast<Nanoseconds>(
            std::llround(latency * std::exp(spec_.latency_spread * Normal(random_)))));
      }
    }
    ++executions_;
    return Summarise(evaluator_.Evaluate(OptionsOf(state), variation));
  }

  struct Run Summarise(const Evaluation& evaluation) const {
    const double blocking_w = planner_.model().blocking_power_w;
    struct Run run {
      .time = evaluation.time, .energy_j = evaluation.energy_j, .switches = evaluation.switches,
      .ranks = std::vector<RankTotals>(graph_.rank_orders.size()),
      .energy_of_bin_j = std::vector<double>(static_cast<std::size_t>(evaluation.time / bin_ + 1))
    };
    // All wait all the time, and what works draws the rest besides.
    const double waiting_w = blocking_w * static_cast<double>(graph_.rank_orders.size());
    AddPower(run.energy_of_bin_j, 0, evaluation.time, waiting_w);
    for (std::size_t rank = 0; rank < graph_.rank_orders.size(); ++rank) {
      RankTotals& totals = run.ranks[rank];
      Nanoseconds busy = 0;
      for (const int operation : graph_.rank_orders[rank]) {
        const Nanoseconds duration = evaluation.durations[At(operation)];
        const double energy_j = evaluation.energies_j[At(operation)];
        busy += duration;
        totals.operation_energy_j += energy_j;
        if (duration == 0) continue;
        AddPower(run.energy_of_bin_j, evaluation.starts[At(operation)], duration,
                 energy_j / ToSeconds(duration) - blocking_w);
      }
      totals.busy_s = ToSeconds(busy);
      totals.blocking_energy_j = blocking_w * ToSeconds(evaluation.time - busy);
      totals.switches = evaluation.rank_switches[rank];
    }
    return run;
  }

  void AddPower(std::vector<double>& energy_of_bin_j, Nanoseconds start, Nanoseconds duration,
                double power_w) const {
    const Nanoseconds end = start + duration;
    for (Nanoseconds bin = start / bin_; bin * bin_ < end; ++bin) {
      const Nanoseconds from = std::max(start, bin * bin_);
      const Nanoseconds until = std::min(end, (bin + 1) * bin_);
      energy_of_bin_j[static_cast<std::size_t>(bin)] += power_w * ToSeconds(until - from);
    }
  }

  // Adds what `count` pipelines draw until the iteration's end.
  void AddBins(std::vector<double>& sum, const struct Run& run, Nanoseconds until,
               double count) const {
    const auto bins = static_cast<std::size_t>(until / bin_ + 1);
    if (sum.size() < bins) sum.resize(bins);
    for (std::size_t i = 0; i < run.energy_of_bin_j.size(); ++i) {
      sum[i] += count * run.energy_of_bin_j[i];
    }
    std::vector<double> waiting(bins);
    AddPower(waiting, run.time, until - run.time,
             planner_.model().blocking_power_w * planner_.ranks());
    for (std::size_t i = 0; i < bins; ++i) sum[i] += count * waiting[i];
  }

  // The last bin is seldom full, and so no mean over a bin.
  double PeakOf(const std::vector<double>& sum, Nanoseconds until) const {
    const auto full = std::max<std::size_t>(static_cast<std::size_t>(until / bin_), 1);
    return *std::max_element(sum.begin(), sum.begin() + static_cast<std::ptrdiff_t>(full)) /
           ToSeconds(bin_);
  }

  double WaitingJ(const struct Run& run, Nanoseconds until) const {
    return planner_.model().blocking_power_w * planner_.ranks() * ToSeconds(until - run.time);
  }

  // How often each state ran in iterations of which length; totals of ranks come from it at the
  // end.
  EmulatedIteration RunAlike(const States& states) {
    EmulatedIteration result;
    std::vector<std::pair<State, std::size_t>> kinds;
    for (const auto& [state, pipelines] : states) {
      const struct Run& run = RunOf(state);
      if (run.time > result.time ||
          (run.time == result.time && pipelines.front() < result.slowest_pipeline)) {
        result.time = run.time;
        result.slowest_pipeline = pipelines.front();
      }
      kinds.emplace_back(state, pipelines.size());
    }
    for (const auto& [state, pipelines] : states) {
      for (const int pipeline : pipelines) {
        ++counts_[pipeline][{state, result.time}];
      }
    }
    const auto known = alike_.find(kinds);
    if (known != alike_.end()) {
      EmulatedIteration same = known->second;
      same.slowest_pipeline = result.slowest_pipeline;
      return same;
    }
    std::vector<double> bins;
    for (const auto& [state, pipelines] : states) {
      const struct Run& run = RunOf(state);
      const auto count = static_cast<double>(pipelines.size());
      result.energy_j += count * (run.energy_j + WaitingJ(run, result.time));
      result.switches += run.switches * static_cast<int>(pipelines.size());
      AddBins(bins, run, result.time, count);
    }
    result.peak_power_w = PeakOf(bins, result.time);
    return alike_[std::move(kinds)] = result;
  }

  EmulatedIteration RunEach(const States& states, Emulation& emulation) {
    EmulatedIteration result;
    std::vector<struct Run> runs(At(spec_.pipelines));
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      const auto of = std::ranges::find_if(states, [&](const auto& state) {
        return std::ranges::binary_search(state.second, pipeline);
      });
      runs[At(pipeline)] = RunWithNoise(of->first);
      if (runs[At(pipeline)].time > result.time) {
        result.time = runs[At(pipeline)].time;
        result.slowest_pipeline = pipeline;
      }
    }
    std::vector<double> bins;
    for (int pipeline = 0; pipeline < spec_.pipelines; ++pipeline) {
      const struct Run& run = runs[At(pipeline)];
      result.energy_j += run.energy_j + WaitingJ(run, result.time);
      result.switches += run.switches;
      AddBins(bins, run, result.time, 1);
      AddTotals(emulation.ranks[At(pipeline)], run, result.time, 1);
    }
    result.peak_power_w = PeakOf(bins, result.time);
    return result;
  }

  void AddTotals(std::vector<RankTotals>& totals, const struct Run& run, Nanoseconds until,
                 std::int64_t times) const {
    const auto count = static_cast<double>(times);
    const double waiting_j = planner_.model().blocking_power_w * ToSeconds(until - run.time);
    for (std::size_t rank = 0; rank < totals.size(); ++rank) {
      totals[rank].busy_s += count * run.ranks[rank].busy_s;
      totals[rank].operation_energy_j += count * run.ranks[rank].operation_energy_j;
      totals[rank].blocking_energy_j += count * (run.ranks[rank].blocking_energy_j + waiting_j);
      totals[rank].switches += times * run.ranks[rank].switches;
    }
  }

  void SpreadTotals(Emulation& emulation) {
    for (const auto& [pipeline, runs] : counts_) {
      for (const auto& [run, times] : runs) {
        AddTotals(emulation.ranks[At(pipeline)], RunOf(run.first), run.second, times);
      }
    }
  }

  const Planner& planner_;
  const OperationGraph& graph_;
  const EmulationSpec& spec_;
  Evaluator evaluator_;
  std::mt19937_64 random_;
  Nanoseconds bin_;
  std::vector<Nanoseconds> starts_;  // Of the iterations so far, this one included.
  std::vector<std::vector<int>> plans_;
  std::vector<std::vector<int>> disturbed_;  // [pipeline]: indices of its disturbances.
  std::map<Nanoseconds, int> following_;     // By the straggler's time.
  std::map<State, struct Run> runs_;
  std::map<std::vector<std::pair<State, std::size_t>>, EmulatedIteration> alike_;
  // [pipeline]: how often it ran in a state, in an iteration of that length.
  std::map<int, std::map<std::pair<State, Nanoseconds>, std::int64_t>> counts_;
  std::int64_t executions_ = 0;
};

Result<void> Check(const Planner& planner, const EmulationSpec& spec) {
  for (const Disturbance& disturbance : spec.disturbances) {
    if (disturbance.pipeline < 0 || disturbance.pipeline >= spec.pipelines) {
      return Fail("there is no pipeline {} to slow down (the job has {}: 0 to {})",
                  disturbance.pipeline, spec.pipelines, spec.pipelines - 1);
    }
    if (disturbance.rank >= planner.ranks()) {
      return Fail("there is no rank {} to slow down (a pipeline has {}: 0 to {})", disturbance.rank,
                  planner.ranks(), planner.ranks() - 1);
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

Result<Emulation> Emulate(const Planner& planner, const EmulationSpec& spec) {
  if (auto checked = Check(planner, spec); !checked) return Fail(checked);
  return Engine(planner, spec).Run();
}

Result<std::vector<RunOfPipelines>> RunsInIteration(const Planner& planner,
                                                    const EmulationSpec& spec,
                                                    const Emulation& emulation, int iteration) {
  if (auto checked = Check(planner, spec); !checked) return Fail(checked);
  return Engine(planner, spec).RunsIn(emulation, iteration);
}

}  // namespace perseus
