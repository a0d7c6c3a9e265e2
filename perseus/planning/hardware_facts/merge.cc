#include "perseus/planning/hardware_facts/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "perseus/base/statistics.h"

namespace perseus::hardware_facts {
namespace {

constexpr double kMostMads = 5;
constexpr double kLeastPart = 0.1;
constexpr double kLeastFractionBound = 0.01;  // Fractions may be near 0.

std::string Text(double value, Unit unit) {
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

// How far the interval is from the value; 0 if it contains the value.
double Distance(const Estimate& estimate, double value) {
  return std::max({estimate.low - value, value - estimate.high, 0.0});
}

class Merger {
 public:
  explicit Merger(const std::vector<HardwareFacts>& nodes) : nodes_(nodes) {}

  MergedFacts Run() {
    using enum Unit;
    MergeTexts();
    MergeList(&HardwareFacts::switches, [&](const auto& group, SwitchFacts& merged) {
      const std::string which = fmt::format("a {} change {} of {}", merged.is_far ? "far" : "near",
                                            merged.direction == Direction::kUp ? "up" : "down",
                                            merged.all_gpus ? "all GPUs" : "one GPU");
      merged.latency_ms =
          *MergeField(group, &SwitchFacts::latency_ms, "latency of " + which, kMilliseconds);
      merged.call_ms = *MergeField(group, &SwitchFacts::call_ms,
                                   "duration of the call for " + which, kMilliseconds);
      merged.p95_latency_ms = MedianOf(group, &SwitchFacts::p95_latency_ms);
    });
    MergeRate();
    MergeList(&HardwareFacts::power, [&](const auto& group, PowerFacts& merged) {
      const std::string at = fmt::format(" at {} MHz", merged.sm_clock_mhz);
      merged.idle_w = MergeField(group, &PowerFacts::idle_w, "idle power" + at, kWatts);
      merged.blocked_w = MergeField(group, &PowerFacts::blocked_w, "blocking power" + at, kWatts);
      merged.busy_w = MergeField(group, &PowerFacts::busy_w, "power of a busy GPU" + at, kWatts);
    });
    MergeEnergyCounter();
    MergeList(&HardwareFacts::interference, [&](const auto& group, InterferenceFacts& merged) {
      merged.slowdown =
          *MergeField(group, &InterferenceFacts::slowdown,
                      fmt::format("slowdown of \"{}\" at {} changes and {} reads a second",
                                  merged.kind, merged.changes_per_s, merged.reads_per_s),
                      kFraction);
    });
    MergeRangeLock();
    return std::move(merged_);
  }

 private:
  // Facts of nodes that belong together, such as those of one case of a clock change.
  template <typename T>
  using Group = std::vector<std::pair<std::string_view, const T*>>;

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

  // Groups the elements of a list of all nodes by their key, and calls `merge` with each group and
  // a copy of its first element.
  template <typename T, typename MergeGroup>
  void MergeList(std::vector<T> HardwareFacts::*list, MergeGroup merge) {
    std::vector<Group<T>> groups;
    for (const HardwareFacts& node : nodes_) {
      for (const T& facts : node.*list) {
        auto group = std::find_if(groups.begin(), groups.end(), [&](const Group<T>& other) {
          return other.front().second->key() == facts.key();
        });
        if (group == groups.end()) group = groups.insert(group, Group<T>());
        group->emplace_back(node.host, &facts);
      }
    }
    for (const Group<T>& group : groups) {
      merge(group, (merged_.facts.*list).emplace_back(*group.front().second));
    }
  }

  // Empty if no node has the value. Reports the nodes that differ.
  template <typename T, typename Field>
  std::optional<Estimate> MergeField(const Group<T>& group, Field field, const std::string& name,
                                     Unit unit) {
    std::vector<MemberValue> values;
    for (const auto& [host, facts] : group) {
      const std::optional<Estimate> estimate = facts->*field;
      if (estimate) values.push_back({std::string(host), *estimate});
    }
    if (values.empty()) return std::nullopt;
    const Agreement agreement = Agree({name, unit, "nodes"}, values);
    for (const auto& [who, what] : agreement.differences) {
      if (values.size() == 2) {
        Report("{} differ: the {} (merge a third node to see which one is unusual)", who, what);
      } else {
        Report("{} differs: the {}", who, what);
      }
    }
    return agreement.estimate;
  }

  template <typename T>
  static double MedianOf(const Group<T>& group, double T::*field) {
    std::vector<double> values;
    for (const auto& [host, facts] : group) values.push_back(facts->*field);
    return Median(std::move(values));
  }

  // The least rate of all nodes, so that it harms none of them. Unusual nodes are reported, too.
  void MergeRate() {
    Group<HardwareFacts> group;
    std::vector<Estimate> rates;
    for (const HardwareFacts& node : nodes_) {
      group.emplace_back(node.host, &node);
      if (node.max_changes_per_s) rates.push_back(*node.max_changes_per_s);
    }
    static_cast<void>(MergeField(group, &HardwareFacts::max_changes_per_s,
                                 "greatest rate of clock changes", Unit::kPerSecond));
    if (!rates.empty()) merged_.facts.max_changes_per_s = LeastOf(rates);
  }

  void MergeEnergyCounter() {
    Group<EnergyCounterFacts> group;
    for (const HardwareFacts& node : nodes_) {
      if (node.energy_counter) group.emplace_back(node.host, &*node.energy_counter);
    }
    if (group.empty()) return;
    EnergyCounterFacts merged;
    merged.period_ms = *MergeField(group, &EnergyCounterFacts::period_ms,
                                   "period of the energy counter", Unit::kMilliseconds);
    merged.resolution_j = MedianOf(group, &EnergyCounterFacts::resolution_j);
    merged.bias = *MergeField(group, &EnergyCounterFacts::bias, "bias of the energy counter",
                              Unit::kFraction);
    merged_.facts.energy_counter = merged;
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

Estimate Combine(const std::vector<Estimate>& estimates) {
  std::vector<double> values;
  Estimate all = LeastOf(estimates);
  for (const Estimate& estimate : estimates) {
    values.push_back(estimate.value);
    all.high = std::max(all.high, estimate.high);
  }
  all.value = Median(std::move(values));
  return all;
}

Estimate LeastOf(const std::vector<Estimate>& estimates) {
  Estimate least = estimates.front();
  long long samples = 0;
  for (const Estimate& estimate : estimates) {
    least.value = std::min(least.value, estimate.value);
    least.low = std::min(least.low, estimate.low);
    least.high = std::min(least.high, estimate.high);
    samples += estimate.samples;
  }
  least.samples = static_cast<int>(std::min<long long>(samples, kMostSamples));
  return least;
}

Agreement Agree(const Quantity& quantity, const std::vector<MemberValue>& values) {
  std::vector<double> numbers;
  for (const MemberValue& value : values) numbers.push_back(value.estimate.value);
  const double median = Median(numbers);
  const auto text = [&](double value) { return Text(value, quantity.unit); };
  const bool are_two = values.size() == 2;
  // Two members are compared with each other, so they have no deviation.
  const double bound = std::max({are_two ? 0 : kMostMads * MedianDeviation(numbers, median),
                                 kLeastPart * std::abs(median),
                                 quantity.unit == Unit::kFraction ? kLeastFractionBound : 0});
  Agreement agreement;
  std::vector<Estimate> usual;
  for (const auto& [who, estimate] : values) {
    if (are_two || Distance(estimate, median) <= bound) {
      usual.push_back(estimate);
    } else {
      agreement.differences.push_back(
          {who, fmt::format("{} is {}, and the median of {} {} is {}", quantity.name,
                            text(estimate.value), values.size(), quantity.members, text(median))});
    }
  }
  if (are_two && std::max(usual[0].low - usual[1].high, usual[1].low - usual[0].high) > bound) {
    agreement.differences.push_back(
        {fmt::format("{} and {}", values[0].who, values[1].who),
         fmt::format("{} is {} on the one and {} on the other", quantity.name, text(usual[0].value),
                     text(usual[1].value))});
  }
  agreement.estimate = Combine(usual);
  return agreement;
}

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
