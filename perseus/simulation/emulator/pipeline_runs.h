// The different iterations of the pipelines of a job. Each is computed once. Also finds which of
// them a pipeline runs in a given iteration with a given plan.
//
// Two iterations are different if their plans or their disturbances differ. If a timed event begins
// or ends within an iteration, the moment of this event also makes a difference.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/emulator/emulation.h"

namespace perseus::emulator {

inline constexpr Nanoseconds kForever = std::numeric_limits<Nanoseconds>::max();
// The longest time that anything may last (36 years). Sums and differences of such times fit 64
// bits.
inline constexpr Nanoseconds kLongestRun = kForever / 8;

// A disturbance within an iteration. Its times are relative to the beginning of the iteration.
struct Presence {
  int disturbance = 0;  // Its index in EmulationSpec::disturbances.
  Nanoseconds from = 0;
  Nanoseconds until = kForever;

  // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in it.
  auto operator<=>(const Presence&) const = default;
};

struct Execution {
  PipelineRun run;
  std::vector<bool> noticed;  // By presence: whether an instruction begins during it.
};

// Runs one iteration of one pipeline with its disturbances. Finds the options that the pipeline
// really runs, and their time and energy.
//
// A disturbance that begins or ends within the iteration affects the computations that begin while
// it is present. The start of a computation depends only on earlier computations. So the executor
// finds the run by repetition: it assumes when each computation begins, evaluates, and repeats with
// the result until nothing changes. After the n-th evaluation, the first n instructions are
// correct. Usually two or three evaluations are enough.
//
// Keeps references to both parameters of the constructor.
class Executor {
 public:
  Executor(const plan::Planner& planner, const std::vector<Disturbance>& disturbances);

  // `options` are the options of a plan, and `noise` is the random variation. Fails (kInput) if the
  // sum of the durations does not fit 64-bit nanoseconds. The message names the disturbances.
  Result<Execution> Execute(const std::vector<int>& options, std::span<const Presence> presences,
                            const plan::Variation& noise = {}) const;

  // Whether a disturbance may slow the instruction. It does not slow fixed instructions.
  bool IsComputation(int instruction) const;

 private:
  struct Disturbed {
    std::vector<int> options;
    plan::Variation variation;
    std::vector<bool> noticed;
  };
  Disturbed Apply(const std::vector<int>& options, std::span<const Presence> presences,
                  const plan::Variation& noise, const std::vector<Nanoseconds>& starts) const;
  bool Concerns(const Disturbance& disturbance, int instruction) const;
  int Throttled(int option_set, int option, double frequency_mhz) const;
  Result<void> CheckFits(const plan::Variation& variation,
                         std::span<const Presence> presences) const;
  std::string NamesOf(std::span<const Presence> presences) const;

  const schedule::InstructionGraph& graph_;
  const std::vector<Disturbance>& disturbances_;
  plan::Evaluator evaluator_;
  std::vector<double> longest_;  // By option set, in nanoseconds.
  double delays_ = 0;            // The sum over all dependencies.
};

// Returns a name such as "events.toml:3", or "the straggler of dp_rank 2" if `where` is empty.
std::string NameOf(const Disturbance& disturbance);

// The times at which the iterations of an emulated job begin, and the moments that have passed by
// then.
class JobClock {
 public:
  // `edges` are the moments at which the states of pipelines may change.
  explicit JobClock(std::vector<Moment> edges);

  // Begins the next iteration. It ends at most `reach` later, unless a state changes.
  void Begin(Nanoseconds start, Nanoseconds reach);

  Nanoseconds StartOf(int iteration) const { return starts_[static_cast<std::size_t>(iteration)]; }
  // Returns the time of a moment. If the moment belongs to an iteration after `iteration`, the
  // beginning of that iteration is unknown: returns nullopt.
  std::optional<Nanoseconds> TimeOf(const Moment& moment, int iteration) const;
  // Whether the moment is not later than the beginning of `iteration`.
  bool HasCome(const Moment& moment, int iteration) const;
  // Whether an edge may make `iteration` differ from the previous one: an edge lies between the
  // starts of the two, or within `iteration`, or within the previous one.
  bool HasEdge(int iteration) const { return has_edge_[static_cast<std::size_t>(iteration)]; }

