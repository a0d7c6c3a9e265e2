#include "perseus/planning/few_switches/switch_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "perseus/planning/plan/instruction_windows.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::few_switches {
namespace {

// More than any weight or cost.
constexpr Femtojoules kNever = std::numeric_limits<Femtojoules>::max();
constexpr Nanoseconds kNoWait = -1;

// The most changes of an iteration that a dwell time allows.
int MostChanges(const ChangeRules& rules, Nanoseconds deadline) {
  constexpr Nanoseconds kMany = std::numeric_limits<int>::max();
  if (rules.min_dwell == 0) return static_cast<int>(kMany);
  return static_cast<int>(std::min(kMany, deadline / rules.min_dwell));
}

// A change takes effect at most so many positions after its own: those that may begin before the
// latency has passed.
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

// [instruction] the delay from the end of the instruction before it on its pp_rank; kNoWait if it
// does not wait for that one.
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

// More than the guess, so that a search with similar prices finds something within its first cap.
Femtojoules Widen(Femtojoules excess) { return excess + excess / 4; }

}  // namespace

SwitchBound::SwitchBound(const plan::Planner& planner, const std::vector<RankClocks>& ranks,
                         Nanoseconds deadline, const ChangeRules& rules, const RuleChecker& checker)
    : planner_(planner),
      ranks_(ranks),
      deadline_(deadline),
      checker_(checker),
      has_latency_(planner.model().switch_latency > 0),
      most_changes_(MostChanges(rules, deadline)) {
  for (const RankClocks& rank : ranks) {
    programs_.emplace_back(rank.positions(), rank.clocks);
    lateness_.push_back(has_latency_ ? Lateness(rank, planner.model().switch_latency) : 0);
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
    window_programs_.emplace_back(WindowsOf(graph, graph.pp_rank_orders[r], windows),
                                  std::move(times), ranks[r].clocks,
                                  planner.model().switch_cost.stall);
  }
  excesses_.assign(ranks.size(), 0);
}

Femtojoules SwitchBound::ComputeChangeCosts(std::size_t pp_rank, const Prices& prices) {
  const RankClocks& rank = ranks_[pp_rank];
  const schedule::SwitchCost& cost = planner_.model().switch_cost;
  const auto energy = static_cast<Femtojoules>(std::floor(cost.energy_j * kFemtojoulesPerJoule));
  const auto positions = At(rank.positions());
  std::vector<Femtojoules> own(positions);
  for (std::size_t p = 0; p < positions; ++p) {
    const int instruction = rank.instructions[p];
    own[p] = checker_.IsForbidden(instruction)
                 ? kNever
                 : Femtojoules{prices.flow[At(instruction)]} * cost.stall + energy;
  }
  change_costs_ = own;
  Femtojoules sum = 0;
  for (std::size_t p = 0; p < positions; ++p) {
    for (std::size_t back = 1; back <= At(lateness_[pp_rank]); ++back) {
      change_costs_[p] = std::min(change_costs_[p], own[(p + positions - back) % positions]);
    }
    if (change_costs_[p] != kNever) sum += change_costs_[p];
  }
  return sum;
}

