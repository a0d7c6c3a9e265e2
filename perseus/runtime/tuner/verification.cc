#include "perseus/runtime/tuner/verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "perseus/base/random.h"
#include "perseus/runtime/protocol/assignment_writer.h"
#include "perseus/runtime/tuner/conductor.h"
#include "perseus/runtime/tuner/step_costs.h"

namespace perseus::tuner {
namespace {

constexpr std::int64_t kStepsToEstimateTime = 5;
// The time between reads of the counter, which is also the error of its edges.
constexpr double kReadPeriodSeconds = 0.01;

// One block, with the assignment that it was given.
struct Block {
  bool is_planned = false;
  std::int64_t begin = 0;
  std::int64_t version = 0;
};

class Verifier {
 public:
  Verifier(const VerificationOptions& options, JobLogs logs, protocol::AssignmentWriter writer,
           Clock& clock)
      : options_(options), logs_(std::move(logs)), writer_(std::move(writer)), clock_(clock) {}

  Result<Verification> Run() {
    auto run = Measure();
    // Restores after a failure, too: `verify` never leaves the plan in force.
    const auto back = writer_.HasToRestore() ? writer_.Restore() : Result<std::int64_t>(0);
    if (!run) return Fail(run);
    if (!back) return Fail(back);
    return Conclude();
  }

 private:
  Result<void> Measure();
  double LeastStepTime(std::int64_t from) const;
  Result<StepCost> CostOf(const Block& block) const;
  Result<Verification> Conclude();

