// Property tests of the thinning of plans, against all ways to raise the clocks of small plans.
#include "perseus/runtime/client/thinning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace perseus::client {
namespace {

using ::testing::ElementsAre;

constexpr InstructionKind kForwardKind = InstructionKind::kForward;
constexpr InstructionKind kBackwardKind = InstructionKind::kBackward;
const std::vector<int> kAllClocks = {600, 750, 900, 1050, 1200, 1350};

struct Planned {
  InstructionKind kind = kForwardKind;
  int clock_mhz = 0;
  double time_s = 0.1;
  double energy_j = -1;  // Below 0: a joule for each 100 MHz.
};

// One after the other, without gaps.
ClockTable TableOf(const std::vector<Planned>& plan) {
  ClockTable table;
  table.source = ClockTable::Source::kPlan;
  table.number = 1;
  int microbatch = 0;
  for (const Planned& planned : plan) {
    table.order.push_back({planned.kind, microbatch++, 0, planned.clock_mhz});
    const Nanoseconds duration = ToNanoseconds(planned.time_s);
    table.costs.push_back({table.time, duration,
                           planned.energy_j < 0 ? planned.clock_mhz / 100.0 : planned.energy_j});
    table.time += duration;
  }
  return table;
}

std::vector<int> ClocksOf(const std::vector<PlannedClock>& order) {
  std::vector<int> clocks;
  for (const PlannedClock& planned : order) clocks.push_back(planned.frequency_mhz);
  return clocks;
}

// The changes of a step that runs at these clocks and is repeated. The default clock is the
// highest.
std::vector<TimedChange> ChangesOf(const ClockTable& table, const std::vector<int>& clocks) {
  const auto height = [](int clock) { return clock == 0 ? 1 << 30 : clock; };
  std::vector<TimedChange> changes;
  for (std::size_t i = 0; i < clocks.size(); ++i) {
    const int before = clocks[i == 0 ? clocks.size() - 1 : i - 1];
    if (clocks[i] == before) continue;
    changes.push_back({table.costs[i].start, height(clocks[i]) < height(before)});
  }
  return changes;
}

// As many changes in a step as `changes`, and a bucket that always holds enough of them.
ChangeLimit LimitTo(double changes, const ClockTable& table) {
  return {changes / ToSeconds(table.time), table.time};
}

// ---- By hand ----

TEST(Thinning, APlanWithinTheLimitStaysAsItIs) {
  const ClockTable table = TableOf({{kForwardKind, 900}, {kForwardKind, 1200}});
  const ThinnedPlan thinned = Thin(table, kAllClocks, LimitTo(2, table));
  EXPECT_THAT(ClocksOf(thinned.order), ElementsAre(900, 1200));
  EXPECT_EQ(thinned.changes, 2);
  EXPECT_EQ(thinned.skipped, 0);
  EXPECT_EQ(thinned.table, 1U);
}

//   1200      ___________         ___
//   1050  ___|           |       |   |     The shallow valley between the deep ones goes.
//    900                 |___ ___|   |___
TEST(Thinning, TheChangesThatSaveLeastGo) {
  const ClockTable table = TableOf({{kForwardKind, 900},
                                    {kForwardKind, 1200},
                                    {kForwardKind, 1050},
                                    {kForwardKind, 1200},
                                    {kForwardKind, 600},
                                    {kForwardKind, 1200}});
  const ThinnedPlan thinned = Thin(table, kAllClocks, LimitTo(4, table));
  EXPECT_THAT(ClocksOf(thinned.order), ElementsAre(900, 1200, 1200, 1200, 600, 1200));
  EXPECT_EQ(thinned.changes, 6);
  EXPECT_EQ(thinned.skipped, 2);
}

// Of two equal valleys, the one with less energy.
TEST(Thinning, TheEnergyOfThePlanDecides) {
  const ClockTable table = TableOf({{kForwardKind, 900, 0.1, 40},
                                    {kForwardKind, 1200, 0.1, 50},
                                    {kBackwardKind, 900, 0.1, 20},
                                    {kBackwardKind, 1200, 0.1, 23}});
  EXPECT_THAT(ClocksOf(Thin(table, kAllClocks, LimitTo(2, table)).order),
              ElementsAre(900, 1200, 1200, 1200));
}

TEST(Thinning, WithoutEnergiesTheClockAndTheTimeDecide) {
  const ClockTable table = TableOf({{kForwardKind, 900, 0.1, 0},
                                    {kForwardKind, 1200, 0.1, 0},
                                    {kBackwardKind, 900, 0.2, 0},
                                    {kBackwardKind, 1200, 0.1, 0}});
  EXPECT_THAT(ClocksOf(Thin(table, kAllClocks, LimitTo(2, table)).order),
              ElementsAre(1200, 1200, 900, 1200));
}

// The last instruction of a step comes before the first one of the next.
TEST(Thinning, AStepContinuesTheOneBefore) {
  const ClockTable table =
      TableOf({{kForwardKind, 900}, {kForwardKind, 1200}, {kForwardKind, 900}});
  const ThinnedPlan same = Thin(table, kAllClocks, LimitTo(2, table));
  EXPECT_EQ(same.changes, 2);
  EXPECT_EQ(same.skipped, 0);
  EXPECT_THAT(ClocksOf(Thin(table, kAllClocks, LimitTo(1, table)).order),
              ElementsAre(1200, 1200, 1200));
}

TEST(Thinning, WithoutRoomForAChangeTheHighestClockRemains) {
  const ClockTable table = TableOf(
      {{kForwardKind, 900}, {kForwardKind, 1200}, {kForwardKind, 600}, {kForwardKind, 1050}});
  const ThinnedPlan thinned = Thin(table, kAllClocks, LimitTo(0.01, table));
  EXPECT_THAT(ClocksOf(thinned.order), ElementsAre(1200, 1200, 1200, 1200));
  EXPECT_EQ(thinned.skipped, 4);
}

TEST(Thinning, NoClockIsAboveTheDefaultClock) {
  const ClockTable table =
      TableOf({{kForwardKind, 900}, {kForwardKind, 0}, {kForwardKind, 1350}, {kForwardKind, 600}});
  EXPECT_THAT(ClocksOf(Thin(table, kAllClocks, LimitTo(2, table)).order),
              ElementsAre(900, 0, 0, 900));
  EXPECT_THAT(ClocksOf(Thin(table, kAllClocks, LimitTo(1, table)).order), ElementsAre(0, 0, 0, 0));
}

// 1001 and 1040 MHz are both 1050 MHz of the GPU.
TEST(Thinning, OnlyAChangeOfTheGpusClockCounts) {
  const ClockTable table = TableOf({{kForwardKind, 1001}, {kForwardKind, 1040}});
  const ThinnedPlan thinned = Thin(table, kAllClocks, LimitTo(0.01, table));
  EXPECT_EQ(thinned.changes, 0);
  EXPECT_EQ(thinned.skipped, 0);
  EXPECT_THAT(ClocksOf(thinned.order), ElementsAre(1001, 1040));
}

// A step of a minute with all its changes in its first second.
TEST(Thinning, ABurstIsThinnedThoughTheStepHasRoom) {
  std::vector<Planned> plan;
  for (int i = 0; i < 20; ++i) {
    plan.push_back({kForwardKind, i % 2 == 0 ? 900 : 1200, 0.05});
  }
  plan.push_back({kForwardKind, 1200, 59});
  const ClockTable table = TableOf(plan);
  const ChangeLimit limit{4, table.time};  // 240 in a step.
  const ThinnedPlan thinned = Thin(table, kAllClocks, limit);
  EXPECT_EQ(thinned.changes, 20);
  EXPECT_TRUE(KeepsLimit(ChangesOf(table, ClocksOf(thinned.order)), limit));
  // The bucket begins with 4 changes. A fifth valley would need 9 by 0.9 s, and 7.6 are there.
  EXPECT_EQ(thinned.changes - thinned.skipped, 8);
}

// The same plan in a longer step has its changes as close together as before.
TEST(Thinning, APauseAfterThePlanDoesNotSpreadItsChanges) {
  std::vector<Planned> plan;
  for (int i = 0; i < 20; ++i) plan.push_back({kForwardKind, i % 2 == 0 ? 900 : 1200, 0.05});
  const ClockTable table = TableOf(plan);
  const ThinnedPlan short_step = Thin(table, kAllClocks, {4, table.time});
  const ThinnedPlan long_step = Thin(table, kAllClocks, {4, 60 * kSecond});
  EXPECT_EQ(short_step.changes - short_step.skipped, 4);
  EXPECT_EQ(long_step.changes - long_step.skipped, 8);
}

// ---- Against all answers ----

struct RandomPlan {
  ClockTable table;
  ChangeLimit limit;
};

RandomPlan MakeRandom(std::mt19937& random, int size, int clocks) {
  const auto number = [&](double least, double most) {
    return std::uniform_real_distribution(least, most)(random);
  };
  const auto whole = [&](int least, int most) {
    return std::uniform_int_distribution(least, most)(random);
  };
  // Energy falls with the clock, by another power for each kind.
  const double power[] = {number(0.5, 2.5), number(0.5, 2.5)};
  const double energy[] = {number(5, 50), number(5, 50)};
  std::vector<Planned> plan;
  for (int i = 0; i < size; ++i) {
    const int kind = whole(0, 1);
    const int clock = kAllClocks[static_cast<std::size_t>(whole(0, clocks - 1))];
    const double ratio = clock / 1350.0;
    plan.push_back({kind == 0 ? kForwardKind : kBackwardKind, clock,
                    (kind == 0 ? 0.05 : 0.1) / ratio, energy[kind] * std::pow(ratio, power[kind])});
  }
  RandomPlan made{TableOf(plan), {}};
  made.table.waiting_power_w = number(0, 20);
  made.limit = {number(0.2, 12),
                static_cast<Nanoseconds>(static_cast<double>(made.table.time) * number(1, 3))};
  return made;
}

// The loss as thinning.h estimates it, from its description.
class LossByHand {
 public:
  explicit LossByHand(const ClockTable& table) : table_(table) {}

