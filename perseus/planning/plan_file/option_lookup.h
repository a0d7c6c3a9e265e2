// From the clock that a plan names to the option that was measured at it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::plan_file {

// The highest frequency that a plan or a list may name. A larger number is in another unit.
inline constexpr double kHighestFrequencyMhz = 1e6;

// Whether a plan chooses a clock for it: not for fixed instructions, whose time no clock changes.
bool IsPlanned(InstructionKind kind);

// The instructions of each rank that a plan chooses a clock for, in order.
std::vector<std::vector<int>> PlannedOrders(const schedule::InstructionGraph& graph);

struct NamedOption {
  double frequency_mhz = 0;
  std::span<const double> other_knobs;  // Empty if the plan names none.
};

// The index in `set.options`. Fails (kInput) if it was not measured, naming the nearest that was;
// or, where the plan names no other knobs, if several options share the frequency. `where` begins
// the message: "plan.json: ranks[2].instructions[5]".
Result<int> FindOption(const schedule::OptionSet& set, const NamedOption& named,
                       std::string_view where);

}  // namespace perseus::plan_file
