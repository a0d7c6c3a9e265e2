// When the plans of a job have to follow a change of its pace.
//
// `tune` finds the slowest pipelines once (paced_plans.h). Later, heat, another node or a repair
// changes the speed of a pipeline. Then other plans are better for all others: they may end later,
// or they have to end earlier. This rule finds the change from the time of each rank's own
// instructions, relative to the plan that it follows. Waiting for other ranks is no part of it.
//
// If plans are too slow, the job is slower than it has to be. If they are too fast, it only saves
// less than it could. So the rule is quick in one direction, and slow in the other:
//
//   the slowest pipelines became faster    the others delay the job by kLate (0.1 % of a step) and
//                                          by z standard errors, in the last kQuick (5) steps
//   another one ends later than its plan   the same, in the last 16 or kLong (32) steps
//   permits
//   the slowest pipelines became slower,   kSlack (0.5 %) and z standard errors, in the last 16
//   or another one faster                  steps
//
// The value of a window of steps is its median. So a checkpoint or a late thread does not count,
// and a sudden change shows as soon as more than half of the window has it: after 3 steps of the
// quick window, and after 9 steps of the others. New plans begin a few steps later, when all ranks
// have read them. So others are slower within 50 steps after a rank became slow, and as fast as
// before within 20 steps after it has recovered. Small changes need the long window: with a noise
// of 0.1 %, 5 steps show 0.5 %, and 32 steps show 0.3 %.
//
// Chance. The standard error of a step comes from the differences between neighboring steps, in the
// last kPast (128) of them. So it does not contain the change itself. All ranks are tested in each
// step, so z = sqrt(2 ln(100,000 n)) for n ranks: 5.2 for 8 ranks, 6.1 for 1,000. Then chance
// changes the plans less than once in thousands of steps, although the standard error itself is
// only known to a tenth.
//
// Rate. A window has only steps with the plans in force, so they stay in force for at least 5
// steps. If a pipeline is slow again and again, the others would follow it each time. So if the
// pace gets faster within kFlapping (100) steps after it got slower, the window of 16 steps
// doubles, to 64 at most. After kCalm (500) steps without this, it has 16 steps again.
//
// The answer. The ratio of each rank is its time / the time of its plan: the median of the newer
// half of the window, in which a sudden change is complete. A ratio that differs from 1 by less
// than two standard errors counts as 1.
//
// Alternatives. One threshold for both directions: 0.1 % changes plans too often, and 1 % leaves
// the job slower by 1 %. CUSUM, as in gpu_measurements.h: it finds a change as early, but does not
// say which steps have it. The server's detector (straggler_detector.h): it compares with the
// median pipeline, from 2 % on, and does not find that others delay the job.
//
// Limits. A rank that is slow outside of its instructions (its input) is not found. A pipeline
// whose stages change differently counts as the stage that changed most; the new plans are made
// from the ratios of all stages.
//
// Not thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace perseus::tuner {

// The GPUs that share the work of a pp_rank are in step, so they count as one.
struct PacedRank {
  int dp_rank = 0;
  int pp_rank = 0;
  friend auto operator<=>(const PacedRank&, const PacedRank&) = default;
};
// The time of a rank's instructions / the time that its plan has for them.
using RankRatios = std::map<PacedRank, double>;

struct RankChange {
  double ratio = 1;
  double error = 0;  // The relative standard error. 0: the ratio is 1.
};
using RankChanges = std::map<PacedRank, RankChange>;

// What the plan of a pipeline says.
struct PlannedPace {
  double time_s = 0;       // The time of its step.
  double allowed_s = 0;    // The time with which it delays no other. At least `time_s`.
  bool sets_pace = false;  // Whether it follows the plan of the slowest pipelines.
};

class PaceRule {
 public:
  static constexpr std::size_t kQuick = 5;
  static constexpr std::size_t kLong = 32;
  static constexpr std::size_t kShortestToSlow = 16;
  static constexpr std::size_t kLongestToSlow = 64;
  static constexpr std::size_t kPast = 128;
  static constexpr std::size_t kLeastPast = 8;
  static constexpr double kLate = 0.001;
  static constexpr double kSlack = 0.005;
  static constexpr std::int64_t kFlapping = 100;
  static constexpr std::int64_t kCalm = 500;
  // A rank without a step for this many steps has left the job.
  static constexpr std::int64_t kGone = 8;

  // Plans are in force, by dp_rank. Forgets the steps before, but not their noise.
  void Begin(std::map<int, PlannedPace> plans);
  // Adds a step of the ranks that ran it.
  void Add(std::int64_t step, const RankRatios& ratios);
  // Returns the changes of all ranks if other plans are better with certainty. The caller then
  // makes these plans and calls Begin(), also if they are the same as before.
  std::optional<RankChanges> FindChanges() const;

 private:
  struct Rank {
    std::deque<double> logarithms;  // The latest ratios with these plans.
    std::deque<double> jumps;       // Between neighboring steps.
    std::int64_t last_step = -1;
  };
  // The median of a window, and its standard error. Logarithms.
  struct Level {
    double value = 0;
    double error = 0;
  };
  // The ranks of a pipeline that changed most in both directions.
  struct Extremes {
    Level least;
    Level most;
  };
  using Levels = std::map<int, Extremes>;  // By dp_rank.

  static std::optional<Level> LevelOf(const Rank& rank, std::size_t window);
  Levels LevelsOf(std::size_t window) const;
  double StandardErrors() const;
  bool HasLostPace() const;
  bool IsLate(const Levels& levels, bool counts_own) const;
  bool HasSlack(const Levels& levels) const;
  RankChanges ChangesOf(std::size_t window) const;

  std::map<int, PlannedPace> plans_;
  double pace_s_ = 0;  // The time of the slowest plan.
  std::map<PacedRank, Rank> ranks_;
  std::int64_t step_ = -1;  // The newest.
  std::size_t to_slow_ = kShortestToSlow;
  std::optional<std::int64_t> slowed_at_;
  std::optional<std::int64_t> flapped_at_;
};

}  // namespace perseus::tuner
