#include "perseus/planning/hardware_facts/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "perseus/base/median.h"
#include "perseus/planning/hardware_facts/combine.h"

namespace perseus::hardware_facts {
namespace {

// What a value is, for sentences.
struct Quantity {
  enum class Unit { kMilliseconds, kWatts, kPerSecond, kFraction };
  std::string name;  // "the blocking power at 1410 MHz"
  Unit unit;

  std::string Text(double value) const {
    switch (unit) {
      case Unit::kMilliseconds:
        return fmt::format("{:.4g} ms", value);
      case Unit::kWatts:
        return fmt::format("{:.4g} W", value);
      case Unit::kPerSecond:
        return fmt::format("{:.4g} a second", value);
      case Unit::kFraction:
        return fmt::format("{:.3g} %", value * 100);
    }
    return {};
  }
};

struct NodeValue {
  std::string_view host;
  Estimate estimate;
};

class Merger {
 public:
  explicit Merger(const std::vector<HardwareFacts>& nodes) : nodes_(nodes) {}

  MergedFacts Run() {
    MergeTexts();
    MergeSwitches();
    MergeRate();
    MergePower();
    MergeEnergyCounter();
    MergeInterference();
    MergeRangeLock();
    return std::move(merged_);
  }

 private:
  template <typename... Args>
  void Report(fmt::format_string<Args...> format, Args&&... args) {
    merged_.differences.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // The value of most nodes; of equally frequent ones, the first one. Reports the other nodes.
  template <typename T>
  T MostCommon(std::string_view name, T HardwareFacts::*field) {
    std::map<T, std::size_t> counts;
    for (const HardwareFacts& node : nodes_) ++counts[node.*field];
    const auto most = std::max_element(
        counts.begin(), counts.end(),
        [](const auto& left, const auto& right) { return left.second < right.second; });
    for (const HardwareFacts& node : nodes_) {
      if (node.*field == most->first) continue;
      Report("{} differs: its {} is {}, and {} of {} nodes have {}", node.host, name, node.*field,
             most->second, nodes_.size(), most->first);
    }
    return most->first;
  }

  void MergeTexts() {
    HardwareFacts& facts = merged_.facts;
    facts.host = nodes_.size() == 1
                     ? nodes_.front().host
                     : fmt::format("{} and {} more", nodes_.front().host, nodes_.size() - 1);
    facts.gpu_name = nodes_.front().gpu_name;
    facts.driver_version = MostCommon("driver version", &HardwareFacts::driver_version);
    facts.perseus_version = MostCommon("version of Perseus", &HardwareFacts::perseus_version);
    facts.gpu_count = MostCommon("number of GPUs", &HardwareFacts::gpu_count);
    facts.nodes = static_cast<int>(nodes_.size());
    for (const HardwareFacts& node : nodes_) {
      // Times of this format sort as texts.
      facts.measured_at = std::max(facts.measured_at, node.measured_at);
      for (const std::string& limit : node.limits) {
        if (std::find(facts.limits.begin(), facts.limits.end(), limit) == facts.limits.end()) {
          facts.limits.push_back(limit);
        }
      }
    }
  }

  // Returns the values of the nodes that do not differ, and reports the others.
  std::vector<Estimate> Usual(const Quantity& quantity, const std::vector<NodeValue>& values) {
    std::vector<Estimate> estimates;
    estimates.reserve(values.size());
    for (const NodeValue& value : values) estimates.push_back(value.estimate);
    const bool is_fraction = quantity.unit == Quantity::Unit::kFraction;
    const Comparison comparison = Compare(estimates, is_fraction ? kLeastFractionBound : 0);
    if (values.size() == 2 && comparison.has_differences()) {
      Report(
          "{} and {} differ: {} is {} on the one and {} on the other (merge a third node to see "
          "which one is unusual)",
          values[0].host, values[1].host, quantity.name, quantity.Text(estimates[0].value),
          quantity.Text(estimates[1].value));
    }
    for (std::size_t i = 0; i < values.size() && values.size() > 2; ++i) {
      if (!comparison.differs[i]) continue;
      Report("{} differs: {} is {}, and the median of {} nodes is {}", values[i].host,
             quantity.name, quantity.Text(estimates[i].value), values.size(),
             quantity.Text(comparison.median));
    }
    return UsualOf(estimates, comparison);
  }

  // Groups the elements of a list of all nodes by their key, and calls `merge` with each group.
  template <typename T, typename KeyOf, typename MergeGroup>
  void MergeLists(std::vector<T> HardwareFacts::*list, KeyOf key_of, MergeGroup merge) {
    struct Element {
      std::string_view host;
      T facts;
    };
    std::vector<std::pair<decltype(key_of(T())), std::vector<Element>>> groups;
    for (const HardwareFacts& node : nodes_) {
      for (const T& facts : node.*list) {
        const auto key = key_of(facts);
        auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const auto& other) { return other.first == key; });
        if (group == groups.end()) group = groups.insert(group, {key, {}});
        group->second.push_back({node.host, facts});
      }
    }
    for (const auto& [key, elements] : groups) (merged_.facts.*list).push_back(merge(elements));
  }

  template <typename Elements, typename Field>
  Estimate MergeField(const Quantity& quantity, const Elements& elements, Field field) {
    std::vector<NodeValue> values;
    values.reserve(elements.size());
    for (const auto& element : elements) values.push_back({element.host, element.facts.*field});
    return Combine(Usual(quantity, values));
  }

