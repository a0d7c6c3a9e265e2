#include "perseus/tuner/verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "perseus/base/random.h"
#include "perseus/tuner/orders_desk.h"

namespace perseus {
namespace {

// Blocks of one pair, as ordered.
struct Block {
  bool is_planned = false;
  std::int64_t begin = 0;
  std::int64_t version = 0;
};

class Verifier {
 public:
  Verifier(const VerificationOptions& options, JobLogs logs, OrdersDesk desk, Clock& clock)
      : options_(options), logs_(std::move(logs)), desk_(std::move(desk)), clock_(clock) {}

  Result<Verification> Run() {
    auto run = Measure();
    // Also after a failure: nobody asked for the plan to stay.
    const auto back = desk_.HasToGiveBack() ? desk_.GiveBack() : Result<std::int64_t>(0);
    if (!run) return Fail(run);
    if (!back) return Fail(back);
    return Conclude();
  }

 private:
  Result<void> Measure();
  Result<Verification> Conclude();

  const VerificationOptions& options_;
  JobLogs logs_;
  OrdersDesk desk_;
  Clock& clock_;
  std::set<RankName> ranks_;
  std::vector<Block> blocks_;
  Verification result_;
};

Result<void> Verifier::Measure() {
  const auto await_step = [&](std::int64_t step) {
    return logs_.AwaitStep(ranks_, step, options_.patience, options_.should_end, clock_);
  };
  auto alive = logs_.AwaitRanks(options_.ranks, options_.patience, options_.should_end, clock_);
  if (!alive) return Fail(alive);
  ranks_ = *std::move(alive);
  // How long a step takes, from two that ended while we looked.
  if (auto came = await_step(logs_.LastStep(ranks_) + 2); !came) return came;
  logs_.ForgetBefore(logs_.LastCommonStep(ranks_) - 1);
  const double step_time_s = logs_.StepTime(ranks_).value_or(0);
  if (!(step_time_s > 0)) return FailAs(ErrorKind::kSystem, "steps take no time");
  result_.step_time_s = step_time_s;
  auto layout = LayOutBlocks(options_.steps, step_time_s, options_.counter_period_s,
                             options_.comparison.level, options_.orders_take_s);
  if (!layout) return Fail(layout);
  result_.layout = *layout;

  auto plan = desk_.AddPlan(fmt::format("verify-{}", desk_.version() + 1), options_.plan);
  if (!plan) return Fail(plan);
  SplitMix64 coin{options_.seed};
  const std::int64_t ahead = StepsAhead(options_.orders_take_s, step_time_s);
  std::int64_t begin = logs_.LastStep(ranks_) + 1 + ahead;
  for (int pair = 0; pair < layout->pairs; ++pair) {
    const bool planned_first = coin() >> 63 != 0;
    for (const bool is_planned : {planned_first, !planned_first}) {
      blocks_.push_back({is_planned, begin, 0});
      begin += layout->length;
    }
  }
  for (Block& block : blocks_) {
    // The orders before stay readable for long enough: a block is longer than that.
    if (auto came = await_step(block.begin - ahead - 1); !came) return came;
    Orders orders;
    if (block.is_planned) orders.plan = *plan;
    // Long enough for the next block's to be there; should nobody give them, training is not left
    // with these.
    orders.until_step = block.begin + layout->length + ahead;
    const auto version = desk_.Give(std::move(orders), block.begin);
    if (!version) return Fail(version);
    block.version = *version;
    if (options_.progress) {
      options_.progress(static_cast<double>(&block - blocks_.data()) /
                        static_cast<double>(blocks_.size()));
    }
  }
  // What is used of the last block ends where its last step begins.
  return await_step(begin - 1);
}

Result<Verification> Verifier::Conclude() {
  const BlockLayout& layout = result_.layout;
  const auto cost_of = [&](const Block& block) {
    return CostOfSteps(logs_, ranks_, block.begin + layout.front,
                       block.begin + layout.length - layout.back, block.version);
  };
  for (std::size_t i = 0; i + 1 < blocks_.size(); i += 2) {
    const bool planned_first = blocks_[i].is_planned;
    const auto baseline = cost_of(blocks_[planned_first ? i + 1 : i]);
    const auto planned = cost_of(blocks_[planned_first ? i : i + 1]);
    if (!baseline || !planned) {
      ++result_.left_out;
      result_.left_out_reason = (baseline ? planned : baseline).error().message;
      continue;
    }
    result_.pairs.push_back(
        {baseline->time_s, baseline->energy_j, planned->time_s, planned->energy_j});
  }
  if (static_cast<int>(result_.pairs.size()) < LeastPairs(options_.comparison.level)) {
    return Fail("only {} of {} pairs of blocks ran as ordered, and it takes {}: {}",
                result_.pairs.size(), layout.pairs, LeastPairs(options_.comparison.level),
                result_.left_out_reason);
  }
  auto comparison = Compare(result_.pairs, options_.comparison);
  if (!comparison) return Fail(comparison);
  result_.comparison = *std::move(comparison);
  return std::move(result_);
}

}  // namespace

Result<BlockLayout> LayOutBlocks(int steps, double step_time_s, double counter_period_s,
                                 double level, double orders_take_s) {
  const auto steps_for = [&](double seconds) {
    return std::max(1, static_cast<int>(std::ceil(seconds / step_time_s)));
  };
  BlockLayout layout;
  // The switch lands within the first; a window of the counter spans the edge.
  layout.front = steps_for(counter_period_s);
  layout.back = steps_for(counter_period_s);
  // As much again is used, and orders stay in their file until ranks have read them.
  const int shortest = std::max(layout.front + layout.back + 1, steps_for(orders_take_s));
  const int comfortable = std::max(2 * (layout.front + layout.back), shortest);
  const int least_pairs = LeastPairs(level);
  layout.length = std::clamp(steps / (2 * least_pairs), shortest, comfortable);
  layout.pairs = steps / (2 * layout.length);
  if (layout.pairs < least_pairs) {
    return FailAs(
        ErrorKind::kUnreachable,
        "{} steps are too few to tell anything at {:g} % confidence: it takes {} at least, "
        "in {} pairs of blocks of {} (raise --steps)",
        steps, level * 100, 2 * least_pairs * layout.length, least_pairs, layout.length);
  }
  return layout;
}

Result<StepCost> CostOfSteps(const JobLogs& logs, const std::set<RankName>& ranks,
                             std::int64_t begin, std::int64_t end, std::int64_t version) {
  StepCost cost;
  const auto count = static_cast<double>(end - begin);
  for (const RankName& name : ranks) {
    const LoggedRank& rank = logs.ranks().at(name);
    for (std::int64_t number = begin; number < end; ++number) {
      const RanStep* step = rank.Find(number);
      if (step == nullptr) return Fail("rank {} did not record step {}", Name(name), number);
      if (step->version != version) {
        return Fail(
            "rank {} ran step {} under orders {} and not {} (its log has a remark on why, or "
            "it reads the directory too late)",
            Name(name), number, step->version, version);
      }
      if (!step->on_plan) {
        return Fail(
            "rank {} ran step {} in another order than the plan's (is it for this schedule?)",
            Name(name), number);
      }
    }
    const RanStep* last = rank.Find(end);
    if (last == nullptr) return Fail("rank {} did not record step {}", Name(name), end);
    const Nanoseconds from = rank.Find(begin)->begin;
    const auto energy_j = rank.energy.Between(from, last->begin);
    if (!energy_j) {
      return Fail(
          "rank {} recorded no energy in steps {} to {} (can it read its GPU's counter? See "
          "PERSEUS_DEVICES, and perseus doctor)",
          Name(name), begin, end);
    }
    cost.energy_j += *energy_j / count;
    cost.time_s += ToSeconds(last->begin - from) / count / static_cast<double>(ranks.size());
  }
  return cost;
}

Result<Verification> Verify(const VerificationOptions& options, Clock& clock) {
  auto logs = JobLogs::Open(options.job_directory, JobLogs::Job::kIsRunning);
  if (!logs) return Fail(logs);
  auto desk = OrdersDesk::Open(options.job_directory);
  if (!desk) return Fail(desk);
  return Verifier(options, *std::move(logs), *std::move(desk), clock).Run();
}

}  // namespace perseus
