#include "perseus/planning/few_switches/rank_clocks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "perseus/planning/profile/curve.h"

namespace perseus::few_switches {
namespace {

// The fastest option with the nearest frequency, as in plan/evaluation.h.
const profile::Option& Nearest(const schedule::OptionSet& set, int frequency_mhz) {
  const int nearest_mhz =
      std::ranges::min_element(set.options, {}, [&](const profile::Option& option) {
        return std::abs(option.frequency_mhz - frequency_mhz);
      })->frequency_mhz;
  return *std::ranges::min_element(set.options, {}, [&](const profile::Option& option) {
    return std::pair(option.frequency_mhz != nearest_mhz, option.time);
  });
}

// Returns the options at this frequency that take longer than `fastest` and need less energy.
std::vector<RankClocks::Slower> SlowerThan(const profile::Option& fastest,
                                           const schedule::OptionSet& set,
                                           double blocking_power_w) {
  std::vector<RankClocks::Slower> slower;
  const Femtojoules most = profile::FlooredEffectiveEnergy(fastest, blocking_power_w);
  for (const profile::Option& option : set.options) {
    const Femtojoules energy = profile::FlooredEffectiveEnergy(option, blocking_power_w);
    if (option.frequency_mhz == fastest.frequency_mhz && energy < most) {
      slower.push_back({option.time, energy});
    }
  }
  return slower;
}

RankClocks CollectClocksOfRank(const schedule::InstructionGraph& graph,
                               const std::vector<int>& order, double blocking_power_w) {
  RankClocks rank;
  std::map<int, int> row_of_set;
  std::vector<int> set_of_row;
  std::map<int, int, std::greater<>> numbers;  // By frequency, the highest first.
  for (const int instruction : order) {
    const schedule::OptionSet& set = graph.options_of(instruction);
    if (!set.HasClock()) continue;
    const int set_index = graph.instructions[At(instruction)].option_set;
    const auto [row, is_new] =
        row_of_set.try_emplace(set_index, static_cast<int>(set_of_row.size()));
    if (is_new) {
      set_of_row.push_back(set_index);
      for (const profile::Option& option : set.options)
        numbers.try_emplace(option.frequency_mhz, 0);
    }
    rank.instructions.push_back(instruction);
    rank.rows.push_back(row->second);
  }
  for (auto& [mhz, number] : numbers) number = rank.clocks++;

  for (const int set_index : set_of_row) {
    const schedule::OptionSet& set = graph.option_sets[At(set_index)];
    std::vector<int> measured(At(rank.clocks), RankClocks::kUnmeasured);
    for (std::size_t i = 0; i < set.options.size(); ++i) {
      int& option = measured[At(numbers.at(set.options[i].frequency_mhz))];
      if (option == RankClocks::kUnmeasured || set.options[i].time < set.options[At(option)].time) {
        option = static_cast<int>(i);
      }
    }
    for (const auto& [mhz, clock] : numbers) {
      const int option = measured[At(clock)];
      rank.options.push_back(option);
      const profile::Option& ran =
          option != RankClocks::kUnmeasured ? set.options[At(option)] : Nearest(set, mhz);
      rank.times.push_back(ran.time);
      rank.energies_j.push_back(profile::EffectiveEnergy(ran, blocking_power_w));
      rank.energies.push_back(profile::FlooredEffectiveEnergy(ran, blocking_power_w));
      if (!graph.other_knob_names.empty()) {
        rank.slower.push_back(SlowerThan(ran, set, blocking_power_w));
      }
    }
  }
  return rank;
}

// Whether `other` can replace `clock` everywhere on the pp_rank. If two clocks can replace each
// other, only the later one stays, which has the lower frequency.
bool CanReplace(const RankClocks& rank, int other, int clock) {
  bool is_better = other > clock;
  for (std::size_t first = 0; first < rank.options.size(); first += At(rank.clocks)) {
    const std::size_t mine = first + At(clock);
    const std::size_t its = first + At(other);
    if (rank.options[its] == RankClocks::kUnmeasured &&
        rank.options[mine] != RankClocks::kUnmeasured) {
      return false;
    }
    if (!rank.slower.empty() && !rank.slower[mine].empty()) return false;
    if (rank.times[its] > rank.times[mine] || rank.energies_j[its] > rank.energies_j[mine]) {
      return false;
    }
    is_better |= rank.times[its] < rank.times[mine] || rank.energies_j[its] < rank.energies_j[mine];
  }
  return is_better;
}

std::vector<int> CountRows(const RankClocks& rank) {
  std::vector<int> before(At(rank.row_count), 0);
  for (const int row : rank.rows) {
    before.insert(before.end(), before.end() - rank.row_count, before.end());
    ++before[before.size() - At(rank.row_count) + At(row)];
  }
  return before;
}

RankClocks KeepUseful(const RankClocks& all) {
  std::vector<int> kept;
  for (int clock = 0; clock < all.clocks; ++clock) {
    bool useful = true;
    for (int other = 0; other < all.clocks && useful; ++other) {
      useful = other == clock || !CanReplace(all, other, clock);
    }
    if (useful) kept.push_back(clock);
  }
  RankClocks rank;
  rank.instructions = all.instructions;
  rank.rows = all.rows;
  rank.clocks = static_cast<int>(kept.size());
  rank.row_count = all.clocks > 0 ? static_cast<int>(all.options.size()) / all.clocks : 0;
  rank.rows_before = CountRows(rank);
  for (std::size_t first = 0; first < all.options.size(); first += At(all.clocks)) {
    for (const int clock : kept) {
      rank.options.push_back(all.options[first + At(clock)]);
      rank.times.push_back(all.times[first + At(clock)]);
      rank.energies_j.push_back(all.energies_j[first + At(clock)]);
      rank.energies.push_back(all.energies[first + At(clock)]);
      if (!all.slower.empty()) rank.slower.push_back(all.slower[first + At(clock)]);
    }
  }
  return rank;
}

}  // namespace

std::vector<RankClocks> CollectClocks(const schedule::InstructionGraph& graph,
                                      double blocking_power_w) {
  std::vector<RankClocks> ranks;
  ranks.reserve(graph.pp_rank_orders.size());
  for (const std::vector<int>& order : graph.pp_rank_orders) {
    ranks.push_back(KeepUseful(CollectClocksOfRank(graph, order, blocking_power_w)));
  }
  return ranks;
}

}  // namespace perseus::few_switches
