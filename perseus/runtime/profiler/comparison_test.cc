#include "perseus/runtime/profiler/comparison.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "perseus/base/random.h"
#include "perseus/runtime/profiler/energy_curve.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"
#include "tests/support/results.h"

namespace perseus::profiler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SignedRank, TheLeastNumberOfPairsIsThatOfTheTables) {
  // With n pairs, the widest interval leaves out 2 of 2^n equally likely outcomes.
  EXPECT_EQ(LeastPairs(0.95), 6);
  EXPECT_EQ(LeastPairs(0.9375), 5);
  EXPECT_EQ(LeastPairs(0.99), 8);
}

TEST(SignedRank, IntervalIsThatOfTheTextbook) {
  // For n = 10, the critical value at 5 % (two-sided) is 8. So the bounds are the 9th averages from
  // both ends. P(T <= 8) = 25/1024 (the number of sets of distinct numbers from 1 to 10 with a sum
  // of at most 8, divided by 2^10).
  std::vector<double> differences;
  for (int i = 1; i <= 10; ++i) differences.push_back(i);
  const SignedRankInterval center = EstimateCenter(differences, 0.95);
  EXPECT_DOUBLE_EQ(center.level, 1 - 2 * 25 / 1024.0);
  EXPECT_DOUBLE_EQ(center.interval.estimate, 5.5);
  std::vector<double> averages;
  for (int i = 1; i <= 10; ++i) {
    for (int j = i; j <= 10; ++j) averages.push_back((i + j) / 2.0);
  }
  std::sort(averages.begin(), averages.end());
  EXPECT_DOUBLE_EQ(center.interval.lower, averages[8]);
  EXPECT_DOUBLE_EQ(center.interval.upper, averages[averages.size() - 9]);
}

TEST(SignedRank, NormalApproximationJoinsTheExactDistribution) {
  std::mt19937_64 random(1);
  std::vector<double> differences;
  for (int i = 0; i < 201; ++i) differences.push_back(Normal(random));
  const SignedRankInterval approximate = EstimateCenter(differences, 0.95);
  differences.pop_back();
  const SignedRankInterval exact = EstimateCenter(differences, 0.95);
  // One pair in 200 moves the bounds by a few hundredths of 1/sqrt(200) = 0.07 spreads.
  EXPECT_NEAR(approximate.interval.lower, exact.interval.lower, 0.02);
  EXPECT_NEAR(approximate.interval.upper, exact.interval.upper, 0.02);
  EXPECT_NEAR(approximate.level, exact.level, 0.001);
}

// One pair of six is stalled. The interval of six pairs reaches from the least to the greatest
// difference. So the stalled pair alone would decide the interval.
TEST(SignedRank, OneOutlierOfSixDoesNotDecideTheInterval) {
  std::vector<double> differences = {-0.003, -0.002, -0.001, 0.001, 0.002, 0.003};
  const SignedRankInterval clean = EstimateCenter(differences, 0.95);
  EXPECT_DOUBLE_EQ(clean.interval.lower, -0.003);
  EXPECT_DOUBLE_EQ(clean.interval.upper, 0.003);
  differences[0] = -0.9;
  const SignedRankInterval stalled = EstimateCenter(differences, 0.95);
  // Median 0; the distances are 0.9 and 0.001 to 0.003, so their median is 0.002.
  EXPECT_DOUBLE_EQ(stalled.spread, 1.4826 * 0.002);
  EXPECT_DOUBLE_EQ(stalled.interval.lower, -5 * 1.4826 * 0.002);
  EXPECT_DOUBLE_EQ(stalled.interval.upper, 0.003);
  EXPECT_DOUBLE_EQ(stalled.level, clean.level);
}

BlockPair Pair(double time_ratio, double energy_ratio) {
  return {1, 100, time_ratio, 100 * energy_ratio};
}