Femtojoules SwitchBound::SetWeights(std::size_t pp_rank, const Prices& prices) {
  const RankClocks& rank = ranks_[pp_rank];
  SegmentProgram& program = programs_[pp_rank];
  const std::size_t clocks = At(rank.clocks);
  weights_.resize(At(rank.positions()) * clocks);
  Femtojoules subtracted = 0;
  Femtojoules largest_sum = ComputeChangeCosts(pp_rank, prices);
  for (int p = 0; p < rank.positions(); ++p) {
    const Femtojoules flow = prices.flow[At(rank.instructions[At(p)])];
    Femtojoules* weights = weights_.data() + At(p) * clocks;
    const std::size_t row = rank.Cell(p, 0);
    Femtojoules least = kNever;
    Femtojoules most = 0;
    for (std::size_t c = 0; c < clocks; ++c) {
      if (!IsUsable(rank, row + c)) continue;
      weights[c] = rank.energies[row + c] + flow * rank.times[row + c];
      most = least == kNever ? weights[c] : std::max(most, weights[c]);
      least = std::min(least, weights[c]);
    }
    for (std::size_t c = 0; c < clocks; ++c) {
      weights[c] = IsUsable(rank, row + c) ? weights[c] - least : kNever;
    }
    subtracted += least;
    largest_sum += most - least;
  }
  unit_shift_ = 0;
  while ((largest_sum >> unit_shift_) > static_cast<Femtojoules>(SegmentProgram::kLargestSum)) {
    ++unit_shift_;
  }
  const auto in_units = [&](Femtojoules weight) {
    return weight == kNever ? SegmentProgram::kForbidden
                            : static_cast<double>(static_cast<std::int64_t>(weight >> unit_shift_));
  };
  for (int p = 0; p < rank.positions(); ++p) {
    program.change_cost(p) = in_units(change_costs_[At(p)]);
    for (std::size_t c = 0; c < clocks; ++c) {
      program.weight(p, static_cast<int>(c)) = in_units(weights_[At(p) * clocks + c]);
    }
  }
  return subtracted;
}

// Without windows if no sequence keeps them, or if the search takes too long.
SegmentProgram::Answer SwitchBound::SolveWithWindows(std::size_t pp_rank, int changes,
                                                     Answer& answer) {
  SegmentProgram& program = programs_[pp_rank];
  Femtojoules& excess = excesses_[pp_rank];
  WindowProgram::Answer found = window_programs_[pp_rank].Solve(
      program, changes, static_cast<double>(static_cast<std::int64_t>(excess >> unit_shift_)));
  answer.work += found.work;
  if (!found.complete || found.cost >= SegmentProgram::kForbidden) return program.Solve(changes);
  excess = Widen(static_cast<std::int64_t>(found.cost - found.open_cost)) << unit_shift_;
  if (found.clocks.empty()) found.clocks = program.Solve(changes).clocks;
  return {found.cost, std::move(found.clocks)};
}

void SwitchBound::AddRank(std::size_t pp_rank, int changes, Windows windows, Answer& answer) {
  SegmentProgram::Answer best = windows == Windows::kKeep
                                    ? SolveWithWindows(pp_rank, changes, answer)
                                    : programs_[pp_rank].Solve(changes);
  answer.exists &= best.exists();
  if (!best.exists()) return;
  answer.bound += Femtojoules{static_cast<std::int64_t>(best.cost)} << unit_shift_;
  answer.clocks.back() = std::move(best.clocks);
}

SwitchBound::Answer SwitchBound::Solve(const Prices& prices, int changes, Windows windows) {
  const frontier::Network& network = planner_.network();
  const schedule::InstructionGraph& graph = planner_.graph();
  Answer answer;
  answer.exists = true;
  answer.bound = -Femtojoules{prices.price - planner_.blocking_price()} * deadline_;
  for (std::size_t arc = At(network.instructions); arc < network.arcs.size(); ++arc) {
    answer.bound += Femtojoules{prices.flow[arc]} * network.curve_of(network.arcs[arc]).fastest();
  }
  for (std::int32_t i = 0; i < network.instructions; ++i) {
    const schedule::OptionSet& set = graph.options_of(i);
    if (set.HasClock()) continue;
    answer.bound +=
        profile::FlooredEffectiveEnergy(set.options.front(), planner_.model().blocking_power_w) +
        Femtojoules{prices.flow[At(i)]} * set.options.front().time;
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    answer.clocks.emplace_back();
    if (ranks_[r].positions() == 0) continue;
    answer.bound += SetWeights(r, prices);
    AddRank(r, std::min(changes, most_changes_), windows, answer);
  }
  return answer;
}

}  // namespace perseus::few_switches
