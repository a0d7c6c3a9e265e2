#include "perseus/planning/few_switches/switch_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::few_switches {
namespace {

// More than any weight.
constexpr Femtojoules kNever = std::numeric_limits<Femtojoules>::max();
constexpr Nanoseconds kNoWait = -1;
// A program with more cells than this takes about 0.2 ms, several times as long as the start of a
// thread. (A cell is a position, a clock and a number of changes.) With windows, each cell takes
// kTimesWithWindows times as long.
constexpr double kLongProgram = 150'000;
constexpr double kTimesWithWindows = 4;

// Returns by how many positions a change may take effect late: the maximum number of positions that
// may begin before the latency has passed.
int Lateness(const RankClocks& rank, Nanoseconds latency) {
  std::vector<Nanoseconds> fastest;
  for (int p = 0; p < rank.positions(); ++p) {
    const auto row = rank.times.begin() + static_cast<std::ptrdiff_t>(rank.Cell(p, 0));
    fastest.push_back(*std::min_element(row, row + rank.clocks));
  }
  int most = 0;
  for (std::size_t first = 0; first < fastest.size(); ++first) {
    Nanoseconds passed = 0;
    std::size_t p = first;
    while (p < fastest.size() && passed < latency) passed += fastest[p++];
    most = std::max(most, static_cast<int>(p - first));
  }
  return most;
}

// [instruction] The delay from the end of the previous instruction on its pp_rank, or kNoWait if it
// does not wait for that instruction.
std::vector<Nanoseconds> DelaysOnRank(const schedule::InstructionGraph& graph) {
  std::vector<int> before(graph.instructions.size(), -1);
  for (const std::vector<int>& order : graph.pp_rank_orders) {
    for (std::size_t k = 1; k < order.size(); ++k) before[At(order[k])] = order[k - 1];
  }
  std::vector<Nanoseconds> delays(graph.instructions.size(), kNoWait);
  for (const auto& [from, to, delay] : graph.dependencies) {
    if (before[At(to)] == from) delays[At(to)] = std::max(delays[At(to)], delay);
  }
  return delays;
}

std::vector<PositionWindow> WindowsOf(const schedule::InstructionGraph& graph,
                                      const std::vector<int>& order,
                                      const plan::InstructionWindows& found) {
  const std::vector<Nanoseconds> delays = DelaysOnRank(graph);
  std::vector<PositionWindow> windows;
  PositionWindow next{.waits = false};
  for (const int i : order) {
    next.waits &= delays[At(i)] != kNoWait;
    next.delay += delays[At(i)];
    if (graph.options_of(i).HasClock()) {
      next.earliest_start = found.earliest_starts[At(i)];
      next.latest_end = found.latest_ends[At(i)];
      if (!next.waits) next.delay = 0;
      windows.push_back(next);
      next = {};
    } else {
      next.delay += graph.options_of(i).options.front().time;
    }
  }
  return windows;
}

// Returns more than the guess `excess`. So if the prices are similar to those of the previous
// search, the search finds a result within its first cap.
Femtojoules Widen(Femtojoules excess) { return excess + excess / 4; }

}  // namespace

SwitchBound::SwitchBound(const plan::Planner& planner, const std::vector<RankClocks>& ranks,
                         Nanoseconds deadline, Microwatts least_price, bool on_all_cores)
    : planner_(planner),
      ranks_(ranks),
      deadline_(deadline),
      least_price_(least_price),
      has_latency_(planner.model().switch_latency > 0),
      on_all_cores_(on_all_cores) {
  for (const RankClocks& rank : ranks) {
    rank_programs_.push_back({.program = SegmentProgram(rank.positions(), rank.clocks)});
    if (has_latency_) {
      rank_programs_.back().lateness = Lateness(rank, planner.model().switch_latency);
    }
  }
  if (has_latency_) return;
  const schedule::InstructionGraph& graph = planner.graph();
  const plan::InstructionWindows windows = plan::FindWindows(planner, deadline);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<Nanoseconds> times;
    for (int p = 0; p < ranks[r].positions(); ++p) {
      const auto row = ranks[r].times.begin() + static_cast<std::ptrdiff_t>(ranks[r].Cell(p, 0));
      times.insert(times.end(), row, row + ranks[r].clocks);
    }
    rank_programs_[r].window_program.emplace(WindowsOf(graph, graph.pp_rank_orders[r], windows),
                                             std::move(times), ranks[r].clocks,
                                             planner.model().switch_cost.stall);
  }
}