  double Of(std::size_t instruction, int clock) const {
    const int own = table_.order[instruction].frequency_mhz;
    // More is never less: the greatest on the way to the clock.
    double loss = 0;
    for (const int step : kAllClocks) {
      if (step > own && step <= clock && IsUsed(step)) {
        loss = std::max(loss, Effective(instruction, step) - Effective(instruction, own));
      }
    }
    return loss;
  }
  bool IsUsed(int clock) const {
    return std::ranges::any_of(table_.order,
                               [&](const auto& other) { return other.frequency_mhz == clock; });
  }

 private:
  double Effective(std::size_t instruction, int clock) const {
    const InstructionKind kind = table_.order[instruction].kind;
    std::optional<std::size_t> nearest;
    for (std::size_t i = 0; i < table_.order.size(); ++i) {
      if (table_.order[i].kind != kind) continue;
      if (!nearest ||
          std::pair(Distance(i, clock), table_.order[i].frequency_mhz) <
              std::pair(Distance(*nearest, clock), table_.order[*nearest].frequency_mhz)) {
        nearest = i;
      }
    }
    const double ratio = clock / static_cast<double>(table_.order[*nearest].frequency_mhz);
    const PlannedCost& cost = table_.costs[*nearest];
    return cost.energy_j * ratio - table_.waiting_power_w * ToSeconds(cost.duration) / ratio;
  }
  int Distance(std::size_t instruction, int clock) const {
    return std::abs(table_.order[instruction].frequency_mhz - clock);
  }

