#include "perseus/runtime/tuner/verification.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "perseus/base/random.h"
#include "perseus/base/statistics.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/tuner/conductor.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "perseus/runtime/tuner/step_costs.h"

namespace perseus::tuner {
namespace {

constexpr std::int64_t kStepsToEstimateTime = 5;
// The time between reads of the counter. It is also the error of an edge of a window.
constexpr double kReadPeriodSeconds = 0.01;

// One block, with the assignment that it was given.
struct Block {
  bool is_planned = false;
  std::int64_t begin = 0;
  std::int64_t end = 0;  // The step after the last one.
  std::int64_t version = 0;
};

// The number of steps from before the run that show how much the time of steps varies.
constexpr std::int64_t kEarlierSteps = 64;

double MedianOrZero(std::vector<double> values) {
  return values.empty() ? 0 : Median(std::move(values));
}

// Returns the standard deviation of the difference of two blocks. The steps of the blocks have this
// noise.
double PairDeviation(double step_noise, double counted_steps) {
  return step_noise * std::sqrt(2 / counted_steps);
}

// A block has at least `shortest` steps. Blocks of more than `comfortable` steps bring no benefit.
struct BlockLengths {
  int edge = 0;  // The number of steps to leave out at an edge.
  int shortest = 0;
  int comfortable = 0;
};
BlockLengths LengthsFor(double step_time_s, double counter_period_s, double assignment_delay_s) {
  const auto steps_for = [&](double seconds) {
    return std::max(1, static_cast<int>(std::ceil(seconds / step_time_s)));
  };
  BlockLengths lengths;
  // The clocks change within the first of these steps, and a window of the counter spans the edge.
  lengths.edge = steps_for(counter_period_s + kReadPeriodSeconds);
  // A block has at least one used step, and lasts until ranks have read its assignment.
  lengths.shortest = std::max(2 * lengths.edge + 1, steps_for(assignment_delay_s));
  lengths.comfortable = std::max(4 * lengths.edge, lengths.shortest);
  return lengths;
}

class Verifier {
 public:
  Verifier(const VerificationOptions& options, JobLogs logs, protocol::AssignmentWriter writer,
           Clock& clock)
      : options_(options), logs_(std::move(logs)), writer_(std::move(writer)), clock_(clock) {}

  Result<Verification> Run() {
    auto run = Measure();
    // Also restores after a failure: `verify` never leaves the plan active.
    const auto back = writer_.HasToRestore() ? writer_.Restore() : Result<std::int64_t>(0);
    if (!run) {
      result_.ended_early = run.error().Message();
      if (!HasEnoughPairs()) return Fail(run);
    }
    if (!back) return Fail(back);
    return Conclude();
  }

 private:
  Result<void> Measure() {
    PERSEUS_ASSIGN_OR_RETURN(
        ranks_, logs_.AwaitRanks(options_.ranks, options_.timeout, options_.should_end, clock_));
    for (const protocol::RankId& name : ranks_) {
      if (auto may = CheckMaySetClocks(logs_.ranks().at(name).header); !may) return may;
    }
    const std::int64_t looked_from = logs_.LastStep(ranks_);
    PERSEUS_RETURN_IF_ERROR(AwaitStep(looked_from + kStepsToEstimateTime));
    // The time of a step is the least of a few steps. One of these steps may contain a checkpoint.
    // A time that is too long would make the edges of blocks too short.
    const std::vector<double> latest = StepTimes(looked_from);
    const double step_time_s = latest.empty() ? 0 : *std::ranges::min_element(latest);
    if (!(step_time_s > 0)) return FailAs(ErrorKind::kSystem, "steps take no time");
    result_.step_time_s = step_time_s;
    PERSEUS_ASSIGN_OR_RETURN(result_.layout,
                             LayOutBlocks(options_.steps, step_time_s, options_.counter_period_s,
                                          options_.comparison.level, options_.assignment_delay_s));
    SayBefore(StepTimes(0));
    logs_.ForgetBefore(logs_.LastCommonStep(ranks_) - 1);
    return RunBlocks(protocol::StepsAhead(options_.assignment_delay_s, step_time_s));
  }

