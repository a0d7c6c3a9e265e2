#include "perseus/planning/noise/margin_moves.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "perseus/base/index.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::noise {
namespace {

using schedule::InstructionGraph;
using schedule::OptionSet;

// The least criticality to assume: an instruction that was never critical may become critical if it
// becomes slower.
constexpr double kLeastCriticality = 0.01;

int ClockOf(const InstructionGraph& graph, std::span<const int> options, int instruction) {
  return graph.options_of(instruction).options[At(options[At(instruction)])].frequency_mhz;
}

// Returns the option with the least effective energy at this clock. nullopt if none was measured.
std::optional<int> OptionAt(const OptionSet& set, int clock_mhz, double blocking_power_w) {
  std::optional<int> best;
  for (std::size_t k = 0; k < set.options.size(); ++k) {
    if (set.options[k].frequency_mhz != clock_mhz) continue;
    const auto energy_of = [&](std::size_t option) {
      return profile::EffectiveEnergy(set.options[option], blocking_power_w);
    };
    if (!best || energy_of(k) < energy_of(At(*best))) best = static_cast<int>(k);
  }
  return best;
}

// Consecutive instructions of a pp_rank at one clock.
using Segment = std::vector<int>;

// Returns the segments of a pp_rank in order. An iteration repeats, so the first segment follows
// the last one. If both have the same clock, they are one segment.
std::vector<Segment> SegmentsOf(const InstructionGraph& graph, std::span<const int> options,
                                const std::vector<int>& order) {
  std::vector<Segment> segments;
  for (const int instruction : order) {
    if (!graph.options_of(instruction).HasClock()) continue;
    const bool goes_on = !segments.empty() && ClockOf(graph, options, segments.back().back()) ==
                                                  ClockOf(graph, options, instruction);
    if (!goes_on) segments.emplace_back();
    segments.back().push_back(instruction);
  }
  if (segments.size() < 2) return segments;
  Segment& last = segments.back();
  const Segment& first = segments.front();
  if (ClockOf(graph, options, first.front()) != ClockOf(graph, options, last.back()))
    return segments;
  last.insert(last.end(), first.begin(), first.end());
  segments.erase(segments.begin());
  return segments;
}

}  // namespace

InstructionMoves::InstructionMoves(const plan::Planner& planner) : planner_(planner) {
  const double blocking_w = planner.model().blocking_power_w;
  for (const OptionSet& set : planner.graph().option_sets) {
    Ladder& ladder = ladders_.emplace_back();
    ladder.options = profile::ParetoFront(set.options, blocking_w);
    for (const int option : ladder.options) {
      ladder.times_s.push_back(ToSeconds(set.options[At(option)].time));
      ladder.costs_j.push_back(profile::EffectiveEnergy(set.options[At(option)], blocking_w));
    }
    for (const profile::Option& option : set.options) {
      std::size_t place = 0;
      while (place + 1 < ladder.options.size() &&
             set.options[At(ladder.options[place + 1])].time <= option.time) {
        ++place;
      }
      ladder.places.push_back(place);
    }
  }
}

const InstructionMoves::Ladder& InstructionMoves::LadderOf(std::size_t instruction) const {
  return ladders_[At(planner_.graph().instructions[instruction].option_set)];
}

Move InstructionMoves::Step(std::span<const int> options, std::size_t instruction, bool is_faster,
                            double criticality) const {
  const Ladder& ladder = LadderOf(instruction);
  const std::size_t place = ladder.places[At(options[instruction])];
  const std::size_t next = is_faster ? place - 1 : place + 1;
  const double difference_s = ladder.times_s[next] - ladder.times_s[place];
  return {{{static_cast<int>(instruction), ladder.options[next]}},
          ladder.costs_j[next] - ladder.costs_j[place],
          criticality * (is_faster ? -difference_s : difference_s)};
}

std::vector<Move> InstructionMoves::Faster(std::span<const int> options,
                                           const NoisyMean& mean) const {
  std::vector<Move> moves;
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (LadderOf(i).places[At(options[i])] == 0 || mean.criticality[i] <= 0) continue;
    Move move = Step(options, i, true, mean.criticality[i]);
    if (move.time_s > 0) moves.push_back(std::move(move));
  }
  return moves;
}

std::vector<Move> InstructionMoves::Slower(std::span<const int> options,
                                           const NoisyMean& mean) const {
  std::vector<Move> moves;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const Ladder& ladder = LadderOf(i);
    if (ladder.places[At(options[i])] + 1 == ladder.options.size()) continue;
    moves.push_back(Step(options, i, false, std::max(mean.criticality[i], kLeastCriticality)));
  }
  return moves;
}

std::vector<Move> InstructionMoves::BeforeCritical(std::span<const int> options,
                                                   const NoisyMean& mean) const {
  std::vector<Move> moves;
  for (const std::vector<int>& order : planner_.graph().pp_rank_orders) {
    std::optional<std::size_t> before;
    for (const int instruction : order) {
      const std::size_t i = At(instruction);
      if (LadderOf(i).options.size() == 1) continue;
      if (before && mean.criticality[i] > 0 && LadderOf(*before).places[At(options[*before])] > 0) {
        moves.push_back(Step(options, *before, true, 0));
      }
      before = i;
    }
  }
  return moves;
}

