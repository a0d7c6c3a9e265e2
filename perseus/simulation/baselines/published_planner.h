// Perseus as the planner of its authors computes it (Perseus, SOSP '24, section 4; the library
// lowtime).
//
// For each instruction, that planner drops an option if another option is better in time and in
// *measured* energy. So the slowest remaining option is the one with the least measured energy. An
// even slower option could save more energy, because the GPUs that wait for it would draw the
// blocking power for a shorter time. The planner rounds times down to whole units. If several
// options then have equal times, it keeps the first one (the fastest, with the most energy). It
// fits the effective energy at the rounded time by a*exp(b*t) + c. Then it walks from the schedule
// in which all instructions run slowest to the fastest schedule, one unit at a time. Each
// instruction of a schedule runs at the slowest option that fits the given time.
//
// Here, the walk is the exact one (frontier/walk.h) over the fitted curve at whole units. It has
// the same steps as the published walk, but it does not compute a maximum flow from zero at every
// step. So there are three differences from our planner: the options that are used, the rounding,
// and the fit. The published frontiers are reproduced to the unit in time and to 1e-5 in energy:
// tests/oracle/published_frontier_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/frontier/network.h"
#include "perseus/planning/frontier/walk.h"
#include "perseus/planning/profile/curve.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::baselines {

class PublishedPlanner {
 public:
  static constexpr std::int64_t kMostSteps = 100'000;
  // The most steps, multiplied by the number of instructions. A walk of this size takes about 15 s.
  static constexpr std::int64_t kMostEffort = 200'000'000;

  // Keeps a reference to the graph. `blocking_power_w` is the power of a rank. Fails (kInput) if an
  // instruction is shorter than the unit, or if it has too few options for a fit. Also fails if the
  // walk would have more than kMostSteps steps, or an effort above kMostEffort. The message then
  // has the least unit that avoids this.
  static Result<PublishedPlanner> Create(const schedule::InstructionGraph& graph,
                                         double blocking_power_w, Nanoseconds unit);

  struct Schedule {
    Nanoseconds time = 0;      // From rounded times, so slightly too short.
    double energy_j = 0;       // The fitted energy of all ranks, with waiting.
    std::vector<int> options;  // By instruction, an index into its option set.
  };

  // The lengths of the first and of the last schedule, from rounded times.
  Nanoseconds slowest() const { return slowest_; }
  Nanoseconds fastest() const { return fastest_; }

  // Calls visit(Schedule) for each schedule, the slowest first.
  template <typename Visit>
  void ForEachSchedule(Visit visit) const {
    frontier::Walk walk(network_);
    for (;;) {
      visit(ScheduleAt(walk));
      const Nanoseconds before = walk.time();
      while (!walk.finished() && walk.time() > before - unit_) walk.Advance(before - unit_);
      if (walk.time() == before) return;
    }
  }

 private:
  // The options of a set that this planner uses.
  struct Quantized {
    std::vector<int> options;        // Indices into the option set, fastest first.
    std::vector<Nanoseconds> times;  // Rounded down to units. Strictly ascending.
    std::vector<double> effective_energies_j;

    // The slowest option that takes at most `time`.
    int OptionWithin(Nanoseconds time) const;
  };

  PublishedPlanner(const schedule::InstructionGraph& graph, double blocking_power_w,
                   Nanoseconds unit)
      : graph_(&graph), blocking_power_w_(blocking_power_w), unit_(unit) {}
  Result<Quantized> Quantize(const schedule::OptionSet& set) const;
  Result<profile::Curve> Fit(const schedule::OptionSet& set, const Quantized& quantized) const;
  Result<void> CountSteps();
  Schedule ScheduleAt(const frontier::Walk& walk) const;

  const schedule::InstructionGraph* graph_;
  double blocking_power_w_;
  Nanoseconds unit_;
  std::vector<Quantized> sets_;
  frontier::Network network_;
  Nanoseconds slowest_ = 0;
  Nanoseconds fastest_ = 0;
  double least_effective_energy_j_ =
      0;  // The sum over all instructions at their slowest, as fitted.
};

}  // namespace perseus::baselines