  Result<void> AwaitStep(std::int64_t step) {
    return logs_.AwaitStep(ranks_, step, options_.timeout, options_.should_end, clock_);
  }

  Result<void> RunBlocks(std::int64_t ahead) {
    const std::string name = fmt::format("verify-{}", writer_.version() + 1);
    protocol::Assignment planned;
    PERSEUS_ASSIGN_OR_RETURN(planned.plan, writer_.AddPlan(name, options_.plan));
    for (const auto& [dp_rank, text] : options_.plans) {
      PERSEUS_ASSIGN_OR_RETURN(planned.plans[dp_rank],
                               writer_.AddPlan(fmt::format("{}-dp{}", name, dp_rank), text));
    }
    SplitMix64 coin{options_.seed};
    std::int64_t begin = logs_.LastStep(ranks_) + 1 + ahead;
    for (int pair = 0; pair < result_.layout.pairs; ++pair) {
      const bool planned_first = coin() >> 63 != 0;
      for (const bool is_planned : {planned_first, !planned_first}) {
        const std::int64_t end = begin + result_.layout.LengthOf(pair);
        blocks_.push_back({is_planned, begin, end, 0});
        begin = end;
      }
    }
    for (Block& block : blocks_) {
      // A block is long enough for ranks to read the previous assignment before it is replaced.
      PERSEUS_RETURN_IF_ERROR(AwaitStep(block.begin - ahead - 1));
      protocol::Assignment assignment;
      if (block.is_planned) assignment = planned;
      // The assignment lasts until the next block's assignment has begun. If this process dies,
      // training returns to the lasting assignment.
      assignment.until_step = block.end + ahead;
      PERSEUS_ASSIGN_OR_RETURN(block.version, writer_.Write(std::move(assignment), block.begin));
      const std::size_t number = static_cast<std::size_t>(&block - blocks_.data());
      if (options_.progress) {
        options_.progress(static_cast<double>(number) / static_cast<double>(blocks_.size()));
      }
      if (number == blocks_.size() / 2) SayHalfway();
    }
    return AwaitStep(begin - 1);
  }

  // Returns the times from step to step of the latest steps with one assignment.
  std::vector<double> StepTimes(std::int64_t from) const {
    const LoggedRank& any = logs_.ranks().at(*ranks_.begin());
    std::vector<double> times;
    for (std::size_t i = any.steps.size(); i >= 2; --i) {
      const protocol::RanStep& step = any.steps[i - 2];
      const protocol::RanStep& next = any.steps[i - 1];
      if (step.step < from || next.assignment_version != any.steps.back().assignment_version) break;
      if (next.step == step.step + 1) times.push_back(ToSeconds(next.begin - step.begin));
    }
    return times;
  }

  void SayBefore(std::span<const double> step_times_s) const {
    const double noise = StepNoise(step_times_s);
    if (noise == 0) return;
    const BlockLayout& layout = result_.layout;
    const profiler::ComparisonOptions& comparison = options_.comparison;
    const double half = profiler::ExpectedHalfWidth(
        PairDeviation(noise, layout.length - layout.front), layout.pairs, comparison.level);
    std::string text = fmt::format(
        "the time of a step varies by {:.2f} % (in {} steps), so {} steps show a slowdown to "
        "within about {:.2f} %",
        100 * noise, step_times_s.size(), layout.steps(), 100 * half);
    if (comparison.slowdown_tolerance > 0) {
      const double needed = StepsToDecide(noise, result_.step_time_s, options_.counter_period_s,
                                          comparison, options_.assignment_delay_s);
      text += needed <= layout.steps()
                  ? fmt::format("; that probably decides whether it exceeds {:g} %",
                                100 * comparison.slowdown_tolerance)
                  : fmt::format(
                        "; to decide whether it exceeds {:g} % takes about {:.0f} steps "
                        "(verify more steps)",
                        100 * comparison.slowdown_tolerance, needed);
    }
    Say(text);
  }

