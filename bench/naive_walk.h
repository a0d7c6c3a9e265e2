// The frontier by the textbook: what the walk of src/frontier is measured against, and an oracle
// for it in tests.
//
// The same parametric algorithm, with the flow carried along (Fulkerson 1961), but without trees:
// after every change of flow or lengths the residual network is searched afresh, breadth first,
// from the source. If that reaches the sink, flow is sent along the shortest path; if not, the
// reached set is a minimum cut, and everything beyond it is shifted until an arc of the cut arrives
// at a vertex of its curve.
#pragma once

#include <vector>

#include "perseus/planning/frontier/network.h"

namespace perseus {

struct FrontierVertex {
  Nanoseconds time = 0;
  Femtojoules extra_energy = 0;

  bool operator==(const FrontierVertex&) const = default;
};

// All vertices of the frontier, from slow to fast.
std::vector<FrontierVertex> NaiveFrontier(const frontier::Network& network);

}  // namespace perseus
