// A/B verification of a plan in a running job. The job runs blocks of baseline steps and blocks of
// planned steps, in pairs with a random order. Then the blocks are compared
// (profiler/comparison.h).
//
//   steps    |A A A A|B B B B|B B B B|A A A A|…    blocks of a pair have the same length
//   energy    x . . x x . . x x . . x x . . x      x: left out, because clocks switch or a window
//   time      x . . . x . . . x . . . x . . .         of the counter spans the edge
//
// All requested steps belong to blocks, except one step if their number is odd. If the run ends
// early (the job ends, or the user ends it), the result comes from the pairs that ran. A pair whose
// second block is unfinished counts, too, because the order of its blocks was chosen at random
// before they ran.
//
// Before the first block, Verify() reports how many steps a decision needs. This number comes from
// the noise of the steps so far. After half of the blocks, Verify() reports the number again, from
// the differences of the pairs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/profiler/comparison.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

// How steps are divided into blocks.
struct BlockLayout {
  int length = 0;  // The length of the shortest block, in steps.
  int front = 0;   // The number of steps at the front of a block that are left out.
  int back = 0;    // The number of steps at the end of a block that are left out of its energy.
  int pairs = 0;
  // The number of steps that all baseline blocks together have beyond `length` for each.
  int extra = 0;
  int LengthOf(int pair) const { return length + extra / pairs + (pair < extra % pairs ? 1 : 0); }
  int steps() const { return 2 * (pairs * length + extra); }
};
// Returns a layout with as many pairs as the steps allow, at least LeastPairs(level). If there are
// too few steps, fails (kUnreachable) with the necessary number of steps.
Result<BlockLayout> LayOutBlocks(int steps, double step_time_s, double counter_period_s,
                                 double level,
                                 double assignment_delay_s = protocol::kAssignmentDelaySeconds);

// The standard deviation of the time of a step, relative to the median time. The computation
// compares each step with the next step, so drift and single stalls do not count. 0 if there are
// fewer than 3 times.
double StepNoise(std::span<const double> step_times_s);
// The same for several runs of neighboring steps.
double StepNoise(std::span<const std::vector<double>> runs_s);

// The number of steps that a decision needs. With this number, four of five runs show that a plan
// without a slowdown is slower by less than the tolerance, if each step has this noise. At least as
// many as LayOutBlocks() needs. Requires a tolerance above 0.
double StepsToDecide(double step_noise, double step_time_s, double counter_period_s,
                     const profiler::ComparisonOptions& comparison,
                     double assignment_delay_s = protocol::kAssignmentDelaySeconds);

struct VerificationOptions {
  std::filesystem::path job_directory;
  std::string plan;                  // The text of the plan file.
  std::map<int, std::string> plans;  // The same for pipelines with plans of their own, by dp_rank.
  std::set<protocol::RankId> ranks;  // The job has at least these ranks.
  int steps = 0;
  double counter_period_s = 0.1;
  // The time until every rank has read an assignment.
  double assignment_delay_s = protocol::kAssignmentDelaySeconds;
  profiler::ComparisonOptions comparison;
  std::uint64_t seed = 1;  // The seed of the random order.
  Nanoseconds timeout = 60'000'000'000;
  ShouldEnd should_end = [] { return false; };
  std::function<void(double)> progress;  // Receives the progress, from 0 to 1. May be empty.
  // Receives sentences about the expected number of steps. May be empty.
  std::function<void(std::string_view)> say;
};

// The first and the last step of a block.
struct BlockSteps {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// The block of an outlying pair that differs most from the other blocks of its kind.
struct OutlyingBlock {
  std::size_t pair = 0;
  bool is_planned = false;
  BlockSteps steps;
  profiler::Comparison::Outlier::Quantity quantity = profiler::Comparison::Outlier::Quantity::kTime;
  double change = 0;   // Relative to the median of the blocks of its kind.
  double spreads = 0;  // The distance of the pair from the other pairs, in spreads.
  std::int64_t longest_step = 0;
  double longest_step_s = 0;
};

struct Verification {
  profiler::Comparison comparison;
  // The values of a pair are sums over all ranks, for each step.
  std::vector<profiler::BlockPair> pairs;
  struct PairSteps {
    BlockSteps baseline;
    BlockSteps planned;
  };
  std::vector<PairSteps> steps;  // The steps of `pairs`.
  // How much the times of steps vary (StepNoise), in the blocks without and with the plan.
  double baseline_step_noise = 0;
  double planned_step_noise = 0;
  std::vector<OutlyingBlock> outliers;  // At most one of each pair.
  std::string ended_early;  // The reason why not all blocks ran. Empty if all blocks ran.
  BlockLayout layout;
  double step_time_s = 0;
  int left_out = 0;  // The number of pairs in which a rank did not follow the assignment.
  std::string left_out_reason;
};

// Verifies the plan. At the end, always activates the previous assignment again. Takes `steps`
// steps, and the steps until ranks have read an assignment. Fails (kSystem) if ranks are missing.
// Also fails (kSystem) if the job ends or the user stops it before there are enough pairs. Fails
// (kInput) if ranks record no energy or do not follow the plan.
Result<Verification> Verify(const VerificationOptions& options, Clock& clock);

// Compares two runs of a job, from their rank logs: for example, a run with 1F1B and a run with a
// searched schedule. Two runs are necessary because a running job does not change its schedule.
//
// The last steps of both runs are cut into blocks of equal length. Block k of one run is paired
// with block k of the other run (profiler/comparison.h). The two runs happened at different times,
// so the order of the blocks is not random as in Verify(). So the interval covers the noise within
// the runs. It does not cover what changed between the runs: the temperature, the nodes, the
// network. To see these changes, alternate runs on the same nodes.

struct RunsToCompare {
  // The job directories of the two runs. Either job may still run.
  std::filesystem::path directory;
  std::filesystem::path against;  // The baseline.
  int steps = 0;                  // At most this many steps of each run.
  double counter_period_s = 0.1;
  profiler::ComparisonOptions comparison;
};

struct RunComparison {
  profiler::Comparison comparison;
  // The values of a pair are sums over all ranks, for each step.
  std::vector<profiler::BlockPair> pairs;
  int block_length = 0;  // In steps.
  // The first step that counts in each run.
  std::int64_t first_step = 0;
  std::int64_t first_step_against = 0;
};

// Compares the last steps that all ranks ran with one assignment. Fails (kInput) if a directory has
// no logs, if the runs have different ranks, if a rank has no energy, or if there are too few steps
// for LeastPairs(level) blocks. A block is as long as three periods of the energy counter.
Result<RunComparison> CompareRuns(const RunsToCompare& runs);

}  // namespace perseus::tuner