  void SayHalfway() const {
    const profiler::ComparisonOptions& comparison = options_.comparison;
    std::vector<double> times;
    for (std::size_t i = 0; i + 1 < blocks_.size(); i += 2) {
      const auto pair = MeasuredPairAt(i);
      if (pair) times.push_back(std::log(pair->cost.planned_time_s / pair->cost.baseline_time_s));
    }
    // Fewer than three times do not show how much they vary.
    if (times.size() < 3 || comparison.slowdown_tolerance <= 0) return;
    const double deviation = profiler::EstimateCenter(times, comparison.level).usual_deviation;
    const double needed =
        2.0 * result_.layout.length *
        profiler::PairsToResolve(deviation, comparison.slowdown_tolerance, comparison.level);
    if (needed <= result_.layout.steps()) return;
    Say(
        fmt::format("the first {} pairs of blocks differ by {:.2f} %: to decide whether a slowdown "
                    "exceeds {:g} % takes about {:.0f} steps, and this run has {}",
                    times.size(), 100 * deviation, 100 * comparison.slowdown_tolerance, needed,
                    result_.layout.steps()));
  }

  // Returns the part of the block that all ranks have recorded. Empty if the block has not begun.
  Block Ran(Block block) const {
    block.end = std::min(block.end, logs_.LastCommonStep(ranks_) + 1);
    if (block.version == 0 || block.end < block.begin) block.end = block.begin;
    return block;
  }

  bool HasEnoughPairs() const {
    int pairs = 0;
    for (std::size_t i = 0; i + 1 < blocks_.size(); i += 2) pairs += MeasuredPairAt(i) ? 1 : 0;
    return pairs >= profiler::LeastPairs(options_.comparison.level);
  }

  // The time of a block counts from the step after the switch. The energy counts only in the middle
  // of the block: at each end, the time that a window of the counter may span is left out. The
  // steps may be shorter now than at the time when the blocks were laid out.
  Result<StepCost> CostOf(const Block& block) const {
    const BlockLayout& layout = result_.layout;
    const Nanoseconds margin = ToNanoseconds(options_.counter_period_s + kReadPeriodSeconds);
    std::int64_t first = block.begin + layout.front;
    std::int64_t end = block.end - layout.back;
    for (const protocol::RankId& name : ranks_) {
      const LoggedRank& rank = logs_.ranks().at(name);
      const auto begin_of = [&](std::int64_t step) {
        const protocol::RanStep* found = rank.Find(step);
        return found == nullptr ? std::optional<Nanoseconds>() : found->begin;
      };
      const auto from = begin_of(block.begin);
      const protocol::RanStep* last = rank.Find(block.end - 1);
      if (!from || last == nullptr) continue;  // If a missing step matters, CostOfSteps reports it.
      while (first < end && begin_of(first).value_or(*from + margin) - *from < margin) ++first;
      while (first < end && last->end - begin_of(end).value_or(last->end - margin) < margin) --end;
    }
    if (first >= end) {
      return Fail(
          "steps {} to {} were too short for the period of the energy counter (make steps "
          "longer, with more microbatches)",
          block.begin, block.end - 1);
    }
    PERSEUS_ASSIGN_OR_RETURN(StepCost cost,
                             CostOfSteps(logs_, ranks_, {first, end, block.version}));
    // The time from step to step is known only for a step that is followed by another step.
    const std::int64_t known = std::min(block.end, logs_.LastCommonStep(ranks_));
    PERSEUS_ASSIGN_OR_RETURN(
        cost.time_s,
        TimeOfSteps(logs_, ranks_, {block.begin + layout.front, known, block.version}));
    return cost;
  }

  struct Pair {
    Block baseline;
    Block planned;
    profiler::BlockPair cost;
  };
  Pair PairAt(std::size_t first_block) const {
    Block first = Ran(blocks_[first_block]);
    Block second = Ran(blocks_[first_block + 1]);
    return first.is_planned ? Pair{second, first, {}} : Pair{first, second, {}};
  }

  Result<Pair> MeasuredPairAt(std::size_t first_block) const {
    Pair pair = PairAt(first_block);
    PERSEUS_ASSIGN_OR_RETURN(const StepCost baseline, CostOf(pair.baseline));
    PERSEUS_ASSIGN_OR_RETURN(const StepCost planned, CostOf(pair.planned));
    pair.cost = {baseline.time_s, baseline.energy_j, planned.time_s, planned.energy_j};
    return pair;
  }

