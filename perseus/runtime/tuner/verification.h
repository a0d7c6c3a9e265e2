// A/B verification of a plan in a running job: blocks of baseline steps and blocks of planned
// steps, in pairs with a random order, and their comparison (profiler/comparison.h).
//
//   steps    |A A A A|B B B B|B B B B|A A A A|…    blocks of the same length, in pairs
//             x . . x x . . x x . . x              x: left out, because clocks switch or a
//                                                  window of the counter spans the edge
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

// How steps are divided into blocks.
struct BlockLayout {
  int length = 0;  // Of a block, in steps.
  int front = 0;   // How many of its first steps are left out.
  int back = 0;    // How many of its last steps are left out.
  int pairs = 0;
  int steps() const { return 2 * pairs * length; }
};
// As many pairs as the steps allow, at least LeastPairs(level). Fails (kUnreachable), with the
// necessary number of steps, if they are too few.
Result<BlockLayout> LayOutBlocks(int steps, double step_time_s, double counter_period_s,
                                 double level,
                                 double assignment_delay_s = protocol::kAssignmentDelaySeconds);

struct VerificationOptions {
  std::filesystem::path job_directory;
  std::string plan;                  // The text of the plan file.
  std::set<protocol::RankId> ranks;  // The job has at least these.
  int steps = 0;
  double counter_period_s = 0.1;
  double assignment_delay_s = protocol::kAssignmentDelaySeconds;  // Until every rank has read one.
  profiler::ComparisonOptions comparison;
  std::uint64_t seed = 1;  // Of the random order.
  Nanoseconds timeout = 60'000'000'000;
  ShouldEnd should_end = [] { return false; };
  std::function<void(double)> progress;  // Receives 0 to 1. May be empty.
};

struct Verification {
  profiler::Comparison comparison;
  std::vector<profiler::BlockPair> pairs;  // Sums over all ranks, per step.
  BlockLayout layout;
  double step_time_s = 0;
  int left_out = 0;  // Pairs in which a rank did not follow the assignment.
  std::string left_out_reason;
};

// Always puts the previous assignment back into force. It takes the steps, and the steps until
// ranks have read an assignment. Fails (kSystem) if ranks are missing or the job ends. Fails
// (kInput) if ranks record no energy or do not follow the plan.
Result<Verification> Verify(const VerificationOptions& options, Clock& clock);

}  // namespace perseus::tuner