  const ClockTable& table_;
};

// The least loss of all clocks that are not below the plan's and keep the limit.
double LeastLoss(const RandomPlan& random, const LossByHand& losses) {
  const ClockTable& table = random.table;
  double least = std::numeric_limits<double>::infinity();
  std::vector<int> clocks(table.order.size());
  const auto choose = [&](const auto& self, std::size_t at, double loss) -> void {
    if (loss >= least) return;
    if (at == clocks.size()) {
      if (KeepsLimit(ChangesOf(table, clocks), random.limit)) least = loss;
      return;
    }
    for (const int clock : kAllClocks) {
      if (clock < table.order[at].frequency_mhz || !losses.IsUsed(clock)) continue;
      clocks[at] = clock;
      self(self, at + 1, loss + losses.Of(at, clock));
    }
  };
  choose(choose, 0, 0);
  return least;
}

TEST(Thinning, OfSmallPlansLosesLittleMoreThanTheBestAnswer) {
  std::mt19937 random(20260222);
  double total = 0;
  double best = 0;
  int thinned_plans = 0;
  for (int round = 0; round < 1500; ++round) {
    const RandomPlan plan = MakeRandom(random, 2 + round % 6, 4);
    const ThinnedPlan thinned = Thin(plan.table, kAllClocks, plan.limit);
    const std::vector<int> clocks = ClocksOf(thinned.order);
    const std::vector<TimedChange> changes = ChangesOf(plan.table, clocks);
    ASSERT_TRUE(KeepsLimit(changes, plan.limit)) << "round " << round;
    ASSERT_EQ(thinned.changes - thinned.skipped, static_cast<int>(changes.size()));
    ASSERT_EQ(thinned.changes,
              static_cast<int>(ChangesOf(plan.table, ClocksOf(plan.table.order)).size()));
    const LossByHand losses(plan.table);
    double loss = 0;
    for (std::size_t i = 0; i < clocks.size(); ++i) {
      ASSERT_GE(clocks[i], plan.table.order[i].frequency_mhz) << "round " << round;
      loss += losses.Of(i, clocks[i]);
    }
    const double least = LeastLoss(plan, losses);
    ASSERT_GE(loss, least - 1e-9) << "round " << round;
    total += loss;
    best += least;
    if (thinned.skipped > 0) ++thinned_plans;
  }
  RecordProperty("loss_over_best", std::to_string(total / best));
  EXPECT_GT(thinned_plans, 300);
  // 1.015 with these plans. The factor tells a change of the method from one of the random numbers.
  EXPECT_LT(total / best, 1.02);
}

TEST(Thinning, OfLongPlansKeepsTheLimitAndNoInstructionIsSlower) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    RandomPlan plan = MakeRandom(random, 10 + round, 6);
    if (round % 5 == 0) plan.table.order[static_cast<std::size_t>(round % 10)].frequency_mhz = 0;
    const ThinnedPlan thinned = Thin(plan.table, kAllClocks, plan.limit);
    const std::vector<int> clocks = ClocksOf(thinned.order);
    ASSERT_TRUE(KeepsLimit(ChangesOf(plan.table, clocks), plan.limit)) << "round " << round;
    for (std::size_t i = 0; i < clocks.size(); ++i) {
      const PlannedClock& planned = plan.table.order[i];
      ASSERT_TRUE(clocks[i] == 0 ||
                  (planned.frequency_mhz != 0 && clocks[i] >= planned.frequency_mhz));
      ASSERT_EQ(thinned.order[i].kind, planned.kind);
      ASSERT_EQ(thinned.order[i].microbatch, planned.microbatch);
      ASSERT_EQ(thinned.order[i].chunk, planned.chunk);
    }
  }
}

