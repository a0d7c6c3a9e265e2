// Makes the facts of a kind of node from the facts of its nodes, and finds the nodes that differ.
//
// A value of a node differs if its whole 95 % interval is farther from the median m of all nodes
// than max(5 * MAD, 10 % of m), where MAD is the median of |value - m|. For fractions, the bound is
// at least 0.01.
//
// - Median and MAD are robust: less than half of the nodes differ, however far off they are. For
//   normal noise, 5 MAD are 3.4 standard deviations. The 10 % keep nodes that are nearly equal
//   (MAD near 0) from being reported for differences that matter to no plan.
// - Two nodes have no majority. If they differ from each other, one sentence names both, and both
//   count.
//
// Limits: it takes a few nodes for the median to mean something. A kind of which half the nodes are
// slow shows no difference, only wide intervals.
#pragma once

#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace perseus::hardware_facts {

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