  // Returns the times from step to step of the block, from the step after the switch on.
  std::vector<double> TimesOf(const Block& block) const {
    const LoggedRank& any = logs_.ranks().at(*ranks_.begin());
    std::vector<double> times;
    for (std::int64_t number = block.begin + result_.layout.front; number < block.end; ++number) {
      const protocol::RanStep* step = any.Find(number);
      const protocol::RanStep* next = any.Find(number + 1);
      if (step == nullptr || next == nullptr) continue;
      times.push_back(ToSeconds(next->begin - step->begin));
    }
    return times;
  }

  OutlyingBlock DescribeOutlier(const profiler::Comparison::Outlier& outlier,
                                std::span<const Pair> pairs) const {
    using Quantity = profiler::Comparison::Outlier::Quantity;
    const bool is_time = outlier.quantity == Quantity::kTime;
    const auto cost_of = [&](const Pair& pair, bool is_planned) {
      if (is_planned) return is_time ? pair.cost.planned_time_s : pair.cost.planned_energy_j;
      return is_time ? pair.cost.baseline_time_s : pair.cost.baseline_energy_j;
    };
    const Pair& pair = pairs[outlier.pair];
    OutlyingBlock found;
    found.pair = outlier.pair;
    found.quantity = outlier.quantity;
    found.spreads = outlier.spreads;
    double farthest = -1;
    for (const bool is_planned : {false, true}) {
      std::vector<double> costs;
      for (const Pair& other : pairs) costs.push_back(cost_of(other, is_planned));
      const double change = cost_of(pair, is_planned) / MedianOrZero(std::move(costs)) - 1;
      if (std::abs(std::log1p(change)) <= farthest) continue;
      farthest = std::abs(std::log1p(change));
      found.is_planned = is_planned;
      found.change = change;
    }
    const Block& block = found.is_planned ? pair.planned : pair.baseline;
    found.steps = {block.begin, block.end - 1};
    for (const protocol::RankId& name : ranks_) {
      const LoggedRank& rank = logs_.ranks().at(name);
      for (std::int64_t number = block.begin + result_.layout.front; number < block.end; ++number) {
        const protocol::RanStep* step = rank.Find(number);
        const protocol::RanStep* next = rank.Find(number + 1);
        if (step == nullptr || next == nullptr) continue;
        const double time_s = ToSeconds(next->begin - step->begin);
        if (time_s <= found.longest_step_s) continue;
        found.longest_step = number;
        found.longest_step_s = time_s;
      }
    }
    return found;
  }

