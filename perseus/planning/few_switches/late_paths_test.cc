// Paths that reject moves.
#include "perseus/planning/few_switches/late_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>

#include "perseus/planning/few_switches/timeline.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::few_switches {
namespace {

using ::testing::Optional;

constexpr Nanoseconds kStall = 700 * kMicrosecond;

// The clocks of a random job with a stall after each change, and a path that a late move has found.
class LatePathsTest : public ::testing::Test {
 protected:
  void Begin(std::uint64_t seed) {
    random_.seed(seed);
    graph_ = RandomJob({.instructions = 12 + static_cast<int>(seed % 40)}, seed);
    ranks_ = CollectClocks(graph_, 0);
    clocks_ = RandomClocks();
    std::vector<Nanoseconds> durations;
    for (std::size_t i = 0; i < graph_.instructions.size(); ++i) {
      durations.push_back(graph_.options_of(static_cast<int>(i)).options.front().time);
    }
    for (const Timeline::Change& change : ChangesTo(clocks_)) {
      durations[At(change.instruction)] = change.duration;
    }
    timeline_.emplace(graph_);
    timeline_->Reset(durations);
  }

  using Clocks = std::vector<std::vector<int>>;  // [pp_rank][position]

  Clocks RandomClocks() {
    Clocks clocks;
    for (const RankClocks& rank : ranks_) {
      clocks.emplace_back();
      for (int p = 0; p < rank.positions(); ++p) {
        const bool stays = p > 0 && random_() % 3 != 0;
        clocks.back().push_back(stays ? clocks.back().back()
                                      : static_cast<int>(random_() % At(rank.clocks)));
      }
    }
    return clocks;
  }

  static bool Pays(const std::vector<int>& clocks, std::size_t p) {
    return clocks[p] != (p > 0 ? clocks[p - 1] : clocks.back());
  }

  std::vector<Timeline::Change> ChangesTo(const Clocks& clocks) const {
    std::vector<Timeline::Change> changes;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t p = 0; p < clocks[r].size(); ++p) {
        const Nanoseconds stall = Pays(clocks[r], p) ? kStall : 0;
        const std::size_t cell = ranks_[r].Cell(static_cast<int>(p), clocks[r][p]);
        changes.push_back({ranks_[r].instructions[p], ranks_[r].times[cell] + stall, clocks[r][p]});
      }
    }
    return changes;
  }

  // Returns one stretch for each position whose duration may change.
  std::vector<Stretch> StretchesTo(const Clocks& clocks) const {
    std::vector<Stretch> stretches;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t p = 0; p < clocks[r].size(); ++p) {
        const auto position = static_cast<int>(p);
        stretches.push_back({static_cast<int>(r), position, position + 1, clocks[r][p],
                             clocks_[r][p], Pays(clocks[r], p), Pays(clocks_[r], p)});
      }
    }
    return stretches;
  }

  std::mt19937_64 random_;
  schedule::InstructionGraph graph_;
  std::vector<RankClocks> ranks_;
  Clocks clocks_;
  std::optional<Timeline> timeline_;
};

TEST_F(LatePathsTest, NeverExceedTheTime) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 0; seed < Seeds(100); ++seed) {
    SCOPED_TRACE(seed);
    Begin(seed);
    LatePaths paths(ranks_, kStall);
    for (int step = 0; step < 40; ++step) {
      const Clocks next = RandomClocks();
      const std::vector<Timeline::Change> changes = ChangesTo(next);
      const std::vector<Stretch> stretches = StretchesTo(next);
      const Nanoseconds time = timeline_->Try(changes);
      timeline_->Undo();
      const Nanoseconds limit = timeline_->time() * static_cast<Nanoseconds>(90 + step) / 100;
      const std::optional<Nanoseconds> excess = paths.FindLate(stretches, limit);
      if (excess) {
        ++found;
        EXPECT_GE(time, limit + *excess);
      }
      if (time > limit) {
        EXPECT_GT(timeline_->Try(changes, limit), limit);
        const std::vector<int> path = timeline_->TraceLatePath();
        const Nanoseconds length = timeline_->LengthOf(path);
        EXPECT_GT(length, limit);
        EXPECT_LE(length, time);
        timeline_->Undo();
        LatePaths alone(ranks_, kStall);
        alone.Add(path, timeline_->LengthOf(path));
        EXPECT_THAT(alone.FindLate(stretches, limit), Optional(length - limit));
        paths.Add(path, timeline_->LengthOf(path));
      }
      if (step % 3 != 0) continue;
      timeline_->Try(changes);
      timeline_->Keep();
      paths.Apply(stretches);
      clocks_ = next;
    }
  }
  EXPECT_GT(found, 5 * Seeds(100));
}