  void MergeSwitches() {
    MergeLists(
        &HardwareFacts::switches,
        [](const SwitchFacts& change) {
          return std::tuple(change.direction, change.is_far, change.all_gpus);
        },
        [&](const auto& elements) {
          SwitchFacts merged = elements.front().facts;
          const std::string which =
              fmt::format("a {} change {} of {}", merged.is_far ? "far" : "near",
                          merged.direction == Direction::kUp ? "up" : "down",
                          merged.all_gpus ? "all GPUs" : "one GPU");
          using enum Quantity::Unit;
          merged.latency_ms = MergeField({"the latency of " + which, kMilliseconds}, elements,
                                         &SwitchFacts::latency_ms);
          merged.call_ms = MergeField({"the duration of the call for " + which, kMilliseconds},
                                      elements, &SwitchFacts::call_ms);
          std::vector<double> tails;
          tails.reserve(elements.size());
          for (const auto& element : elements) tails.push_back(element.facts.p95_latency_ms);
          merged.p95_latency_ms = Median(std::move(tails));
          return merged;
        });
  }

  // The least rate of all nodes, so that it harms none of them. Unusual nodes are reported, too.
  void MergeRate() {
    std::vector<NodeValue> values;
    std::vector<Estimate> rates;
    for (const HardwareFacts& node : nodes_) {
      if (!node.max_changes_per_s) continue;
      values.push_back({node.host, *node.max_changes_per_s});
      rates.push_back(*node.max_changes_per_s);
    }
    if (values.empty()) return;
    static_cast<void>(
        Usual({"the greatest rate of clock changes", Quantity::Unit::kPerSecond}, values));
    merged_.facts.max_changes_per_s = LeastOf(rates);
  }

  template <typename Elements>
  std::optional<Estimate> MergeWatts(std::string_view name, const Elements& elements,
                                     std::optional<Estimate> PowerFacts::*field) {
    std::vector<NodeValue> values;
    for (const auto& element : elements) {
      if (element.facts.*field) values.push_back({element.host, *(element.facts.*field)});
    }
    if (values.empty()) return std::nullopt;
    return Combine(Usual({fmt::format("{} at {} MHz", name, elements.front().facts.sm_clock_mhz),
                          Quantity::Unit::kWatts},
                         values));
  }

  void MergePower() {
    MergeLists(
        &HardwareFacts::power, [](const PowerFacts& power) { return power.sm_clock_mhz; },
        [&](const auto& elements) {
          PowerFacts merged = elements.front().facts;
          merged.idle_w = MergeWatts("the idle power", elements, &PowerFacts::idle_w);
          merged.blocked_w = MergeWatts("the blocking power", elements, &PowerFacts::blocked_w);
          merged.busy_w = MergeWatts("the power of a busy GPU", elements, &PowerFacts::busy_w);
          return merged;
        });
  }

  void MergeEnergyCounter() {
    struct Element {
      std::string_view host;
      EnergyCounterFacts facts;
    };
    std::vector<Element> elements;
    std::vector<double> resolutions;
    for (const HardwareFacts& node : nodes_) {
      if (!node.energy_counter) continue;
      elements.push_back({node.host, *node.energy_counter});
      resolutions.push_back(node.energy_counter->resolution_j);
    }
    if (elements.empty()) return;
    EnergyCounterFacts merged;
    merged.period_ms =
        MergeField({"the period of the energy counter", Quantity::Unit::kMilliseconds}, elements,
                   &EnergyCounterFacts::period_ms);
    merged.resolution_j = Median(std::move(resolutions));
    merged.bias = MergeField({"the bias of the energy counter", Quantity::Unit::kFraction},
                             elements, &EnergyCounterFacts::bias);
    merged_.facts.energy_counter = merged;
  }

  void MergeInterference() {
    MergeLists(
        &HardwareFacts::interference,
        [](const InterferenceFacts& facts) {
          return std::tuple(facts.kind, facts.changes_per_s, facts.reads_per_s);
        },
        [&](const auto& elements) {
          InterferenceFacts merged = elements.front().facts;
          merged.slowdown =
              MergeField({fmt::format("the slowdown of \"{}\" at {} changes and {} reads a second",
                                      merged.kind, merged.changes_per_s, merged.reads_per_s),
                          Quantity::Unit::kFraction},
                         elements, &InterferenceFacts::slowdown);
          return merged;
        });
  }

  void MergeRangeLock() {
    std::optional<bool> saves;
    for (const HardwareFacts& node : nodes_) {
      if (node.range_lock_saves) saves = saves.value_or(true) && *node.range_lock_saves;
    }
    merged_.facts.range_lock_saves = saves;
    if (saves != false) return;
    for (const HardwareFacts& node : nodes_) {
      if (node.range_lock_saves != true) continue;
      Report("{} differs: a range of locked clocks saves energy there, and not on every node",
             node.host);
    }
  }

  const std::vector<HardwareFacts>& nodes_;
  MergedFacts merged_;
};

}  // namespace

Result<MergedFacts> Merge(const std::vector<HardwareFacts>& nodes) {
  if (nodes.empty()) return Fail("no hardware facts to merge (name at least one file)");
  for (const HardwareFacts& node : nodes) {
    if (node.gpu_name != nodes.front().gpu_name) {
      return Fail("{} has the GPU {}, and {} has the GPU {} (merge only nodes of the same kind)",
                  nodes.front().host, nodes.front().gpu_name, node.host, node.gpu_name);
    }
    for (const HardwareFacts* other = &nodes.front(); other != &node; ++other) {
      if (*other != node) continue;
      return Fail(
          "two of the facts are the same, those of {} at {}, so this node would count twice (give "
          "each file once)",
          node.host, node.measured_at);
    }
    if (node.nodes > 1) {
      return Fail("the facts of {} are merged from {} nodes already (merge the nodes' own files)",
                  node.host, node.nodes);
    }
  }
  return Merger(nodes).Run();
}

}  // namespace perseus::hardware_facts