Femtojoules SwitchBound::ComputeChangeCosts(std::size_t pp_rank, const Prices& prices) {
  const RankClocks& rank = ranks_[pp_rank];
  const schedule::SwitchCost& cost = planner_.model().switch_cost;
  const auto energy = static_cast<Femtojoules>(std::floor(cost.energy_j * kFemtojoulesPerJoule));
  const auto positions = At(rank.positions());
  const std::vector<Microwatts>& of_stalls =
      prices.of_stalls.empty() ? prices.flow : prices.of_stalls;
  std::vector<Femtojoules> own(positions);
  for (std::size_t p = 0; p < positions; ++p) {
    own[p] = of_stalls[At(rank.instructions[p])] * cost.stall + energy;
  }
  RankProgram& program = rank_programs_[pp_rank];
  program.change_costs = own;
  program.cost_positions.resize(positions);
  Femtojoules sum = 0;
  for (std::size_t p = 0; p < positions; ++p) {
    std::size_t cheapest = p;
    for (std::size_t back = 1; back <= At(program.lateness); ++back) {
      const std::size_t earlier = (p + positions - back) % positions;
      if (own[earlier] < own[cheapest]) cheapest = earlier;
    }
    program.change_costs[p] = own[cheapest];
    program.cost_positions[p] = static_cast<int>(cheapest);
    sum += own[cheapest];
  }
  return sum;
}

Femtojoules SwitchBound::SetWeights(std::size_t pp_rank, const Prices& prices) {
  const RankClocks& rank = ranks_[pp_rank];
  RankProgram& own = rank_programs_[pp_rank];
  const std::size_t clocks = At(rank.clocks);
  own.weights.resize(At(rank.positions()) * clocks);
  Femtojoules subtracted = 0;
  Femtojoules largest_sum = ComputeChangeCosts(pp_rank, prices);
  for (int p = 0; p < rank.positions(); ++p) {
    const Microwatts flow = prices.flow[At(rank.instructions[At(p)])];
    Femtojoules* weights = own.weights.data() + At(p) * clocks;
    const std::size_t row = rank.Cell(p, 0);
    Femtojoules least = kNever;
    Femtojoules most = 0;
    for (std::size_t c = 0; c < clocks; ++c) {
      if (!IsUsable(rank, row + c)) continue;
      weights[c] = rank.LeastCost(row + c, flow);
      most = least == kNever ? weights[c] : std::max(most, weights[c]);
      least = std::min(least, weights[c]);
    }
    for (std::size_t c = 0; c < clocks; ++c) {
      weights[c] = IsUsable(rank, row + c) ? weights[c] - least : kNever;
    }
    subtracted += least;
    largest_sum += most - least;
  }
  own.unit_shift = 0;
  while ((largest_sum >> own.unit_shift) > static_cast<Femtojoules>(SegmentProgram::kLargestSum)) {
    ++own.unit_shift;
  }
  const auto in_units = [&](Femtojoules weight) {
    return weight == kNever
               ? SegmentProgram::kForbidden
               : static_cast<double>(static_cast<std::int64_t>(weight >> own.unit_shift));
  };
  for (int p = 0; p < rank.positions(); ++p) {
    own.program.change_cost(p) = in_units(own.change_costs[At(p)]);
    for (std::size_t c = 0; c < clocks; ++c) {
      own.program.weight(p, static_cast<int>(c)) = in_units(own.weights[At(p) * clocks + c]);
    }
  }
  return subtracted;
}

