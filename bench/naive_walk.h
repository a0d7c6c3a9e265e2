// The textbook algorithm for the frontier: the baseline for the speed of the walk in
// perseus/planning/frontier, and an oracle for it in tests.
//
// It is the same parametric algorithm, with the flow carried along (Fulkerson 1961), but without
// trees. After every change of flow or lengths, it searches the residual network again, breadth
// first, from the source. If the search reaches the sink, the algorithm sends flow along the
// shortest path. If not, the reached set is a minimum cut, and the algorithm shifts all other nodes
// until an arc of the cut arrives at a vertex of its curve.
#pragma once

#include <vector>

#include "perseus/planning/frontier/network.h"

namespace perseus {

struct FrontierVertex {
  Nanoseconds time = 0;
  Femtojoules extra_energy = 0;

  bool operator==(const FrontierVertex&) const = default;
};

// All breakpoints of the frontier, from slow to fast.
std::vector<FrontierVertex> NaiveFrontier(const frontier::Network& network);

}  // namespace perseus
