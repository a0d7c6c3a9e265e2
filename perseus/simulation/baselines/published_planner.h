// Perseus as the planner of its authors computes it (Perseus, SOSP '24, section 4; the library
// lowtime).
//
// For each instruction, that planner drops the options that another option beats in time and in
// *measured* energy. So the slowest remaining option is the one with the least measured energy,
// although a slower option makes whoever waits for it draw the blocking power for a shorter time.
// The planner rounds times down to whole units, keeps the first of equal ones (the fastest, with
// the most energy), and fits the effective energy of the rounded time by a*exp(b*t) + c. Then it
// walks from the schedule in which everything runs slowest to the fastest schedule, one unit at a
// time. The instructions of a schedule run at the slowest option that fits the given time.
//
// Here, the walk is the exact one (frontier/walk.h) over the fitted curve at whole units. It does
// what the published walk does, but without a maximum flow from scratch at every step. So the
// differences from our planner are the options that count, the rounding, and the fit. The published
// frontiers are reproduced to the unit in time and to 1e-5 in energy:
// tests/oracle/published_planner_test.cc.
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

  // Keeps a reference to the graph. `blocking_power_w` is of a rank. Fails where an instruction is
  // shorter than the unit or has too few options left to be fitted, and where there would be more
  // than kMostSteps steps, naming the least unit of which there are not.
  static Result<PublishedPlanner> Create(const schedule::InstructionGraph& graph,
                                         double blocking_power_w, Nanoseconds unit);

  struct Schedule {
    Nanoseconds time = 0;      // As rounded, and so a little less than it takes.
    double energy_j = 0;       // As fitted; of all ranks, waiting included.
    std::vector<int> options;  // By instruction, of its option set.
  };

  // The lengths of the first and of the last schedule, as rounded.
  Nanoseconds slowest() const { return slowest_; }
  Nanoseconds fastest() const { return fastest_; }

  // Calls visit(Schedule) for each schedule, from the slowest on.
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
  // An option set as this planner sees it.
  struct Quantised {
    std::vector<int> options;        // Of the profile, fastest first,
    std::vector<Nanoseconds> times;  // and their times, rounded down to units. Strictly rising.
    std::vector<double> effective_energies_j;

    // The slowest option that is done in that time.
    int OptionWithin(Nanoseconds time) const;
  };

  PublishedPlanner(const schedule::InstructionGraph& graph, double blocking_power_w,
                   Nanoseconds unit)
      : graph_(&graph), blocking_power_w_(blocking_power_w), unit_(unit) {}
  Result<Quantised> Quantise(const schedule::OptionSet& set) const;
  Result<profile::Curve> Fit(const schedule::OptionSet& set, const Quantised& quantised) const;
  Result<void> CountSteps();
  Schedule ScheduleAt(const frontier::Walk& walk) const;

  const schedule::InstructionGraph* graph_;
  double blocking_power_w_;
  Nanoseconds unit_;
  std::vector<Quantised> sets_;
  frontier::Network network_;
  Nanoseconds slowest_ = 0;
  Nanoseconds fastest_ = 0;
  double least_effective_energy_j_ = 0;  // Of all instructions, each at its slowest, as fitted.
};

}  // namespace perseus::baselines
