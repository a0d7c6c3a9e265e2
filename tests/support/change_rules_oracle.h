// The rules of change_rules.h, checked with plain loops.
#pragma once

#include <vector>

#include "perseus/base/index.h"
#include "perseus/planning/few_switches/change_rules.h"
#include "perseus/planning/plan/evaluation.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::few_switches {

// The times of operations as plain intervals.
struct Interval {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

inline std::vector<Interval> IntervalsOf(Operation operation, int pp_rank,
                                         const schedule::InstructionGraph& graph,
                                         const plan::Evaluation& evaluation) {
  const auto end = [&](int i) { return evaluation.starts[At(i)] + evaluation.durations[At(i)]; };
  std::vector<Interval> intervals;
  for (const schedule::Dependency& dependency : graph.dependencies) {
    const int from = graph.instructions[At(dependency.from)].pp_rank;
    const int to = graph.instructions[At(dependency.to)].pp_rank;
    if (operation != Operation::kP2p || from == to || (from != pp_rank && to != pp_rank)) continue;
    intervals.push_back({end(dependency.from), end(dependency.from) + dependency.delay});
  }
  for (const int i : graph.pp_rank_orders[At(pp_rank)]) {
    if (operation == Operation::kAllReduce &&
        graph.options_of(i).kind == InstructionKind::kAllReduce) {
      intervals.push_back({evaluation.starts[At(i)], end(i)});
    }
  }
  return intervals;
}

// Whether no change of the plan breaks a rule. A change takes `takes` from its request.
inline bool KeepsRules(const schedule::InstructionGraph& graph, const std::vector<int>& options,
                       const plan::Evaluation& evaluation, const ChangeRules& rules,
                       Nanoseconds takes) {
  for (std::size_t r = 0; r < graph.pp_rank_orders.size(); ++r) {
    std::vector<int> clocked;
    for (const int i : graph.pp_rank_orders[r]) {
      if (graph.options_of(i).HasClock()) clocked.push_back(i);
    }
    const auto option = [&](std::size_t p) {
      return graph.options_of(clocked[p]).options[At(options[At(clocked[p])])];
    };
    std::vector<Nanoseconds> changes;  // Of three iterations.
    for (int iteration = 0; iteration < 3; ++iteration) {
      for (std::size_t p = 0; p < clocked.size(); ++p) {
        const std::size_t before = (p + clocked.size() - 1) % clocked.size();
        if (option(p).SameKnobs(option(before))) continue;
        const int previous = clocked[before];
        const int iterations = iteration - (p == 0 ? 1 : 0);
        changes.push_back(evaluation.starts[At(previous)] + evaluation.durations[At(previous)] +
                          iterations * evaluation.time);
      }
    }
    for (std::size_t i = 1; i < changes.size(); ++i) {
      if (changes[i] - changes[i - 1] < rules.min_dwell) return false;
    }
    for (const QuietZone& zone : rules.quiet_zones) {
      for (const Interval& busy :
           IntervalsOf(zone.operation, static_cast<int>(r), graph, evaluation)) {
        for (const Nanoseconds change : changes) {
          // The changes of the second iteration among the operations of all three.
          const Nanoseconds begin = busy.begin + evaluation.time - zone.distance;
          const Nanoseconds end = busy.end + evaluation.time + zone.distance;
          if (change + takes > begin && change < end) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace perseus::few_switches