std::vector<BlockPair> Around(double time_ratio, double energy_ratio, double spread, int pairs) {
  std::vector<BlockPair> result;
  for (int i = 0; i < pairs; ++i) {
    const double off = spread * (2.0 * i / (pairs - 1) - 1);
    result.push_back(Pair(time_ratio + off, energy_ratio + off));
  }
  return result;
}

TEST(Compare, ReportsASignificantDifference) {
  const auto saves = ValueOf(Compare(Around(1.0, 0.85, 0.001, 10)));
  EXPECT_EQ(saves.saves, Verdict::kGreater);
  EXPECT_EQ(saves.slows, Verdict::kSame);
  EXPECT_NEAR(saves.saving.estimate, 0.15, 1e-6);
  EXPECT_LT(saves.saving.lower, 0.15);
  EXPECT_GT(saves.saving.upper, 0.15);
  EXPECT_EQ(saves.pairs_needed, 0);
  EXPECT_THAT(Describe(saves), HasSubstr("saves 15.00 % of the energy"));
  EXPECT_THAT(Describe(saves), HasSubstr("is no slower, to within 0.2 %"));
  EXPECT_THAT(Describe(saves), Not(HasSubstr("would decide")));

  const auto harms = ValueOf(Compare(Around(1.05, 1.10, 0.001, 10)));
  EXPECT_EQ(harms.saves, Verdict::kLess);
  EXPECT_EQ(harms.slows, Verdict::kGreater);
  EXPECT_THAT(Describe(harms), HasSubstr("costs 10.00 % more energy"));
  EXPECT_THAT(Describe(harms), HasSubstr("is slower by 5.00 %"));

  EXPECT_EQ(ValueOf(Compare(Around(0.95, 0.85, 0.001, 10))).slows, Verdict::kLess);
}

TEST(Compare, ReportsThatTheDataIsInconclusiveAndWhatIsMissing) {
  const auto noisy = ValueOf(Compare(Around(1.001, 0.99, 0.05, 10)));
  EXPECT_EQ(noisy.saves, Verdict::kCannotTell);
  EXPECT_EQ(noisy.slows, Verdict::kCannotTell);
  EXPECT_GT(noisy.pairs_needed, 10);
  EXPECT_THAT(Describe(noisy), HasSubstr("cannot tell whether it saves energy"));
  EXPECT_THAT(Describe(noisy), HasSubstr("would decide it (this run has 10)"));
}

TEST(Compare, NamesTheStalledPairAndDoesNotAskForPairsBecauseOfIt) {
  std::vector<BlockPair> pairs = Around(1.0, 0.85, 0.004, 6);
  const int needed_without = Compare(pairs)->pairs_needed;
  pairs[4].baseline_time_s = 4;
  const auto stalled = ValueOf(Compare(pairs));
  ASSERT_EQ(stalled.outliers.size(), 1U);
  EXPECT_EQ(stalled.outliers[0].pair, 4U);
  EXPECT_EQ(stalled.outliers[0].quantity, Comparison::Outlier::Quantity::kTime);
  EXPECT_NEAR(stalled.outliers[0].change, -0.75, 0.01);
  EXPECT_GT(stalled.outliers[0].spreads, SignedRankInterval::kNamed);
  EXPECT_GT(stalled.slowdown.lower, -0.04);
  EXPECT_NEAR(stalled.slowdown.estimate, 0, 0.004);
  // The center and the usual deviation of five pairs differ a little from those of six pairs.
  EXPECT_LT(stalled.pairs_needed, 20 * needed_without);
  EXPECT_TRUE(Compare(Around(1.0, 0.85, 0.004, 6))->outliers.empty());
}

TEST(Compare, MorePairsAreNeededForALessLimit) {
  EXPECT_EQ(PairsToResolve(1e-6, 0.002, 0.95), LeastPairs(0.95));
  // (1.96 + 0.84) * 1.0233 = 2.867 standard errors.
  EXPECT_EQ(PairsToResolve(0.01, 0.002, 0.95), 206);
  EXPECT_EQ(PairsToResolve(0.01, 0.001, 0.95), 822);
  EXPECT_NEAR(ExpectedHalfWidth(0.01, 100, 0.95), 0.0020056, 1e-6);
}

