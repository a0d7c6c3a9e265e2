#include "perseus/planning/plan_file/option_lookup.h"

#include <algorithm>
#include <cmath>

namespace perseus::plan_file {

bool IsPlanned(InstructionKind kind) {
  return IsComputation(kind) || kind == InstructionKind::kGeneric;
}

std::vector<std::vector<int>> PlannedOrders(const schedule::InstructionGraph& graph) {
  std::vector<std::vector<int>> orders = graph.pp_rank_orders;
  for (std::vector<int>& order : orders) {
    std::erase_if(order,
                  [&](int instruction) { return !IsPlanned(graph.options_of(instruction).kind); });
  }
  return orders;
}

Result<int> FindOption(const schedule::OptionSet& set, const NamedOption& named,
                       std::string_view where) {
  int found = -1;
  int at_frequency = 0;
  const profile::Option* nearest = &set.options.front();
  for (std::size_t i = 0; i < set.options.size(); ++i) {
    const profile::Option& option = set.options[i];
    if (std::abs(option.frequency_mhz - named.frequency_mhz) <
        std::abs(nearest->frequency_mhz - named.frequency_mhz)) {
      nearest = &option;
    }
    if (option.frequency_mhz != named.frequency_mhz) continue;
    ++at_frequency;
    if (named.other_knobs.empty() || std::ranges::equal(option.other_knobs, named.other_knobs)) {
      found = static_cast<int>(i);
    }
  }
  if (at_frequency == 0) {
    return Fail(
        "{}: {} was not measured at {} MHz, the nearest measured is {} MHz (measure it at this "
        "frequency, or plan again with this profile)",
        where, set.name, named.frequency_mhz, nearest->frequency_mhz);
  }
  if (found < 0) {
    return Fail(
        "{}: {} was measured at {} MHz, but not with these other knobs (measure it with them, or "
        "plan again with this profile)",
        where, set.name, named.frequency_mhz);
  }
  if (named.other_knobs.empty() && at_frequency > 1) {
    return Fail(
        "{}: {} has {} options at {} MHz, and the plan does not say which (use a plan that names "
        "the other knobs)",
        where, set.name, at_frequency, named.frequency_mhz);
  }
  return found;
}

}  // namespace perseus::plan_file