 private:
  std::vector<Moment> edges_;  // Sorted by iteration.
  std::size_t next_ = 0;       // The first edge whose time is unknown.
  // The known times of edges that have not come.
  std::priority_queue<Nanoseconds, std::vector<Nanoseconds>, std::greater<>> ahead_;
  std::vector<Nanoseconds> starts_;  // By iteration.
  std::vector<bool> has_edge_;       // By iteration.
  bool was_cut_ = false;
};

// The data of an iteration of a pipeline that the emulation needs. The iteration ends when the
// pipeline itself is done, without waiting for others.
struct RunSummary {
  struct Rank {
    Nanoseconds busy = 0;
    double energy_j = 0;  // The energy of its instructions.
    int switches = 0;
  };
  Nanoseconds time = 0;
  double energy_j = 0;
  int switches = 0;
  std::vector<Rank> pp_ranks;
  std::vector<bool> noticed;  // By presence.

  // The mean power if the pipeline does not wait for a straggler.
  double average_power_w() const { return energy_j / ToSeconds(time); }
};

RunSummary Summarize(const schedule::InstructionGraph& graph, const Execution& execution);

class PipelineRuns {
 public:
  struct State {
    int plan = 0;
    std::vector<Presence> presences;  // Sorted by index of the disturbance.

    // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in it.
    auto operator<=>(const State&) const = default;
  };

  // Keeps references to all three.
  PipelineRuns(const plan::Planner& planner, const std::vector<Disturbance>& disturbances,
               int pipelines, const JobClock& clock);

  // Returns the number of the plan. The first is 0. Equal options have the same number.
  int AddPlan(std::vector<int> options);
  const std::vector<int>& options(int plan) const {
    return *plans_[static_cast<std::size_t>(plan)];
  }

  // Returns the number of the state that the pipeline has in `iteration` if it runs `plan`.
  Result<int> StateIn(int iteration, int pipeline, int plan);
  Result<int> StateUndisturbed(int plan) { return NumberOf({plan, {}}); }

  // Return the state and the run with a number from StateIn. The references stay valid.
  const State& state(int number) const { return *states_[static_cast<std::size_t>(number)]; }
  const RunSummary& run(int number) const { return runs_[static_cast<std::size_t>(number)]; }

  // Computes the execution again, without keeping it.
  Result<Execution> Execute(const State& state, const plan::Variation& noise = {}) const {
    return executor_.Execute(options(state.plan), state.presences, noise);
  }

  // Returns the disturbances of a pipeline in `iteration`. If an edge is at least `horizon` after
  // the beginning of the iteration, it is treated as after the end of the iteration.
  std::vector<Presence> PresencesIn(int iteration, int pipeline, Nanoseconds horizon) const;

  bool IsDisturbed(int pipeline) const {
    return !disturbances_of_[static_cast<std::size_t>(pipeline)].empty();
  }
  const Executor& executor() const { return executor_; }
  std::int64_t executions() const { return static_cast<std::int64_t>(runs_.size()); }

  // Returns the longest run of the states that were returned since the last call of TakeReach.
  Nanoseconds TakeReach() { return std::exchange(reach_, 0); }

 private:
  Result<int> NumberOf(State state);

  const plan::Planner& planner_;
  const std::vector<Disturbance>& disturbances_;
  const JobClock& clock_;
  Executor executor_;
  std::vector<std::vector<int>> disturbances_of_;  // By pipeline.
  std::map<std::vector<int>, int> plan_numbers_;
  std::vector<const std::vector<int>*> plans_;  // By number.
  std::map<State, int> numbers_;
  std::vector<const State*> states_;  // By number.
  std::deque<RunSummary> runs_;       // By number.
  Nanoseconds reach_ = 0;
};

}  // namespace perseus::emulator
