#include "perseus/planning/noise/raised_segments.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/planning/profile/curve.h"

namespace perseus::noise {
namespace {

using schedule::InstructionGraph;
using schedule::OptionSet;

double ClockOf(const InstructionGraph& graph, const std::vector<int>& options, int instruction) {
  return graph.options_of(instruction).options[At(options[At(instruction)])].frequency_mhz;
}

// Instructions of a pp_rank that follow each other at one clock. The first and the last one are
// neighbors, because the iteration repeats.
using Segment = std::vector<int>;
std::vector<Segment> SegmentsOf(const InstructionGraph& graph, const std::vector<int>& options) {
  std::vector<Segment> segments;
  for (const std::vector<int>& order : graph.pp_rank_orders) {
    const std::size_t first = segments.size();
    for (const int instruction : order) {
      if (!graph.options_of(instruction).HasClock()) continue;
      const bool goes_on =
          segments.size() > first &&
          ClockOf(graph, options, segments.back().back()) == ClockOf(graph, options, instruction);
      if (!goes_on) segments.emplace_back();
      segments.back().push_back(instruction);
    }
    if (segments.size() < first + 2) continue;
    Segment& begin = segments[first];
    const Segment& end = segments.back();
    if (ClockOf(graph, options, begin.front()) != ClockOf(graph, options, end.front())) continue;
    begin.insert(begin.end(), end.begin(), end.end());
    segments.pop_back();
  }
  return segments;
}

// The option at that clock with the least energy. Nothing if none is measured.
std::optional<int> OptionAt(const OptionSet& set, double clock_mhz, double blocking_power_w) {
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

struct Raise {
  std::vector<std::pair<int, int>> options;  // Of instructions.
  double price = 0;                          // Joules per second of mean time.
  double time_s = 0;                         // Of mean time, to first order.
};

class Raiser {
 public:
  Raiser(const plan::Planner& planner, const NoisyMean& mean, const std::vector<int>& options)
      : planner_(planner), mean_(mean), options_(options) {}

  // To the next clock that makes the mean iteration shorter. Nothing if there is none.
  std::optional<Raise> Of(const Segment& segment) const {
    const InstructionGraph& graph = planner_.graph();
    const double clock_mhz = ClockOf(graph, options_, segment.front());
    std::vector<double> faster;
    for (const profile::Option& option : graph.options_of(segment.front()).options) {
      if (option.frequency_mhz > clock_mhz) faster.push_back(option.frequency_mhz);
    }
    std::sort(faster.begin(), faster.end());
    for (const double next_mhz : faster) {
      if (auto raise = To(next_mhz, segment)) return raise;
    }
    return std::nullopt;
  }

 private:
  std::optional<Raise> To(double clock_mhz, const Segment& segment) const {
    const double blocking_w = planner_.model().blocking_power_w;
    Raise raise;
    double cost_j = 0;
    for (const int instruction : segment) {
      const OptionSet& set = planner_.graph().options_of(instruction);
      const std::optional<int> option = OptionAt(set, clock_mhz, blocking_w);
      if (!option) return std::nullopt;
      const profile::Option& before = set.options[At(options_[At(instruction)])];
      const profile::Option& after = set.options[At(*option)];
      raise.time_s += mean_.criticality[At(instruction)] * ToSeconds(before.time - after.time);
      cost_j += profile::EffectiveEnergy(after, blocking_w) -
                profile::EffectiveEnergy(before, blocking_w);
      raise.options.emplace_back(instruction, *option);
    }
    if (raise.time_s <= 0) return std::nullopt;
    raise.price = cost_j / raise.time_s;
    return raise;
  }

  const plan::Planner& planner_;
  const NoisyMean& mean_;
  const std::vector<int>& options_;
};

}  // namespace

bool RaiseSegments(const plan::Planner& planner, const NoisyExecution& execution, double target_s,
                   std::vector<int>& options) {
  NoisyMean mean = execution.Run(options);
  while (mean.time_s > target_s) {
    std::vector<Raise> raises;
    const Raiser raiser(planner, mean, options);
    for (const Segment& segment : SegmentsOf(planner.graph(), options)) {
      if (auto raise = raiser.Of(segment)) raises.push_back(*std::move(raise));
    }
    if (raises.empty()) return false;
    std::stable_sort(raises.begin(), raises.end(),
                     [](const Raise& a, const Raise& b) { return a.price < b.price; });
    double gap_s = mean.time_s - target_s;
    for (const Raise& raise : raises) {
      for (const auto& [instruction, option] : raise.options) options[At(instruction)] = option;
      gap_s -= raise.time_s;
      if (gap_s <= 0) break;
    }
    mean = execution.Run(options);
  }
  return true;
}

}  // namespace perseus::noise
