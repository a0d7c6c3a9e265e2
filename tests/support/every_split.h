// All splits of a model, for tests with exhaustive search.
#pragma once

#include <functional>

#include "perseus/planning/partition/partition.h"

namespace perseus::partition {

// Calls the function for each split, in lexicographic order.
inline void ForEachSplit(int layers, int stages,
                         const std::function<void(const Boundaries&)>& visit,
                         Boundaries begun = {0}) {
  if (stages == 1) {
    begun.push_back(layers);
    visit(begun);
    return;
  }
  for (int end = begun.back() + 1; end + stages - 1 <= layers; ++end) {
    Boundaries next = begun;
    next.push_back(end);
    ForEachSplit(layers, stages - 1, visit, next);
  }
}

}  // namespace perseus::partition
