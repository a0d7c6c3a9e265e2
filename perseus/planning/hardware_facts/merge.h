// Makes one value of many: of the nodes of a kind, or of the GPUs of a node. It finds the members
// that differ.
//
// A member differs if its whole 95 % interval is farther from the median m of all members than
// max(5 * MAD, 10 % of m), where MAD is the median of |value - m|. For fractions, the bound is at
// least 0.01.
//
// - Median and MAD are robust: less than half of the members differ, however far off they are. For
//   normal noise, 5 MAD are 3.4 standard deviations. The 10 % keep members that are nearly equal
//   (MAD near 0) from being reported for differences that matter to no plan.
// - Two members have no majority. If they differ from each other, one difference names both, and
//   both count.
//
// Limits: it takes a few members for the median to mean something. A kind of which half the nodes
// are slow shows no difference, only wide intervals.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace perseus::hardware_facts {

// The median of the values. Its interval covers all of theirs. Requires an estimate.
Estimate Combine(const std::vector<Estimate>& estimates);

// The least of the values, with the least of the lower and of the upper ends. Requires an estimate.
Estimate LeastOf(const std::vector<Estimate>& estimates);

enum class Unit { kMilliseconds, kWatts, kPerSecond, kFraction };

// A value of several members, in sentences: the "blocking power at 1410 MHz" of "nodes".
struct Quantity {
  std::string name;
  Unit unit;
  std::string_view members;
};
struct MemberValue {
  std::string who;
  Estimate estimate;
};
struct Agreement {
  struct Difference {
    std::string who;   // "node-3", or "node-1 and node-2" of two members.
    std::string what;  // "blocking power is 91 W, and the median of 5 nodes is 81 W"
  };
  Estimate estimate;  // Of the members that do not differ, or of both of two: Combine().
  std::vector<Difference> differences;
};
// Requires a member.
Agreement Agree(const Quantity& quantity, const std::vector<MemberValue>& values);

struct MergedFacts {
  HardwareFacts facts;
  std::vector<std::string> differences;  // One sentence each, in the order of the values.
};

// Of each value, the merged facts have the median of the nodes that do not differ, and an interval
// that covers theirs. A value that some nodes lack comes from the others. Of max_changes_per_s, the
// least of these nodes counts. range_lock_saves is false if it is false on any node. Texts and the
// number of GPUs are those of most nodes, measured_at is the latest, and limits has each sentence
// once.
//
// Fails (kInput) without facts, if the GPUs have different names (the message has both), or if
// facts are merged already: the medians of medians would not be those of the nodes. Fails also if
// two of the facts are equal: they are of one measurement, and its node would count twice.
Result<MergedFacts> Merge(const std::vector<HardwareFacts>& nodes);

}  // namespace perseus::hardware_facts
