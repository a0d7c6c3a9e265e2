#include "perseus/planning/few_switches/change_rules.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::few_switches {
namespace {

using schedule::InstructionGraph;

constexpr std::array<std::pair<std::string_view, Operation>, 4> kOperations{
    {{"p2p", Operation::kP2p},
     {"all_reduce", Operation::kAllReduce},
     {"load", Operation::kLoad},
     {"optimizer", Operation::kOptimizer}}};

InstructionKind KindOf(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return InstructionKind::kAllReduce;
    case Operation::kLoad:
      return InstructionKind::kLoad;
    default:
      return InstructionKind::kOptimizer;
  }
}

bool IsTransfer(const InstructionGraph& graph, const schedule::Dependency& dependency) {
  return graph.instructions[At(dependency.from)].pp_rank !=
         graph.instructions[At(dependency.to)].pp_rank;
}

bool HasOperation(const InstructionGraph& graph, Operation operation) {
  if (operation == Operation::kP2p) {
    return std::ranges::any_of(graph.dependencies,
                               [&](const auto& d) { return IsTransfer(graph, d); });
  }
  return std::ranges::any_of(graph.option_sets,
                             [&](const auto& set) { return set.kind == KindOf(operation); });
}

}  // namespace

std::string_view Name(Operation operation) {
  for (const auto& [name, known] : kOperations) {
    if (known == operation) return name;
  }
  return "";
}

std::optional<Operation> OperationNamed(std::string_view name) {
  for (const auto& [known, operation] : kOperations) {
    if (known == name) return operation;
  }
  return std::nullopt;
}

std::vector<std::string_view> OperationNames() {
  std::vector<std::string_view> names;
  for (const auto& [name, operation] : kOperations) names.push_back(name);
  return names;
}

Result<void> CheckRules(const InstructionGraph& graph, const ChangeRules& rules) {
  for (const QuietZone& zone : rules.quiet_zones) {
    if (HasOperation(graph, zone.operation)) continue;
    return Fail(
        "a quiet zone is around {0}, but the job has no {0} (add its time to the job, or "
        "remove the quiet zone)",
        Name(zone.operation));
  }
  return {};
}

RuleChecker::RuleChecker(const InstructionGraph& graph, const ChangeRules& rules,
                         const plan::ExecutionModel& model)
    : has_rules_(!rules.IsNone()),
      min_dwell_(rules.min_dwell),
      takes_(std::max(model.switch_latency, model.switch_cost.stall)),
      streams_(graph.pp_rank_orders.size()) {
  FindPrevious(graph);
  for (const QuietZone& zone : rules.quiet_zones) {
    if (zone.operation == Operation::kP2p) {
      AddTransfers(graph, zone.distance);
    } else {
      AddInstructions(graph, zone);
    }
  }
  if (!rules.quiet_zones.empty()) FindForbidden(graph, rules);
}

void RuleChecker::FindPrevious(const InstructionGraph& graph) {
  previous_.assign(graph.instructions.size(), kNone);
  for (const std::vector<int>& order : graph.pp_rank_orders) {
    int first = kNone;
    int last = kNone;
    for (const int i : order) {
      if (!graph.options_of(i).HasClock()) continue;
      if (first == kNone) first = i;
      previous_[At(i)] = last;
      last = i;
    }
    if (first != kNone) previous_[At(first)] = last;
  }
}

Nanoseconds RuleChecker::RequestOf(int instruction, const Moments& moments) const {
  const int previous = previous_[At(instruction)];
  const Nanoseconds end = moments.ends[At(previous)];
  return previous < instruction ? end : end - moments.time;
}

// The transfers from one pp_rank to another follow each other in the order of the sender.
void RuleChecker::AddTransfers(const InstructionGraph& graph, Nanoseconds distance) {
  std::map<std::pair<int, int>, std::map<int, Nanoseconds>> transfers;
  for (const schedule::Dependency& dependency : graph.dependencies) {
    if (!IsTransfer(graph, dependency)) continue;
    const int sender = graph.instructions[At(dependency.from)].pp_rank;
    const int receiver = graph.instructions[At(dependency.to)].pp_rank;
    Nanoseconds& length = transfers[{sender, receiver}][dependency.from];
    length = std::max(length, dependency.delay);
  }
  for (const auto& [ranks, of_instruction] : transfers) {
    Stream stream{.is_transfer = true, .distance = distance, .longest = 0, .entries = {}};
    // Instructions are in topological order, so those of one pp_rank are in its order.
    for (const auto& [instruction, length] : of_instruction) {
      stream.entries.push_back({instruction, length});
      stream.longest = std::max(stream.longest, length);
    }
    streams_[At(ranks.first)].push_back(stream);
    streams_[At(ranks.second)].push_back(std::move(stream));
  }
}

