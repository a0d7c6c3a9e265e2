// One value of all GPUs of a node, and the GPUs whose values differ from those of their siblings.
//
// The rule is that of hardware_facts/merge.h for nodes of one kind: a GPU differs if its whole
// interval is far from the median of all GPUs. Its value is then left out.
//
// Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace perseus::qualifier {

class Siblings {
 public:
  // The names of the GPUs, in the order of the estimates.
  explicit Siblings(std::vector<std::string> names) : names_(std::move(names)) {}

  enum class Unit { kWatts, kMilliseconds, kFraction };
  // The median of the GPUs that do not differ, with an interval that covers theirs. Empty if a GPU
  // has no estimate. `what` completes "its ... is": "busy power at 1410 MHz".
  std::optional<hardware_facts::Estimate> Combine(
      const std::string& what, Unit unit,
      const std::vector<std::optional<hardware_facts::Estimate>>& estimates);

  // One sentence for each GPU that differed, with its first value and the number of the others.
  std::vector<std::string> Differences() const;

 private:
  struct Difference {
    std::string who;
    std::string what;  // The first one.
    int count = 0;
  };
  void Note(std::string who, std::string what);

  std::vector<std::string> names_;
  std::vector<Difference> differences_;
};

}  // namespace perseus::qualifier