// In a general graph, each instruction may have its own options.
TEST_F(LatePathsTest, AreNotWorthwhileWithManyRows) {
  Begin(1);
  EXPECT_TRUE(LatePaths(ranks_, kStall).are_worthwhile());
  ranks_.back().row_count = 1'000;
  EXPECT_FALSE(LatePaths(ranks_, kStall).are_worthwhile());
}

TEST_F(LatePathsTest, FindASpeedupOfASegment) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 0; seed < Seeds(100); ++seed) {
    SCOPED_TRACE(seed);
    Begin(seed);
    const Nanoseconds limit = timeline_->time() - 1'000 * kMicrosecond;
    const std::vector<Timeline::Change> none = {ChangesTo(clocks_).front()};
    ASSERT_GT(timeline_->Try(none, limit), limit);
    const std::vector<int> path = timeline_->TraceLatePath();
    timeline_->Undo();
    LatePaths paths(ranks_, 0);
    paths.Add(path, timeline_->LengthOf(path));
    const std::optional<Nanoseconds> excess = paths.FindLate({}, limit);
    ASSERT_TRUE(excess);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (clocks_[r].empty()) continue;
      const Ring ring = MakeRing(clocks_[r]);
      const int positions = ranks_[r].positions();
      for (std::size_t segment = 0; segment < ring.size(); ++segment) {
        const auto speedup = paths.FindSpeedup(*excess, 1e9, static_cast<int>(r), ring, segment);
        const auto stretches_at = [&](int clock) {
          std::vector<Stretch> stretches;
          for (int i = 0; i < LengthOf(ring, segment, positions); ++i) {
            const int p = Wrap(ring[segment].start + i, positions);
            stretches.push_back(
                {static_cast<int>(r), p, p + 1, clock, ring[segment].clock, false, false});
          }
          return stretches;
        };
        if (!speedup) continue;
        ++found;
        EXPECT_LT(speedup->clock, ring[segment].clock);
        double energy_j = 0;
        for (const Stretch& stretch : stretches_at(speedup->clock)) {
          const std::size_t cell = ranks_[r].Cell(stretch.begin, stretch.clock);
          EXPECT_NE(ranks_[r].options[cell], RankClocks::kUnmeasured);
          energy_j += ranks_[r].energies_j[cell] -
                      ranks_[r].energies_j[ranks_[r].Cell(stretch.begin, stretch.old_clock)];
        }
        EXPECT_NEAR(speedup->energy_j, energy_j, 1e-9);
        EXPECT_FALSE(paths.FindLate(stretches_at(speedup->clock), limit));
        // No nearer clock shortens the path enough, and the cost must be below the limit.
        for (int clock = speedup->clock + 1; clock < ring[segment].clock; ++clock) {
          const bool is_measured =
              std::ranges::all_of(stretches_at(clock), [&](const Stretch& stretch) {
                return ranks_[r].options[ranks_[r].Cell(stretch.begin, clock)] !=
                       RankClocks::kUnmeasured;
              });
          EXPECT_TRUE(!is_measured || paths.FindLate(stretches_at(clock), limit));
        }
        EXPECT_FALSE(
            paths.FindSpeedup(*excess, energy_j - 1e-6, static_cast<int>(r), ring, segment));
      }
    }
  }
  EXPECT_GT(found, Seeds(100) / 4);
}

}  // namespace
}  // namespace perseus::few_switches