void RuleChecker::AddInstructions(const InstructionGraph& graph, const QuietZone& zone) {
  for (std::size_t r = 0; r < graph.pp_rank_orders.size(); ++r) {
    Stream stream{.is_transfer = false, .distance = zone.distance, .longest = 0, .entries = {}};
    for (const int i : graph.pp_rank_orders[r]) {
      if (graph.options_of(i).kind == KindOf(zone.operation)) stream.entries.push_back({i, 0});
    }
    if (!stream.entries.empty()) streams_[r].push_back(std::move(stream));
  }
}

// A change is always requested inside a quiet zone if a transfer or an operation begins at the very
// end of the previous instruction.
void RuleChecker::FindForbidden(const InstructionGraph& graph, const ChangeRules& rules) {
  const auto is_named = [&](auto has_operation) {
    return std::ranges::any_of(rules.quiet_zones, [&](const QuietZone& zone) {
      return zone.distance > 0 && has_operation(zone.operation);
    });
  };
  const bool names_p2p = is_named([](Operation named) { return named == Operation::kP2p; });
  std::vector<int> waits_for(graph.instructions.size(), 0);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    ++waits_for[At(dependency.to)];
  }
  std::vector<bool> begins_operation(graph.instructions.size(), false);
  for (const schedule::Dependency& dependency : graph.dependencies) {
    if (IsTransfer(graph, dependency)) {
      if (names_p2p) begins_operation[At(dependency.from)] = true;
      continue;
    }
    const InstructionKind kind = graph.options_of(dependency.to).kind;
    const bool is_operation = is_named(
        [&](Operation named) { return named != Operation::kP2p && KindOf(named) == kind; });
    if (is_operation && waits_for[At(dependency.to)] == 1 && dependency.delay == 0) {
      begins_operation[At(dependency.from)] = true;
    }
  }
  forbidden_.assign(graph.instructions.size(), false);
  for (std::size_t i = 0; i < previous_.size(); ++i) {
    forbidden_[i] = previous_[i] != kNone && begins_operation[At(previous_[i])];
  }
}

Nanoseconds RuleChecker::BreachOfStream(const Stream& stream, Nanoseconds change,
                                        const Moments& moments) const {
  const auto begin_of = [&](const Entry& entry) {
    return stream.is_transfer ? moments.ends[At(entry.instruction)]
                              : moments.starts[At(entry.instruction)];
  };
  const auto is_before = [&](const Entry& entry) {
    return moments.ends[At(entry.instruction)] + stream.longest + stream.distance <= change;
  };
  Nanoseconds breach = 0;
  for (auto entry = std::ranges::partition_point(stream.entries, is_before);
       entry != stream.entries.end(); ++entry) {
    const Nanoseconds quiet_from = begin_of(*entry) - stream.distance;
    const Nanoseconds quiet_until =
        moments.ends[At(entry->instruction)] + entry->length + stream.distance;
    if (quiet_from >= change + takes_) break;
    if (quiet_until <= change) continue;
    breach += std::min(change + takes_ - quiet_from, quiet_until - change);
  }
  return breach;
}

Nanoseconds RuleChecker::Breach(int pp_rank, std::span<const int> changing,
                                const Moments& moments) const {
  Nanoseconds breach = 0;
  for (std::size_t j = 0; j < changing.size(); ++j) {
    const Nanoseconds change = RequestOf(changing[j], moments);
    const Nanoseconds next = j + 1 < changing.size()
                                 ? RequestOf(changing[j + 1], moments)
                                 : RequestOf(changing[0], moments) + moments.time;
    breach += std::max<Nanoseconds>(0, min_dwell_ - (next - change));
    for (const Stream& stream : streams_[At(pp_rank)]) {
      for (const Nanoseconds shift : {-moments.time, Nanoseconds{0}, moments.time}) {
        breach += BreachOfStream(stream, change + shift, moments);
      }
    }
  }
  return breach;
}

Nanoseconds RuleChecker::Breach(const InstructionGraph& graph, std::span<const int> options,
                                const plan::Evaluation& evaluation) const {
  if (!has_rules_) return 0;
  const auto chosen = [&](int instruction) -> const profile::Option& {
    return graph.options_of(instruction).options[At(options[At(instruction)])];
  };
  std::vector<Nanoseconds> ends = evaluation.starts;
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i] += evaluation.durations[i];
  Nanoseconds breach = 0;
  for (std::size_t r = 0; r < graph.pp_rank_orders.size(); ++r) {
    std::vector<int> changing;
    for (const int i : graph.pp_rank_orders[r]) {
      const int previous = previous_[At(i)];
      if (previous != kNone && !chosen(i).SameKnobs(chosen(previous))) changing.push_back(i);
    }
    breach += Breach(static_cast<int>(r), changing, {evaluation.starts, ends, evaluation.time});
  }
  return breach;
}

}  // namespace perseus::few_switches
