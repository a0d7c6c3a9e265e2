// The dynamic program with windows finds what an exhaustive search finds, or less.
#include "perseus/planning/few_switches/window_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "tests/support/seeds.h"

namespace perseus::few_switches {
namespace {

// A ring with windows. The fastest clocks keep most of these windows.
struct Ring {
  SegmentProgram program;
  std::vector<PositionWindow> windows;
  std::vector<Nanoseconds> times;  // [position * clocks + clock]
  Nanoseconds stall = 0;

  Nanoseconds time(std::size_t position, int clock) const {
    return times[position * At(program.clocks()) + At(clock)];
  }
};

Ring RandomRing(std::uint64_t seed, Nanoseconds unit) {
  std::mt19937_64 random(seed);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(end));
  };
  Ring ring{SegmentProgram(1 + below(7), 1 + below(3)), {}, {}, 0};
  const bool changes_cost = seed % 2 == 1;
  if (seed % 4 == 1) ring.stall = unit / 2;
  Nanoseconds end = 0;  // When the previous position ends at its fastest clock.
  for (int p = 0; p < ring.program.positions(); ++p) {
    if (changes_cost) {
      ring.program.change_cost(p) = below(4);
    }
    Nanoseconds fastest = 6 * unit;
    for (int c = 0; c < ring.program.clocks(); ++c) {
      ring.program.weight(p, c) = below(8) == 0 ? SegmentProgram::kForbidden : below(8);
      ring.times.push_back((1 + below(5)) * unit);
      fastest = std::min(fastest, ring.times.back());
    }
    PositionWindow window{.delay = below(2) * unit, .waits = p > 0 && below(6) > 0};
    if (!window.waits) window.delay = 0;
    window.earliest_start = below(3) * unit + (window.waits ? end + window.delay : 0);
    end = window.earliest_start + fastest;
    window.latest_end = end + below(8) * unit;
    ring.windows.push_back(window);
  }
  return ring;
}

int ChangesOf(const std::vector<int>& clocks) {
  int changes = 0;
  for (std::size_t p = 0; p < clocks.size(); ++p) {
    if (clocks[p] != clocks[(p + 1) % clocks.size()]) ++changes;
  }
  return changes;
}

// Returns nullopt if the sequence breaks a window. A stall at position 0 is not part of the times,
// because it may come before the iteration.
std::optional<double> CostOf(const Ring& ring, const std::vector<int>& clocks) {
  double cost = 0;
  Nanoseconds end = 0;
  for (std::size_t p = 0; p < clocks.size(); ++p) {
    const bool changes = clocks[p] != clocks[(p + clocks.size() - 1) % clocks.size()];
    const PositionWindow& window = ring.windows[p];
    Nanoseconds start = window.earliest_start;
    if (window.waits) start = std::max(start, end + window.delay);
    end = start + ring.time(p, clocks[p]) + (changes && p > 0 ? ring.stall : 0);
    if (end > window.latest_end) return std::nullopt;
    cost += ring.program.weight(static_cast<int>(p), clocks[p]);
    if (changes) cost += ring.program.change_cost(static_cast<int>(p));
  }
  return cost;
}

double SearchAllSequences(const Ring& ring, int most_changes) {
  double least = SegmentProgram::kForbidden;
  std::vector<int> clocks(At(ring.program.positions()), 0);
  while (true) {
    if (ChangesOf(clocks) <= most_changes) {
      least = std::min(least, CostOf(ring, clocks).value_or(SegmentProgram::kForbidden));
    }
    std::size_t p = 0;
    for (; p < clocks.size(); ++p) {
      if (++clocks[p] < ring.program.clocks()) break;
      clocks[p] = 0;
    }
    if (p == clocks.size()) return least;
  }
}

WindowProgram ProgramOf(const Ring& ring) {
  return {ring.windows, ring.times, ring.program.clocks(), ring.stall};
}

// The windows are a few nanoseconds long, so a cell is one nanosecond, and only equal labels are
// merged.
TEST(WindowProgram, AgreesWithExhaustiveSearchWhereNothingIsMerged) {
  int exist = 0;
  int cost_more = 0;
  for (std::uint64_t seed = 0; seed < Seeds(1'000); ++seed) {
    SCOPED_TRACE(seed);
    Ring ring = RandomRing(seed, seed % 4 == 1 ? 2 : 1);
    for (int changes = 0; changes <= 8; ++changes) {
      SCOPED_TRACE(changes);
      const double least = SearchAllSequences(ring, changes);
      const WindowProgram::Answer answer = ProgramOf(ring).Solve(ring.program, changes, 0);
      ASSERT_TRUE(answer.complete);
      ASSERT_EQ(answer.cost < SegmentProgram::kForbidden, least < SegmentProgram::kForbidden);
      if (least >= SegmentProgram::kForbidden) continue;
      ++exist;
      EXPECT_EQ(answer.cost, least);
      EXPECT_LE(ChangesOf(answer.clocks), changes);
      EXPECT_EQ(CostOf(ring, answer.clocks), answer.cost);
      if (answer.cost > ring.program.Cost(changes)) ++cost_more;
    }
  }
  // In many cases, some sequence keeps the windows. In many of these cases, the windows make the
  // best sequence more expensive.
  EXPECT_GT(exist, static_cast<int>(Seeds(1'000)));
  EXPECT_GT(cost_more, static_cast<int>(Seeds(1'000) / 10));
}

TEST(WindowProgram, IsALowerBoundWhereLabelsAreMerged) {
  for (std::uint64_t seed = 0; seed < Seeds(1'000); ++seed) {
    SCOPED_TRACE(seed);
    // Cells are 2^17 to 2^18 ns wide, and the times are no multiples of them.
    Ring ring = RandomRing(seed, 1'000'003);
    WindowProgram program = ProgramOf(ring);
    for (const double excess : {0.0, 3.0, 100.0}) {
      for (int changes = 0; changes <= 5; ++changes) {
        SCOPED_TRACE(changes);
        const double least = SearchAllSequences(ring, changes);
        const WindowProgram::Answer answer = program.Solve(ring.program, changes, excess);
        EXPECT_LE(answer.cost, least);
        EXPECT_LE(answer.open_cost, answer.cost);
        const double without = std::min(ring.program.Cost(changes), SegmentProgram::kForbidden);
        EXPECT_GE(answer.cost, without);
      }
    }
  }
}

}  // namespace
}  // namespace perseus::few_switches