  const VerificationOptions& options_;
  JobLogs logs_;
  protocol::AssignmentWriter writer_;
  Clock& clock_;
  std::set<protocol::RankId> ranks_;
  std::vector<Block> blocks_;
  Verification result_;
};

Result<void> Verifier::Measure() {
  const auto await_step = [&](std::int64_t step) {
    return logs_.AwaitStep(ranks_, step, options_.timeout, options_.should_end, clock_);
  };
  PERSEUS_ASSIGN_OR_RETURN(
      auto alive, logs_.AwaitRanks(options_.ranks, options_.timeout, options_.should_end, clock_));
  ranks_ = std::move(alive);
  for (const protocol::RankId& name : ranks_) {
    if (auto may = CheckMaySetClocks(logs_.ranks().at(name).header); !may) return may;
  }
  // The time of a step: the least of a few steps. One of them may contain a checkpoint, and a time
  // that is too long would make the edges of blocks too short.
  const std::int64_t looked_from = logs_.LastStep(ranks_);
  if (auto came = await_step(looked_from + kStepsToEstimateTime); !came) return came;
  const double step_time_s = LeastStepTime(looked_from);
  logs_.ForgetBefore(logs_.LastCommonStep(ranks_) - 1);
  if (!(step_time_s > 0)) return FailAs(ErrorKind::kSystem, "steps take no time");
  result_.step_time_s = step_time_s;
  PERSEUS_ASSIGN_OR_RETURN(auto layout,
                           LayOutBlocks(options_.steps, step_time_s, options_.counter_period_s,
                                        options_.comparison.level, options_.assignment_delay_s));
  result_.layout = layout;

  PERSEUS_ASSIGN_OR_RETURN(
      auto plan, writer_.AddPlan(fmt::format("verify-{}", writer_.version() + 1), options_.plan));
  SplitMix64 coin{options_.seed};
  const std::int64_t ahead = protocol::StepsAhead(options_.assignment_delay_s, step_time_s);
  std::int64_t begin = logs_.LastStep(ranks_) + 1 + ahead;
  for (int pair = 0; pair < layout.pairs; ++pair) {
    const bool planned_first = coin() >> 63 != 0;
    for (const bool is_planned : {planned_first, !planned_first}) {
      blocks_.push_back({is_planned, begin, 0});
      begin += layout.length;
    }
  }
  for (Block& block : blocks_) {
    // A block is long enough for ranks to read the previous assignment before it is replaced.
    if (auto came = await_step(block.begin - ahead - 1); !came) return came;
    protocol::Assignment assignment;
    if (block.is_planned) assignment.plan = plan;
    // Lasts until the next block's assignment is there. If this process dies, training returns to
    // the lasting assignment.
    assignment.until_step = block.begin + layout.length + ahead;
    PERSEUS_ASSIGN_OR_RETURN(const auto version, writer_.Write(std::move(assignment), block.begin));
    block.version = version;
    if (options_.progress) {
      options_.progress(static_cast<double>(&block - blocks_.data()) /
                        static_cast<double>(blocks_.size()));
    }
  }
  // The used part of the last block ends where its last step begins.
  return await_step(begin - 1);
}

double Verifier::LeastStepTime(std::int64_t from) const {
  const LoggedRank& any = logs_.ranks().at(*ranks_.begin());
  double least_s = 0;
  for (std::int64_t number = from; number < any.last_step(); ++number) {
    const protocol::RanStep* step = any.Find(number);
    const protocol::RanStep* next = any.Find(number + 1);
    if (step == nullptr || next == nullptr) continue;
    const double time_s = ToSeconds(next->begin - step->begin);
    if (least_s == 0 || time_s < least_s) least_s = time_s;
  }
  return least_s;
}

// The cost of the middle of a block. At each end, as much time is left out as a window of the
// counter may reach across. Steps may be shorter now than when the blocks were laid out.
Result<StepCost> Verifier::CostOf(const Block& block) const {
  const BlockLayout& layout = result_.layout;
  const Nanoseconds margin = ToNanoseconds(options_.counter_period_s + kReadPeriodSeconds);
  std::int64_t first = block.begin + layout.front;
  std::int64_t end = block.begin + layout.length - layout.back;
  for (const protocol::RankId& name : ranks_) {
    const LoggedRank& rank = logs_.ranks().at(name);
    const auto begin_of = [&](std::int64_t step) {
      const protocol::RanStep* found = rank.Find(step);
      return found == nullptr ? std::optional<Nanoseconds>() : found->begin;
    };
    const auto from = begin_of(block.begin);
    const protocol::RanStep* last = rank.Find(block.begin + layout.length - 1);
    if (!from || last == nullptr) continue;  // CostOfSteps reports a missing step if it matters.
    while (first < end && begin_of(first).value_or(*from + margin) - *from < margin) ++first;
    while (first < end && last->end - begin_of(end).value_or(last->end - margin) < margin) --end;
  }
  if (first >= end) {
    return Fail(
        "steps {} to {} were too short for the period of the energy counter (make steps "
        "longer, with more microbatches)",
        block.begin, block.begin + layout.length - 1);
  }
  return CostOfSteps(logs_, ranks_, {first, end, block.version});
}

Result<Verification> Verifier::Conclude() {
  const BlockLayout& layout = result_.layout;
  for (std::size_t i = 0; i + 1 < blocks_.size(); i += 2) {
    const bool planned_first = blocks_[i].is_planned;
    const auto baseline = CostOf(blocks_[planned_first ? i + 1 : i]);
    const auto planned = CostOf(blocks_[planned_first ? i : i + 1]);
    if (!baseline || !planned) {
      ++result_.left_out;
      result_.left_out_reason = (baseline ? planned : baseline).error().message;
      continue;
    }
    result_.pairs.push_back(
        {baseline->time_s, baseline->energy_j, planned->time_s, planned->energy_j});
  }
  if (static_cast<int>(result_.pairs.size()) < profiler::LeastPairs(options_.comparison.level)) {
    return Fail("only {} of {} pairs of blocks ran with their assignments, but {} are needed: {}",
                result_.pairs.size(), layout.pairs, profiler::LeastPairs(options_.comparison.level),
                result_.left_out_reason);
  }
  PERSEUS_ASSIGN_OR_RETURN(auto comparison, profiler::Compare(result_.pairs, options_.comparison));
  result_.comparison = std::move(comparison);
  return std::move(result_);
}

}  // namespace

Result<BlockLayout> LayOutBlocks(int steps, double step_time_s, double counter_period_s,
                                 double level, double assignment_delay_s) {
  const auto steps_for = [&](double seconds) {
    return std::max(1, static_cast<int>(std::ceil(seconds / step_time_s)));
  };
  BlockLayout layout;
  // The clocks change within the first of these steps, and a window of the counter spans the edge.
  layout.front = steps_for(counter_period_s + kReadPeriodSeconds);
  layout.back = layout.front;
  // A block has at least one used step, and lasts until ranks have read its assignment.
  const int shortest = std::max(layout.front + layout.back + 1, steps_for(assignment_delay_s));
  const int comfortable = std::max(2 * (layout.front + layout.back), shortest);
  const int least_pairs = profiler::LeastPairs(level);
  layout.length = std::clamp(steps / (2 * least_pairs), shortest, comfortable);
  layout.pairs = steps / (2 * layout.length);
  if (layout.pairs < least_pairs) {
    return FailAs(ErrorKind::kUnreachable,
                  "{} steps are too few for a result at {:g} % confidence: at least {} are needed, "
                  "in {} pairs of blocks of {} (raise --steps)",
                  steps, level * 100, 2 * least_pairs * layout.length, least_pairs, layout.length);
  }
  return layout;
}

Result<Verification> Verify(const VerificationOptions& options, Clock& clock) {
  PERSEUS_ASSIGN_OR_RETURN(auto logs,
                           JobLogs::Open(options.job_directory, JobLogs::Job::kIsRunning));
  PERSEUS_ASSIGN_OR_RETURN(auto writer, protocol::AssignmentWriter::Open(options.job_directory));
  return Verifier(options, std::move(logs), std::move(writer), clock).Run();
}

}  // namespace perseus::tuner
