#include "perseus/planning/few_switches/switch_bound.h"

#include <algorithm>

#include "perseus/planning/profile/curve.h"

namespace perseus::few_switches {

SwitchBound::SwitchBound(const plan::Planner& planner, const std::vector<RankClocks>& ranks,
                         Nanoseconds deadline)
    : planner_(planner), ranks_(ranks), deadline_(deadline) {
  for (const RankClocks& rank : ranks) programs_.emplace_back(rank.positions(), rank.clocks);
}

Femtojoules SwitchBound::SetWeights(const RankClocks& rank, const Prices& prices,
                                    SegmentProgram& program) {
  const std::size_t clocks = At(rank.clocks);
  weights_.resize(At(rank.positions()) * clocks);
  constexpr Femtojoules kNotMeasured = -1;
  Femtojoules subtracted = 0;
  Femtojoules largest_sum = 0;
  for (int p = 0; p < rank.positions(); ++p) {
    const Femtojoules flow = prices.flow[At(rank.instructions[At(p)])];
    Femtojoules* weights = weights_.data() + At(p) * clocks;
    const std::size_t row = rank.Cell(p, 0);
    bool is_first = true;
    Femtojoules least = 0;
    Femtojoules most = 0;
    for (std::size_t c = 0; c < clocks; ++c) {
      if (rank.options[row + c] == RankClocks::kUnmeasured) continue;
      weights[c] = rank.energies[row + c] + flow * rank.times[row + c];
      least = is_first ? weights[c] : std::min(least, weights[c]);
      most = is_first ? weights[c] : std::max(most, weights[c]);
      is_first = false;
    }
    for (std::size_t c = 0; c < clocks; ++c) {
      weights[c] =
          rank.options[row + c] == RankClocks::kUnmeasured ? kNotMeasured : weights[c] - least;
    }
    subtracted += least;
    largest_sum += most - least;
  }
  unit_shift_ = 0;
  while ((largest_sum >> unit_shift_) > static_cast<Femtojoules>(SegmentProgram::kLargestSum)) {
    ++unit_shift_;
  }
  for (int p = 0; p < rank.positions(); ++p) {
    for (std::size_t c = 0; c < clocks; ++c) {
      const Femtojoules weight = weights_[At(p) * clocks + c];
      program.weight(p, static_cast<int>(c)) =
          weight == kNotMeasured
              ? SegmentProgram::kForbidden
              : static_cast<double>(static_cast<std::int64_t>(weight >> unit_shift_));
    }
  }
  return subtracted;
}

SwitchBound::Answer SwitchBound::Solve(const Prices& prices, int changes) {
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
    if (set.options.size() > 1) continue;
    answer.bound +=
        profile::FlooredEffectiveEnergy(set.options.front(), planner_.model().blocking_power_w) +
        Femtojoules{prices.flow[At(i)]} * set.options.front().time;
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    answer.clocks.emplace_back();
    if (ranks_[r].positions() == 0) continue;
    answer.bound += SetWeights(ranks_[r], prices, programs_[r]);
    SegmentProgram::Answer best = programs_[r].Solve(changes);
    answer.exists &= best.exists();
    if (!best.exists()) continue;
    answer.bound += Femtojoules{static_cast<std::int64_t>(best.cost)} << unit_shift_;
    answer.clocks.back() = std::move(best.clocks);
  }
  return answer;
}

}  // namespace perseus::few_switches
