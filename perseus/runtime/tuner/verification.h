// A/B verification of a plan in a running job: baseline steps and planned steps in turn, in blocks,
// with pairs of blocks in random order, and what they show (profiler/comparison.h).
//
//   steps    |A A A A|B B B B|B B B B|A A A A|…        blocks of the same length, in pairs
//             x . . x x . . x x . . x                  x: left out (clocks switch; the window of
//             the
//                                                      energy counter)
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/profiler/comparison.h"
#include "perseus/runtime/protocol/assignment_writer.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

// Which steps are which.
struct BlockLayout {
  int length = 0;  // Steps of a block,
  int front = 0;   // the first and last of which are left out.
  int back = 0;
  int pairs = 0;
  int steps() const { return 2 * pairs * length; }
};
// As many pairs as the steps allow, at least LeastPairs(level). Fails (kUnreachable) with how many
// steps it takes.
Result<BlockLayout> LayOutBlocks(int steps, double step_time_s, double counter_period_s,
                                 double level,
                                 double assignment_delay_s = protocol::kAssignmentDelaySeconds);

struct VerificationOptions {
  std::filesystem::path job_directory;
  std::string plan;                  // The plan file's text.
  std::set<protocol::RankId> ranks;  // That the job has at least.
  int steps = 0;
  double counter_period_s = 0.1;
  double assignment_delay_s = protocol::kAssignmentDelaySeconds;  // Until every rank has read them.
  profiler::ComparisonOptions comparison;
  std::uint64_t seed = 1;  // Of the coin.
  Nanoseconds timeout = 60'000'000'000;
  ShouldEnd should_end = [] { return false; };
  std::function<void(double)> progress;  // From 0 to 1; may be empty.
};

struct Verification {
  profiler::Comparison comparison;
  std::vector<profiler::BlockPair> pairs;  // Sums over all ranks, per step.
  BlockLayout layout;
  double step_time_s = 0;
  int left_out = 0;  // Pairs in which a rank did not run what was ordered.
  std::string left_out_reason;
};

// Puts the previous assignment back into force, whatever happens. Takes the steps, and the steps
// until ranks have read an assignment. Fails (kSystem) if ranks are missing or the job ends,
// (kInput) if ranks record no energy or do not follow the plan.
Result<Verification> Verify(const VerificationOptions& options, Clock& clock);

}  // namespace perseus::tuner