// Solves without windows if no sequence keeps them, or if the search takes too long.
SegmentProgram::Answer SwitchBound::SolveWithWindows(RankProgram& own, int changes,
                                                     std::int64_t& work) {
  WindowProgram::Answer found = own.window_program->Solve(
      own.program, changes,
      static_cast<double>(static_cast<std::int64_t>(own.excess >> own.unit_shift)));
  work = found.work;
  if (!found.complete || found.cost >= SegmentProgram::kForbidden) {
    return own.program.Solve(changes);
  }
  own.excess = Widen(static_cast<std::int64_t>(found.cost - found.open_cost)) << own.unit_shift;
  if (found.clocks.empty()) found.clocks = own.program.Solve(changes).clocks;
  return {found.cost, std::move(found.clocks)};
}

SwitchBound::Part SwitchBound::SolveRank(std::size_t pp_rank, const Prices& prices, int changes,
                                         Windows windows) {
  Part part;
  if (ranks_[pp_rank].positions() == 0) return part;
  part.bound = SetWeights(pp_rank, prices);
  RankProgram& own = rank_programs_[pp_rank];
  SegmentProgram::Answer best = windows == Windows::kKeep
                                    ? SolveWithWindows(own, changes, part.work)
                                    : own.program.Solve(changes);
  part.exists = best.exists();
  if (!part.exists) return part;
  part.bound += Femtojoules{static_cast<std::int64_t>(best.cost)} << own.unit_shift;
  part.clocks = std::move(best.clocks);
  for (std::size_t p = 0; p < part.clocks.size(); ++p) {
    const std::size_t before = (p + part.clocks.size() - 1) % part.clocks.size();
    if (part.clocks[p] != part.clocks[before]) part.stalls.push_back(own.cost_positions[p]);
  }
  return part;
}

bool SwitchBound::IsLong(int changes, Windows windows) const {
  double choices = 0;
  for (const RankClocks& rank : ranks_) {
    choices += static_cast<double>(rank.positions()) * rank.clocks;
  }
  const double each = windows == Windows::kKeep ? kTimesWithWindows : 1;
  return choices * (changes + 2) * each >= kLongProgram;
}

SwitchBound::Answer SwitchBound::Solve(const Prices& prices, int changes, Windows windows) {
  const frontier::Network& network = planner_.network();
  const schedule::InstructionGraph& graph = planner_.graph();
  Answer answer;
  answer.exists = true;
  answer.bound = (planner_.blocking_price() - prices.price) * deadline_;
  for (std::size_t arc = At(network.instructions); arc < network.arcs.size(); ++arc) {
    answer.bound += prices.flow[arc] * network.curve_of(network.arcs[arc]).fastest();
  }
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    const schedule::OptionSet& set = graph.options_of(i);
    if (set.HasClock()) continue;
    answer.bound +=
        profile::FlooredEffectiveEnergy(set.options.front(), planner_.model().blocking_power_w) +
        prices.flow[At(i)] * set.options.front().time;
  }
  std::vector<Part> parts(ranks_.size());
  const auto solve = [&](std::size_t r) { parts[r] = SolveRank(r, prices, changes, windows); };
  if (on_all_cores_ && IsLong(changes, windows)) {
    ForEachOnAllCores(parts.size(), solve);
  } else {
    for (std::size_t r = 0; r < parts.size(); ++r) solve(r);
  }
  for (Part& part : parts) {
    answer.exists &= part.exists;
    answer.bound += part.bound;
    answer.work += part.work;
    answer.clocks.push_back(std::move(part.clocks));
    answer.stalls.push_back(std::move(part.stalls));
  }
  return answer;
}

}  // namespace perseus::few_switches