  Result<Verification> Conclude() {
    const BlockLayout& layout = result_.layout;
    std::vector<Pair> pairs;
    for (std::size_t i = 0; i + 1 < blocks_.size(); i += 2) {
      const auto pair = MeasuredPairAt(i);
      if (pair) {
        pairs.push_back(*pair);
        continue;
      }
      // If the run ended, a pair may not have begun, or may have too few steps. Such a pair does
      // not count as left out.
      const Block& second = blocks_[i + 1];
      if (!result_.ended_early.empty() && Ran(second).end < second.end) continue;
      ++result_.left_out;
      result_.left_out_reason = pair.error().Message();
    }
    if (static_cast<int>(pairs.size()) < profiler::LeastPairs(options_.comparison.level)) {
      return Fail("only {} of {} pairs of blocks ran with their assignments, but {} are needed: {}",
                  pairs.size(), layout.pairs, profiler::LeastPairs(options_.comparison.level),
                  result_.left_out_reason);
    }
    std::vector<std::vector<double>> baseline_s;
    std::vector<std::vector<double>> planned_s;
    for (const Pair& pair : pairs) {
      baseline_s.push_back(TimesOf(pair.baseline));
      planned_s.push_back(TimesOf(pair.planned));
      result_.pairs.push_back(pair.cost);
      result_.steps.push_back({{pair.baseline.begin, pair.baseline.end - 1},
                               {pair.planned.begin, pair.planned.end - 1}});
    }
    result_.baseline_step_noise = StepNoise(baseline_s);
    result_.planned_step_noise = StepNoise(planned_s);
    PERSEUS_ASSIGN_OR_RETURN(result_.comparison,
                             profiler::Compare(result_.pairs, options_.comparison));
    for (const profiler::Comparison::Outlier& outlier : result_.comparison.outliers) {
      // A stall often makes both quantities outliers. The time comes first, and only the time is
      // reported.
      if (!result_.outliers.empty() && result_.outliers.back().pair == outlier.pair) continue;
      result_.outliers.push_back(DescribeOutlier(outlier, pairs));
    }
    return std::move(result_);
  }

  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  const VerificationOptions& options_;
  JobLogs logs_;
  protocol::AssignmentWriter writer_;
  Clock& clock_;
  std::set<protocol::RankId> ranks_;
  std::vector<Block> blocks_;
  Verification result_;
};

// A window of the energy counter at each end of a block belongs partly to other steps.
constexpr double kPeriodsOfBlock = 3;
// The largest number of pairs. More pairs make the interval hardly narrower.
constexpr int kMostPairsOfRuns = 20;

struct Run {
  JobLogs logs;
  std::set<protocol::RankId> ranks;
  StepRange steps;  // The last steps with one assignment.
  double step_time_s = 0;
};

Result<Run> OpenRun(const std::filesystem::path& directory, int most_steps) {
  PERSEUS_ASSIGN_OR_RETURN(auto logs, JobLogs::Open(directory, JobLogs::Job::kIsOver));
  PERSEUS_RETURN_IF_ERROR(logs.ReadNew());
  Run run{.logs = std::move(logs), .ranks = {}, .steps = {}};
  for (const auto& [name, rank] : run.logs.ranks()) run.ranks.insert(name);
  // The time of a step ends when the next step begins.
  run.steps.end = run.logs.LastCommonStep(run.ranks);
  run.steps.begin = run.steps.end;
  const LoggedRank& any = run.logs.ranks().at(*run.ranks.begin());
  const protocol::RanStep* last = any.Find(run.steps.end - 1);
  if (last == nullptr) {
    return Fail(InFile(directory.string()), "has fewer than two steps (let the job run longer)");
  }
  run.steps.version = last->assignment_version;
  while (run.steps.end - run.steps.begin < most_steps) {
    const protocol::RanStep* step = any.Find(run.steps.begin - 1);
    if (step == nullptr || step->assignment_version != run.steps.version) break;
    --run.steps.begin;
  }
  PERSEUS_ASSIGN_OR_RETURN(run.step_time_s, TimeOfSteps(run.logs, run.ranks, run.steps));
  return run;
}

// Returns block `index` of the last `steps` steps. Both runs use the same number of steps.
StepRange BlockOf(const Run& run, std::int64_t steps, int length, int index) {
  const std::int64_t begin = run.steps.end - steps + std::int64_t{length} * index;
  return {.begin = begin, .end = begin + length, .version = run.steps.version};
}

}  // namespace

Result<BlockLayout> LayOutBlocks(int steps, double step_time_s, double counter_period_s,
                                 double level, double assignment_delay_s) {
  const BlockLengths lengths = LengthsFor(step_time_s, counter_period_s, assignment_delay_s);
  BlockLayout layout;
  layout.front = lengths.edge;
  layout.back = lengths.edge;
  const int least_pairs = profiler::LeastPairs(level);
  layout.length = std::clamp(steps / (2 * least_pairs), lengths.shortest, lengths.comfortable);
  layout.pairs = steps / (2 * layout.length);
  layout.extra = steps / 2 - layout.pairs * layout.length;
  if (layout.pairs < least_pairs) {
    return FailAs(ErrorKind::kUnreachable,
                  "{} steps are too few for a result at {:g} % confidence: at least {} are needed, "
                  "in {} pairs of blocks of {} (verify more steps)",
                  steps, level * 100, 2 * least_pairs * layout.length, least_pairs, layout.length);
  }
  return layout;
}

double StepNoise(std::span<const double> step_times_s) {
  return StepNoise(std::vector<std::vector<double>>{{step_times_s.begin(), step_times_s.end()}});
}

double StepNoise(std::span<const std::vector<double>> runs_s) {
  std::vector<double> differences;
  std::vector<double> all_s;
  for (const std::vector<double>& run_s : runs_s) {
    all_s.insert(all_s.end(), run_s.begin(), run_s.end());
    for (std::size_t i = 0; i + 1 < run_s.size(); ++i) {
      differences.push_back(run_s[i + 1] - run_s[i]);
    }
  }
  if (differences.size() < 2) return 0;
  const double usual_s = Median(std::move(all_s));
  // The standard deviation of a difference is sqrt(2) times as large as the standard deviation of a
  // step.
  return kDeviationsOfMad * MedianDeviation(differences, 0) / std::sqrt(2.0) / usual_s;
}

double StepsToDecide(double step_noise, double step_time_s, double counter_period_s,
                     const profiler::ComparisonOptions& comparison, double assignment_delay_s) {
  const BlockLengths lengths = LengthsFor(step_time_s, counter_period_s, assignment_delay_s);
  double fewest = INFINITY;
  for (const int length : {lengths.shortest, lengths.comfortable}) {
    const double deviation = PairDeviation(step_noise, length - lengths.edge);
    const int pairs =
        profiler::PairsToResolve(deviation, comparison.slowdown_tolerance, comparison.level);
    fewest = std::min(fewest, 2.0 * length * pairs);
  }
  return fewest;
}

Result<Verification> Verify(const VerificationOptions& options, Clock& clock) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto logs, JobLogs::Open(options.job_directory, JobLogs::Job::kIsRunning, kEarlierSteps));
  PERSEUS_ASSIGN_OR_RETURN(auto writer, protocol::AssignmentWriter::Open(options.job_directory));
  return Verifier(options, std::move(logs), std::move(writer), clock).Run();
}