// ---- The bucket ----

// The agent's bucket over many steps, written again.
bool NothingWaits(const std::vector<TimedChange>& changes, const ChangeLimit& limit) {
  const double capacity = std::max(1.0, limit.per_s);
  double tokens = capacity;
  double last_s = 0;
  for (int step = 0; step < 200; ++step) {
    for (const TimedChange& change : changes) {
      const double at_s = ToSeconds(change.at) + step * ToSeconds(limit.step_time);
      tokens = std::min(capacity, tokens + (at_s - last_s) * limit.per_s);
      last_s = at_s;
      if (change.is_lower && tokens < 1 - 1e-6) return false;
      tokens -= 1;
    }
  }
  return true;
}

TEST(Thinning, TwoStepsOfTheBucketSayWhatManyDo) {
  std::mt19937 random(11);
  int kept = 0;
  for (int round = 0; round < 2000; ++round) {
    const RandomPlan plan = MakeRandom(random, 2 + round % 12, 6);
    const auto changes = ChangesOf(plan.table, ClocksOf(plan.table.order));
    const bool keeps = KeepsLimit(changes, plan.limit);
    if (keeps) {
      ++kept;
      EXPECT_TRUE(NothingWaits(changes, plan.limit)) << "round " << round;
    }
  }
  EXPECT_GT(kept, 200);
  EXPECT_LT(kept, 1800);
}

}  // namespace
}  // namespace perseus::client