TEST(Compare, RefusesTooFewOrInvalidMeasurements) {
  EXPECT_THAT(Compare(Around(1, 0.9, 0.01, 5)), FailsWith(HasSubstr("it needs at least 6")));
  std::vector<BlockPair> none = Around(1, 0.9, 0.01, 6);
  none[3].planned_energy_j = 0;
  EXPECT_THAT(Compare(none), FailsWith(HasSubstr("pair 3")));
}

// ---- Coverage on virtual GPUs, whose truth is known ----

constexpr int kHighMhz = 1410;
constexpr int kLowMhz = 1050;
constexpr Nanoseconds kGap = 8'000'000;  // The wait at the end of a step, at blocking power.
constexpr Nanoseconds kCheckpoint = 200'000'000;
constexpr Nanoseconds kLook = 10'000'000;  // The period between two readings of the counter.
constexpr int kStepsOfBlock = 3;           // One more step before them is left out.
constexpr int kPairs = 10;

virtual_gpu::VirtualGpuModel Model(double noise) {
  virtual_gpu::VirtualGpuModel model;
  model.sm_clocks.count = 2;
  model.sm_clocks.mhz[0] = kLowMhz;
  model.sm_clocks.mhz[1] = kHighMhz;
  model.time_noise = noise;
  model.power_noise = noise;
  return model;
}

virtual_gpu::InstructionTable Table(double low_time_s, double drift) {
  virtual_gpu::InstructionTable table;
  table.count = 2;
  table.frequencies_mhz[0] = kLowMhz;
  table.frequencies_mhz[1] = kHighMhz;
  table.rows[0] = {low_time_s * drift, 7.2 * drift};
  table.rows[1] = {0.025 * drift, 9.0 * drift};
  return table;
}

// A rank on one virtual GPU. A step has four instructions. With the plan, the second instruction
// runs at a lower clock.
class Rank {
 public:
  Rank(std::uint64_t seed, double noise) : gpu_(Model(noise), seed, 0), coin_(seed + 1) {
    gpu_.SetRest(virtual_gpu::Rest::kBlocking, 0);
  }

  // `hazards` adds checkpoints and ten percent of drift over two minutes.
  void RunStep(bool planned, bool hazards) {
    const double drift = hazards ? 1 + 0.1 * ToSeconds(now_) / 120 : 1;
    for (int i = 0; i < 4; ++i) {
      const int mhz = planned && i == 1 ? kLowMhz : kHighMhz;
      gpu_.RequestLock(device::Setting{mhz, mhz}, now_);
      gpu_.Begin(Table(0.026, drift), now_);
      AdvanceTo(gpu_.FinishTime());
    }
    AdvanceTo(now_ + kGap);
    if (hazards && Uniform(coin_) < 0.02) AdvanceTo(now_ + kCheckpoint);
  }

  struct Block {
    Nanoseconds begin;
    Nanoseconds end;
    double time_s() const { return ToSeconds(end - begin); }
  };
  Block RunBlock(bool planned, bool hazards) {
    RunStep(planned, hazards);
    const Nanoseconds begin = now_;
    for (int i = 0; i < kStepsOfBlock; ++i) RunStep(planned, hazards);
    const Nanoseconds end = now_;
    RunStep(planned, hazards);
    return {begin, end};
  }

