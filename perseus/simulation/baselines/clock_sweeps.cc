// Policies that set one clock for all ranks, or one clock for each stage.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "perseus/base/index.h"
#include "perseus/simulation/baselines/policy.h"

namespace perseus::baselines {
namespace {

// Returns the option with the nearest clock. If several options have this clock, returns the
// fastest of them. A fixed instruction has only one option.
int OptionAt(const schedule::OptionSet& set, int frequency_mhz) {
  const auto distance = [&](const profile::Option& option) {
    return std::pair(std::abs(option.frequency_mhz - frequency_mhz), option.time);
  };
  const auto nearest = std::ranges::min_element(set.options, {}, distance);
  return static_cast<int>(nearest - set.options.begin());
}

// The options with which every instruction runs at the clock of its rank.
std::vector<int> OptionsAt(const schedule::InstructionGraph& graph,
                           const std::vector<int>& clock_of_rank) {
  std::vector<int> options;
  for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
    const schedule::InstructionNode& instruction = graph.instructions[i];
    options.push_back(OptionAt(graph.option_sets[At(instruction.option_set)],
                               clock_of_rank[At(instruction.pp_rank)]));
  }
  return options;
}

class AllMax : public Policy {
 public:
  std::string_view name() const override { return "AllMax"; }
  Result<PolicyPoints> Points(const plan::Planner& planner,
                              std::span<const Nanoseconds> /*times*/) const override {
    PolicyPoints offered;
    offered.points.push_back(
        {"maximum frequency", schedule::BaselineOptions(planner.graph()), planner.baseline()});
    return offered;
  }
};

class ZeusGlobal : public Policy {
 public:
  std::string_view name() const override { return "ZeusGlobal"; }
  Result<PolicyPoints> Points(const plan::Planner& planner,
                              std::span<const Nanoseconds> /*times*/) const override {
    const schedule::InstructionGraph& graph = planner.graph();
    std::set<int> clocks;
    for (const schedule::OptionSet& set : graph.option_sets) {
      if (set.options.size() < 2) continue;
      for (const profile::Option& option : set.options) clocks.insert(option.frequency_mhz);
    }
    std::vector<OperatingPoint> points;
    for (const int clock : clocks) {
      const std::vector<int> clock_of_rank(graph.pp_rank_orders.size(), clock);
      points.push_back(
          MakePoint(planner, fmt::format("{} MHz", clock), OptionsAt(graph, clock_of_rank)));
    }
    // A graph of fixed instructions has no clocks.
    if (points.empty()) return MakeAllMax()->Points(planner, {});
    return PolicyPoints{Undominated(planner, std::move(points)), ""};
  }
};

// The slowest option set among the forwards of a rank. If the rank has no forward, the slowest of
// any kind. Null if the rank has only fixed instructions.
const schedule::OptionSet* PacingSet(const schedule::InstructionGraph& graph, std::size_t rank) {
  const schedule::OptionSet* forward = nullptr;
  const schedule::OptionSet* any = nullptr;
  for (const int instruction : graph.pp_rank_orders[rank]) {
    const schedule::OptionSet& set = graph.options_of(instruction);
    if (set.options.size() < 2) continue;
    const schedule::OptionSet*& kept = set.kind == InstructionKind::kForward ? forward : any;
    const auto time = [](const schedule::OptionSet& of) {
      return of.options[At(of.baseline)].time;
    };
    if (kept == nullptr || time(set) > time(*kept)) kept = &set;
  }
  return forward != nullptr ? forward : any;
}

class ZeusPerStage : public Policy {
 public:
  std::string_view name() const override { return "ZeusPerStage"; }
  Result<PolicyPoints> Points(const plan::Planner& planner,
                              std::span<const Nanoseconds> /*times*/) const override {
    const schedule::InstructionGraph& graph = planner.graph();
    std::vector<const schedule::OptionSet*> pacing;
    std::set<Nanoseconds> paces;  // Every possible time of a stage's forward.
    for (std::size_t rank = 0; rank < graph.pp_rank_orders.size(); ++rank) {
      pacing.push_back(PacingSet(graph, rank));
      if (pacing.back() == nullptr) continue;
      for (const profile::Option& option : pacing.back()->options) paces.insert(option.time);
    }
    std::vector<OperatingPoint> points;
    for (const Nanoseconds pace : paces) {
      std::vector<int> clock_of_rank;
      for (const schedule::OptionSet* set : pacing)
        clock_of_rank.push_back(set ? SlowestWithin(*set, pace) : 0);
      points.push_back(MakePoint(planner, fmt::format("forward in {} s", ToSeconds(pace)),
                                 OptionsAt(graph, clock_of_rank)));
    }
    if (points.empty()) return MakeAllMax()->Points(planner, {});
    return PolicyPoints{Undominated(planner, std::move(points)), ""};
  }

 private:
  // Returns the option with the lowest clock at which the forward takes at most `pace`, or else the
  // fastest option.
  static int SlowestWithin(const schedule::OptionSet& set, Nanoseconds pace) {
    const profile::Option* chosen = nullptr;
    const profile::Option* fastest = &set.options.front();
    for (const profile::Option& option : set.options) {
      if (option.time < fastest->time) fastest = &option;
      if (option.time > pace) continue;
      if (chosen == nullptr || option.frequency_mhz < chosen->frequency_mhz) chosen = &option;
    }
    return (chosen != nullptr ? chosen : fastest)->frequency_mhz;
  }
};

}  // namespace

std::unique_ptr<Policy> MakeAllMax() { return std::make_unique<AllMax>(); }
std::unique_ptr<Policy> MakeZeusGlobal() { return std::make_unique<ZeusGlobal>(); }
std::unique_ptr<Policy> MakeZeusPerStage() { return std::make_unique<ZeusPerStage>(); }

}  // namespace perseus::baselines
