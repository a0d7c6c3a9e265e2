// Finds the measured option for a clock that a plan names.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::plan_file {

// The highest frequency that a plan may name. A larger number is in another unit.
inline constexpr double kHighestFrequencyMhz = 1e6;

// Whether a plan chooses a clock for instructions of this kind. False for fixed instructions.
bool IsPlanned(InstructionKind kind);

// [pp_rank][position] the instructions for which a plan chooses a clock, in execution order.
std::vector<std::vector<int>> PlannedOrders(const schedule::InstructionGraph& graph);

struct NamedOption {
  double frequency_mhz = 0;
  std::span<const double> other_knobs;  // Empty if the plan names none.
};

// The index in `set.options`. Fails (kInput) if the option was not measured; the message then has
// the nearest measured frequency. Also fails if the plan names no other knobs, but several options
// have the frequency. `where` is the beginning of the message, such as
// "plan.json: pp_ranks[2].instructions[5]".
Result<int> FindOption(const schedule::OptionSet& set, const NamedOption& named,
                       std::string_view where);

}  // namespace perseus::plan_file