  std::vector<BlockPair> RunPairs(bool hazards) {
    RunStep(false, hazards);
    struct Pair {
      Block baseline;
      Block planned;
    };
    std::vector<Pair> blocks;
    for (int i = 0; i < kPairs; ++i) {
      const bool planned_first = Uniform(coin_) < 0.5;
      const Block first = RunBlock(planned_first, hazards);
      const Block second = RunBlock(!planned_first, hazards);
      blocks.push_back(planned_first ? Pair{second, first} : Pair{first, second});
    }
    RunStep(false, hazards);  // The counter needs one more update.
    std::vector<BlockPair> pairs;
    for (const Pair& pair : blocks) {
      pairs.push_back({pair.baseline.time_s(), EnergyOf(pair.baseline), pair.planned.time_s(),
                       EnergyOf(pair.planned)});
    }
    return pairs;
  }

 private:
  // Reads the counter as often as a client does.
  void AdvanceTo(Nanoseconds until) {
    while (now_ < until) {
      const Nanoseconds next = std::min(until, now_ + kLook);
      gpu_.AdvanceTo(next);
      const double energy_j = gpu_.ReadAt(next).published_energy_j;
      if (energy_j != seen_j_) curve_.Add(now_, next, energy_j);
      seen_j_ = energy_j;
      now_ = next;
    }
  }

  double EnergyOf(const Block& block) const {
    const std::optional<double> energy_j = curve_.Between(block.begin, block.end);
    EXPECT_TRUE(energy_j);
    return energy_j.value_or(0);
  }

  EnergyCurve curve_;
  double seen_j_ = 0;
  virtual_gpu::VirtualGpu gpu_;
  std::mt19937_64 coin_;
  Nanoseconds now_ = 0;
};

struct Coverage {
  int saving = 0;
  int slowdown = 0;
  double level = 0;
};
Coverage Cover(int runs, bool hazards) {
  // These values come from the table: four instructions, one of them slower and with less energy,
  // and the gap.
  const double gap_j = 80 * ToSeconds(kGap);
  const double saving = 1 - (3 * 9.0 + 7.2 + gap_j) / (4 * 9.0 + gap_j);
  const double slowdown = (3 * 0.025 + 0.026 + ToSeconds(kGap)) / (0.1 + ToSeconds(kGap)) - 1;
  Coverage coverage;
  for (int run = 0; run < runs; ++run) {
    Rank rank(static_cast<std::uint64_t>(run) * 2, 0.01);
    const auto comparison = Compare(rank.RunPairs(hazards));
    EXPECT_TRUE(comparison);
    if (!comparison) return coverage;
    coverage.level = comparison->level;
    const auto covers = [](const Interval& interval, double truth) {
      return interval.lower <= truth && truth <= interval.upper;
    };
    coverage.saving += covers(comparison->saving, saving) ? 1 : 0;
    coverage.slowdown += covers(comparison->slowdown, slowdown) ? 1 : 0;
  }
  return coverage;
}

// Runs are independent, so the number of runs that cover the truth is binomial. The seeds are
// fixed. With one choice of seeds in 2,000, a correct implementation is outside 3.5 standard
// deviations.
void ExpectStatedRate(int covered, int runs, double level, const char* of) {
  const double deviation = std::sqrt(runs * level * (1 - level));
  EXPECT_NEAR(covered, runs * level, 3.5 * deviation) << of;
}

TEST(CompareOnVirtualGpus, IntervalsCoverTheTruthAtTheirStatedRate) {
  constexpr int kRuns = 1000;
  const Coverage coverage = Cover(kRuns, /*hazards=*/false);
  ExpectStatedRate(coverage.saving, kRuns, coverage.level, "saving");
  ExpectStatedRate(coverage.slowdown, kRuns, coverage.level, "slowdown");
}

TEST(CompareOnVirtualGpus, IntervalsCoverTheTruthUnderDriftAndCheckpoints) {
  constexpr int kRuns = 1000;
  const Coverage coverage = Cover(kRuns, /*hazards=*/true);
  ExpectStatedRate(coverage.saving, kRuns, coverage.level, "saving");
  ExpectStatedRate(coverage.slowdown, kRuns, coverage.level, "slowdown");
}

}  // namespace
}  // namespace perseus::profiler