// The moves of all segments in one direction.
class SegmentMoves::Collector {
 public:
  Collector(const plan::Planner& planner, std::span<const int> options, const NoisyMean& mean,
            bool to_faster)
      : planner_(planner), options_(options), mean_(mean), to_faster_(to_faster) {}

  std::vector<Move> Moves() {
    for (const std::vector<int>& order : planner_.graph().pp_rank_orders) {
      const std::vector<Segment> segments = SegmentsOf(planner_.graph(), options_, order);
      for (std::size_t s = 0; s < segments.size(); ++s) {
        const std::size_t before = (s + segments.size() - 1) % segments.size();
        Add(segments[s], segments[before].back(), segments[(s + 1) % segments.size()].front());
      }
    }
    return std::move(moves_);
  }

 private:
  // Adds the move to the next useful clock. `previous` and `next` are the instructions before and
  // after the segment.
  void Add(const Segment& segment, int previous, int next) {
    const int clock_mhz = ClockOf(planner_.graph(), options_, segment.front());
    std::vector<int> others;
    for (const profile::Option& option : planner_.graph().options_of(segment.front()).options) {
      if (to_faster_ ? option.frequency_mhz > clock_mhz : option.frequency_mhz < clock_mhz) {
        others.push_back(option.frequency_mhz);
      }
    }
    std::sort(others.begin(), others.end());
    if (!to_faster_) std::reverse(others.begin(), others.end());
    for (const int other_mhz : others) {
      auto move = To(other_mhz, segment);
      if (!move) continue;
      move->time_s += OfNext(next, clock_mhz, other_mhz);
      if (to_faster_) move->time_s += OfChanges(previous, segment.front(), next, other_mhz);
      if (move->time_s > 0) return moves_.push_back(*std::move(move));
    }
  }

  // Returns nullopt if an instruction was not measured at the clock, or if a slower clock saves
  // nothing.
  std::optional<Move> To(int clock_mhz, const Segment& segment) const {
    const double blocking_w = planner_.model().blocking_power_w;
    Move move;
    for (const int instruction : segment) {
      const OptionSet& set = planner_.graph().options_of(instruction);
      const std::optional<int> option = OptionAt(set, clock_mhz, blocking_w);
      if (!option) return std::nullopt;
      const profile::Option& before = set.options[At(options_[At(instruction)])];
      const profile::Option& after = set.options[At(*option)];
      const double longer_s = ToSeconds(after.time - before.time);
      const double criticality = mean_.criticality[At(instruction)];
      move.time_s += to_faster_ ? -criticality * longer_s
                                : std::max(criticality, kLeastCriticality) * longer_s;
      move.cost_j += profile::EffectiveEnergy(after, blocking_w) -
                     profile::EffectiveEnergy(before, blocking_w);
      move.options.emplace_back(instruction, *option);
    }
    if (!to_faster_ && move.cost_j >= 0) return std::nullopt;
    return move;
  }

  // With a switch latency, the next instruction begins at the clock of the segment. So the next
  // instruction also gets faster or slower, as far as the latency reaches.
  double OfNext(int next, int before_mhz, int after_mhz) const {
    const Nanoseconds latency = planner_.model().switch_latency;
    if (latency == 0) return 0;
    const OptionSet& set = planner_.graph().options_of(next);
    const auto before = OptionAt(set, before_mhz, planner_.model().blocking_power_w);
    const auto after = OptionAt(set, after_mhz, planner_.model().blocking_power_w);
    if (!before || !after) return 0;
    const double before_s = ToSeconds(set.options[At(*before)].time);
    const double after_s = ToSeconds(set.options[At(*after)].time);
    const double part = std::min(1.0, ToSeconds(latency) / before_s);
    return part * mean_.criticality[At(next)] * std::abs(after_s - before_s);
  }

  // The time of the stalls that disappear if the segment gets the clock of a neighbor. If all
  // critical instructions already run at the fastest clock, only such a move makes an iteration
  // shorter.
  double OfChanges(int previous, int first, int next, int after_mhz) const {
    double criticality = 0;
    const auto add = [&](int neighbor, int stalled) {
      const bool has_same_clock = ClockOf(planner_.graph(), options_, neighbor) == after_mhz;
      if (has_same_clock) criticality += mean_.criticality[At(stalled)];
    };
    add(previous, first);
    add(next, next);
    return criticality * ToSeconds(planner_.model().switch_cost.stall);
  }

  const plan::Planner& planner_;
  std::span<const int> options_;
  const NoisyMean& mean_;
  bool to_faster_;
  std::vector<Move> moves_;
};

std::vector<Move> SegmentMoves::Faster(std::span<const int> options, const NoisyMean& mean) const {
  return Collector(planner_, options, mean, true).Moves();
}

std::vector<Move> SegmentMoves::Slower(std::span<const int> options, const NoisyMean& mean) const {
  return Collector(planner_, options, mean, false).Moves();
}

}  // namespace perseus::noise
