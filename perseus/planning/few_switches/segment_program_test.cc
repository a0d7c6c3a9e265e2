// The dynamic program finds what an exhaustive search finds.
#include "perseus/planning/few_switches/segment_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/seeds.h"

namespace perseus::few_switches {
namespace {

int CyclicChangesOf(const std::vector<int>& clocks) {
  int changes = 0;
  for (std::size_t p = 0; p < clocks.size(); ++p) {
    if (clocks[p] != clocks[(p + 1) % clocks.size()]) ++changes;
  }
  return changes;
}

double CostOf(SegmentProgram& program, const std::vector<int>& clocks) {
  double cost = 0;
  for (int p = 0; p < program.positions(); ++p) {
    const std::size_t before = At(p + program.positions() - 1) % clocks.size();
    cost += program.weight(p, clocks[At(p)]);
    if (clocks[before] != clocks[At(p)]) cost += program.change_cost(p);
  }
  return cost;
}

// The least cost for each number of changes, up to `most`.
std::vector<double> SearchAllSequences(SegmentProgram& program, int most) {
  std::vector<double> least(At(most) + 1, SegmentProgram::kForbidden);
  std::vector<int> clocks(At(program.positions()), 0);
  while (true) {
    const double cost = CostOf(program, clocks);
    for (int n = CyclicChangesOf(clocks); n <= most; ++n) {
      least[At(n)] = std::min(least[At(n)], cost);
    }
    std::size_t p = 0;
    for (; p < clocks.size(); ++p) {
      if (++clocks[p] < program.clocks()) break;
      clocks[p] = 0;
    }
    if (p == clocks.size()) return least;
  }
}

TEST(SegmentProgram, AgreesWithExhaustiveSearch) {
  for (std::uint64_t seed = 0; seed < Seeds(400); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](int end) {
      return static_cast<int>(random() % static_cast<std::uint64_t>(end));
    };
    SegmentProgram program(1 + below(7), 1 + below(3));
    const bool changes_cost = seed % 2 == 1;
    for (int p = 0; p < program.positions(); ++p) {
      if (changes_cost) {
        program.change_cost(p) = below(4);
      }
      for (int c = 0; c < program.clocks(); ++c) {
        // Few different weights give many ties. Some options are not measured.
        program.weight(p, c) = below(6) == 0 ? SegmentProgram::kForbidden : below(8);
      }
    }
    const std::vector<double> least = SearchAllSequences(program, 8);
    for (int changes = 0; changes <= 8; ++changes) {
      SCOPED_TRACE(changes);
      const SegmentProgram::Answer answer = program.Solve(changes);
      EXPECT_EQ(answer.exists(), least[At(changes)] < SegmentProgram::kForbidden);
      if (!answer.exists()) continue;
      EXPECT_EQ(answer.cost, least[At(changes)]);
      EXPECT_EQ(program.Cost(changes), least[At(changes)]);
      EXPECT_EQ(CostOf(program, answer.clocks), answer.cost);
      EXPECT_LE(CyclicChangesOf(answer.clocks), changes);
    }
  }
}

}  // namespace
}  // namespace perseus::few_switches
