// Rings, and the moves between them.
#include "perseus/planning/few_switches/ring_moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::few_switches {
namespace {

using ::testing::ElementsAre;

TEST(Ring, JoinsTheEndWithTheBeginning) {
  EXPECT_THAT(MakeRing({2, 2, 2}), ElementsAre(Segment{0, 2}));
  EXPECT_THAT(MakeRing({1, 1, 0, 0, 1}), ElementsAre(Segment{2, 0}, Segment{4, 1}));
  EXPECT_THAT(MakeRing({1, 0, 0, 2}), ElementsAre(Segment{0, 1}, Segment{1, 0}, Segment{3, 2}));
}

TEST(Ring, GivesItsClocksBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<int> clocks(1 + random() % 9);
    for (int& clock : clocks) clock = static_cast<int>(random() % 3);
    EXPECT_EQ(ClocksOf(MakeRing(clocks), static_cast<int>(clocks.size())), clocks);
  }
}

TEST(Ring, ShrinksByItsShortestSegments) {
  Ring ring = MakeRing({0, 0, 0, 5, 1, 1, 7, 7, 7, 7});
  Shrink(ring, 10, 3);
  // Clock 5 is nearer to clock 1 than to clock 0, the clock of the other neighbor.
  EXPECT_THAT(ring, ElementsAre(Segment{0, 0}, Segment{3, 1}, Segment{6, 7}));
  Shrink(ring, 10, 0);
  EXPECT_THAT(ring, ElementsAre(Segment{0, 1}));
}

// A random ring of at most `most_changes` changes for each pp_rank.
std::vector<Ring> RandomRings(const std::vector<RankClocks>& ranks, int most_changes,
                              std::mt19937_64& random) {
  std::vector<Ring> rings;
  for (const RankClocks& rank : ranks) {
    if (rank.positions() == 0) {
      rings.push_back({{0, 0}});
      continue;
    }
    std::vector<int> clocks(At(rank.positions()));
    for (int& clock : clocks) clock = static_cast<int>(random() % At(rank.clocks));
    rings.push_back(MakeRing(clocks));
    Shrink(rings.back(), rank.positions(), most_changes);
  }
  return rings;
}

TEST(RingMoves, AreRingsWithinTheLimit) {
  std::int64_t proposals = 0;
  for (std::uint64_t seed = 0; seed < Seeds(60); ++seed) {
    SCOPED_TRACE(seed);
    const schedule::InstructionGraph graph =
        RandomJob({.instructions = 5 + static_cast<int>(seed % 40)}, seed);
    const std::vector<RankClocks> ranks = CollectClocks(graph, RandomBlockingPower(seed));
    RingMoves moves(ranks);
    if (moves.movable().empty()) continue;
    std::mt19937_64 random(seed);
    for (const int most_changes : {0, 2, 3, 6}) {
      std::vector<Ring> rings = RandomRings(ranks, most_changes, random);
      moves.ForgetOffers();
      if (seed % 2 == 0) moves.Offer(RandomRings(ranks, 6, random));
      for (int move = 0; move < 300; ++move) {
        std::set<int> changed;
        for (RingMoves::Proposal& proposal : moves.Propose(rings, most_changes)) {
          const RankClocks& rank = ranks[At(proposal.pp_rank)];
          ASSERT_TRUE(changed.insert(proposal.pp_rank).second);
          ASSERT_LE(proposal.ring.size(), MostSegments(most_changes));
          for (const Segment& segment : proposal.ring) {
            ASSERT_GE(segment.clock, 0);
            ASSERT_LT(segment.clock, rank.clocks);
          }
          // Sorted, within the iteration, and without neighbors of the same clock.
          ASSERT_EQ(MakeRing(ClocksOf(proposal.ring, rank.positions())), proposal.ring);
          std::swap(rings[At(proposal.pp_rank)], proposal.ring);
          ++proposals;
        }
      }
    }
  }
  EXPECT_GT(proposals, 100 * static_cast<std::int64_t>(Seeds(60)));
}

Nanoseconds TimeOf(const RankClocks& rank, const Ring& ring) {
  const std::vector<int> clocks = ClocksOf(ring, rank.positions());
  Nanoseconds time = 0;
  for (int p = 0; p < rank.positions(); ++p) time += rank.times[rank.Cell(p, clocks[At(p)])];
  return time;
}

// At the start, all pp_ranks run at one clock in the middle. Some moves give each pp_rank a faster
// and a slower clock instead. A pp_rank then takes at most as long as before, plus the length of
// one instruction and the tolerance of its period.
TEST(RingMoves, MakeTwoClocksOfOneInTheSameTime) {
  const schedule::InstructionGraph graph = MakeSyntheticJob({.stages = 4, .microbatches = 24});
  const std::vector<RankClocks> ranks = CollectClocks(graph, 84);
  std::vector<Ring> rings;
  for (const RankClocks& rank : ranks) rings.push_back({{0, rank.clocks / 2}});
  RingMoves moves(ranks);
  int on_all = 0;
  for (int move = 0; move < 20'000; ++move) {
    const auto proposals = moves.Propose(rings, 2);
    bool is_mix = proposals.size() == ranks.size();
    for (const RingMoves::Proposal& proposal : proposals) {
      const RankClocks& rank = ranks[At(proposal.pp_rank)];
      const int middle = rank.clocks / 2;
      is_mix = is_mix && proposal.ring.size() == 2 &&
               (proposal.ring[0].clock - middle) * (proposal.ring[1].clock - middle) < 0;
      if (!is_mix) break;
      const auto before = static_cast<double>(TimeOf(rank, rings[At(proposal.pp_rank)]));
      const auto after = static_cast<double>(TimeOf(rank, proposal.ring));
      const double one = before / rank.positions();
      is_mix = after < before * 1.005 + one;
    }
    on_all += is_mix ? 1 : 0;
  }
  EXPECT_GT(on_all, 50);
}

TEST(RingMoves, MixesOfTheLongestSegmentTakeTheSameTime) {
  const schedule::InstructionGraph graph = MakeSyntheticJob({.stages = 4, .microbatches = 24});
  const std::vector<RankClocks> ranks = CollectClocks(graph, 84);
  std::vector<Ring> rings;
  for (const RankClocks& rank : ranks) rings.push_back({{0, 0}, {6, rank.clocks / 2}});
  RingMoves moves(ranks);
  const auto mixes = moves.Mixes(rings, 3);
  // Each pp_rank is the lead, with clocks that are one or two steps lower and higher, in both
  // orders.
  EXPECT_EQ(mixes.size(), ranks.size() * 8);
  for (const std::vector<Ring>& mix : mixes) {
    int changed = 0;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ASSERT_LE(mix[r].size(), 3U);
      if (mix[r] == rings[r]) continue;
      ++changed;
      const auto before = static_cast<double>(TimeOf(ranks[r], rings[r]));
      const auto after = static_cast<double>(TimeOf(ranks[r], mix[r]));
      EXPECT_LT(after, before * 1.005 + before / ranks[r].positions());
    }
    EXPECT_GE(changed, 1);
  }
  EXPECT_TRUE(moves.Mixes(rings, 2).empty());  // No ring has room.
}

}  // namespace
}  // namespace perseus::few_switches