Result<RunComparison> CompareRuns(const RunsToCompare& runs) {
  PERSEUS_ASSIGN_OR_RETURN(const Run planned, OpenRun(runs.directory, runs.steps));
  PERSEUS_ASSIGN_OR_RETURN(const Run baseline, OpenRun(runs.against, runs.steps));
  if (planned.ranks != baseline.ranks) {
    return Fail("{} has {} ranks, and {} has {} or other ones (compare runs of the same job)",
                runs.directory.string(), planned.ranks.size(), runs.against.string(),
                baseline.ranks.size());
  }
  const double step_time_s = std::min(planned.step_time_s, baseline.step_time_s);
  const int shortest = std::max(
      1, static_cast<int>(std::ceil(kPeriodsOfBlock * runs.counter_period_s / step_time_s)));
  const auto steps = static_cast<int>(
      std::min(planned.steps.end - planned.steps.begin, baseline.steps.end - baseline.steps.begin));
  const int least = profiler::LeastPairs(runs.comparison.level);
  if (steps < least * shortest) {
    return Fail(
        "{} and {} have {} steps with one assignment in common, but {} blocks of {} steps are "
        "needed (let the jobs run longer)",
        runs.directory.string(), runs.against.string(), steps, least, shortest);
  }
  const int length = std::max(shortest, steps / kMostPairsOfRuns);
  const int count = std::min(kMostPairsOfRuns, steps / length);
  const std::int64_t used = std::int64_t{length} * count;
  RunComparison compared{.comparison = {}, .pairs = {}, .block_length = length};
  compared.first_step = planned.steps.end - used;
  compared.first_step_against = baseline.steps.end - used;
  for (int i = 0; i < count; ++i) {
    PERSEUS_ASSIGN_OR_RETURN(const StepCost one, CostOfSteps(planned.logs, planned.ranks,
                                                             BlockOf(planned, used, length, i)));
    PERSEUS_ASSIGN_OR_RETURN(const StepCost other, CostOfSteps(baseline.logs, baseline.ranks,
                                                               BlockOf(baseline, used, length, i)));
    compared.pairs.push_back({.baseline_time_s = other.time_s,
                              .baseline_energy_j = other.energy_j,
                              .planned_time_s = one.time_s,
                              .planned_energy_j = one.energy_j});
  }
  PERSEUS_ASSIGN_OR_RETURN(compared.comparison, profiler::Compare(compared.pairs, runs.comparison));
  return compared;
}

}  // namespace perseus::tuner
