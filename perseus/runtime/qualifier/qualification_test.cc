// On a simulated node, the qualification must find the values that the node was given.
#include "perseus/runtime/qualifier/qualification.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include "perseus/runtime/qualifier/estimates.h"
#include "tests/support/results.h"
#include "tests/support/seeds.h"
#include "tests/support/simulated_node.h"

namespace perseus::qualifier {
namespace {

using hardware_facts::Direction;
using hardware_facts::HardwareFacts;
using hardware_facts::SwitchFacts;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<int> Clocks(int lowest_mhz, int highest_mhz, int step_mhz) {
  std::vector<int> clocks_mhz;
  for (int mhz = lowest_mhz; mhz <= highest_mhz; mhz += step_mhz) clocks_mhz.push_back(mhz);
  return clocks_mhz;
}

SimulatedModel PlainModel() {
  SimulatedModel model;
  model.sm_clocks_mhz = Clocks(210, 1410, 15);
  return model;
}

// A node with every behavior at once.
SimulatedModel DifficultModel() {
  SimulatedModel model = PlainModel();
  model.call_ms = 3;
  model.call_per_other_ms = 2.5;
  model.landing_ms = 40;
  model.landing_spread = 0.4;
  model.landing_down_factor = 0.5;
  model.holds_launch_ms = 2;
  model.holds_kernel_ms = 0.1;
  model.holds_copy_ms = 0.5;
  model.holds_collective_ms = 4;
  model.read_holds_launch_ms = 0.02;
  model.time_noise = 0.003;
  model.counter_period_ms = 20;
  model.counter_bias = 0.04;
  model.power_noise = 0.01;
  model.blocked_power_lowest_w = 60;
  model.waiting_mhz = 600;
  return model;
}

// An H100 that computes at its power limit: it reaches about 1,350 of 1,980 MHz (docs/hardware.md).
SimulatedModel H100AtItsPowerLimit() {
  SimulatedModel model;
  model.sm_clocks_mhz = Clocks(345, 1980, 15);
  model.landing_spread = 0.4;
  model.holds_kernel_ms = 0.1;
  model.time_noise = 0.003;
  model.late_launches_per_s = 2;
  model.power_noise = 0.01;
  model.idle_power_w = 120;
  model.blocked_power_w = 150;
  model.blocked_power_lowest_w = 125;
  model.busy_power_w = 1640;
  model.power_limit_w = 700;
  return model;
}

std::vector<SimulatedModel> Gpus(int count, const SimulatedModel& model) {
  return std::vector<SimulatedModel>(static_cast<std::size_t>(count), model);
}

bool Covers(const Estimate& estimate, double truth) {
  return estimate.low <= truth && truth <= estimate.high;
}

const SwitchFacts* Find(const HardwareFacts& facts, Direction direction, bool is_far,
                        bool all_gpus) {
  for (const SwitchFacts& one : facts.switches) {
    if (one.direction == direction && one.is_far == is_far && one.all_gpus == all_gpus) return &one;
  }
  return nullptr;
}

const Estimate* Find(const HardwareFacts& facts, std::string_view kind, double changes_per_s,
                     double reads_per_s) {
  for (const auto& one : facts.interference) {
    if (one.kind == kind && std::abs(one.changes_per_s - changes_per_s) < 1e-6 &&
        one.reads_per_s == reads_per_s) {
      return &one.slowdown;
    }
  }
  return nullptr;
}

// Returns the median of the largest of n landings with a log-normal distribution.
double MedianOfSlowest(double median_ms, double spread, int n) {
  const double quantile = boost::math::quantile(boost::math::normal(), std::pow(0.5, 1.0 / n));
  return median_ms * std::exp(spread * quantile);
}

// Expects that the facts of every qualification can be written and read.
Qualification Qualified(SimulatedNode& node, const QualifyOptions& options) {
  auto qualified = Qualify(node, options);
  EXPECT_TRUE(qualified) << qualified.error().Message();
  Qualification found = std::move(qualified).value_or(Qualification());
  HardwareFacts named = found.facts;
  named.host = named.driver_version = named.perseus_version = "x";
  named.measured_at = "2026-02-22T17:05:00Z";
  EXPECT_EQ(ValueOf(hardware_facts::Parse(hardware_facts::Format(named), "facts.toml")), named);
  return found;
}

Qualification Qualified(const SimulatedModel& model, int gpus, double duration_s = 30) {
  SimulatedNode node(Gpus(gpus, model), 1);
  return Qualified(node, {.duration_s = duration_s});
}

HardwareFacts FactsOf(const SimulatedModel& model, int gpus, double duration_s = 30) {
  return Qualified(model, gpus, duration_s).facts;
}

// The greatest harmless rate of changes.
Estimate RateOf(const HardwareFacts& facts) {
  EXPECT_TRUE(facts.max_changes_per_s);
  return facts.max_changes_per_s.value_or(Estimate{-1, -1, -1});
}

// Counts how often an interval covers the truth.
struct Coverage {
  int covered = 0, all = 0;
  void Add(const Estimate* estimate, double truth) {
    ++all;
    covered += estimate != nullptr && Covers(*estimate, truth);
  }
  void Add(const std::optional<Estimate>& estimate, double truth) {
    Add(estimate ? &*estimate : nullptr, truth);
  }
  double share() const { return all == 0 ? 0 : static_cast<double>(covered) / all; }
};

struct Coverages {
  Coverage latency, call, stall, power, counter, slowdown;
};

void CompareSwitches(const HardwareFacts& facts, const SimulatedModel& model,
                     Coverages& coverages) {
  for (const Direction direction : {Direction::kUp, Direction::kDown}) {
    for (const bool is_far : {true, false}) {
      for (const bool all_gpus : {true, false}) {
        const int set_at_once = all_gpus ? facts.gpu_count : 1;
        const double call_ms = model.CallMs(set_at_once);
        const double landing_ms = MedianOfSlowest(
            model.landing_ms * (direction == Direction::kDown ? model.landing_down_factor : 1),
            model.landing_spread, set_at_once);
        const SwitchFacts* found = Find(facts, direction, is_far, all_gpus);
        ASSERT_NE(found, nullptr);
        coverages.latency.Add(&found->latency_ms, call_ms + landing_ms);
        coverages.call.Add(&found->call_ms, call_ms);
        coverages.stall.Add(found->stall_ms, model.holds_kernel_ms);
        EXPECT_GE(found->p95_latency_ms, found->latency_ms.value);
      }
    }
  }
}

void ComparePower(const HardwareFacts& facts, const SimulatedModel& model, Coverages& coverages) {
  ASSERT_EQ(facts.power.size(), 5U);
  const double bias = 1 + model.counter_bias;  // The counter measures the power.
  for (const auto& one : facts.power) {
    const int mhz = one.sm_clock_mhz;
    coverages.power.Add(one.idle_w, bias * model.MeanPower(Load::kIdle, mhz));
    coverages.power.Add(one.blocked_w, bias * model.MeanPower(Load::kBlocked, mhz));
    coverages.power.Add(one.busy_w, bias * model.MeanPower(Load::kCompute, mhz));
  }
  EXPECT_EQ(facts.range_lock_saves, true);

  ASSERT_TRUE(facts.energy_counter);
  coverages.counter.Add(&facts.energy_counter->period_ms, model.counter_period_ms);
  coverages.counter.Add(&facts.energy_counter->bias, model.counter_bias);
  EXPECT_DOUBLE_EQ(facts.energy_counter->resolution_j, model.counter_resolution_j);
}

void CompareInterference(const HardwareFacts& facts, const SimulatedModel& model,
                         Coverage& slowdown) {
  struct Held {
    const char* kind;
    double ms;
  };
  for (const Held held :
       {Held{"launch", model.holds_launch_ms}, Held{"kernel", model.holds_kernel_ms},
        Held{"copy", model.holds_copy_ms}, Held{"collective", model.holds_collective_ms}}) {
    for (const double period_ms : {1000., 500., 200., 100., 50., 20., 10.}) {
      // A change of all GPUs takes 10.5 ms, which is close enough to a period of 10 ms.
      const double made_ms = std::max(period_ms, 10.5);
      slowdown.Add(Find(facts, held.kind, 1000 * facts.gpu_count / period_ms, 0),
                   1 / (1 - held.ms / made_ms) - 1);
    }
  }
  slowdown.Add(Find(facts, "launch", 0, 25), 1 / (1 - 0.19 * model.read_holds_launch_ms) - 1);
  slowdown.Add(Find(facts, "copy", 0, 25), 0);
}

TEST(Qualification, FindsWhatTheNodeWasGivenWithinItsIntervals) {
  const SimulatedModel model = DifficultModel();
  constexpr int kNodes = 8;
  Coverages coverages;
  for (std::uint64_t seed = 1; seed <= kNodes; ++seed) {
    SimulatedNode node(Gpus(4, model), seed);
    const HardwareFacts facts = Qualified(node, {.duration_s = 60}).facts;
    EXPECT_EQ(facts.gpu_count, 4);
    CompareSwitches(facts, model, coverages);
    ComparePower(facts, model, coverages);
    CompareInterference(facts, model, coverages.slowdown);
    // A clock change delays a collective for 4 ms. This is 1 % at 9.9 changes a second of four
    // GPUs. The nearest tested rates are 8 and 20. Noise makes the result lower, never higher.
    const Estimate rate = RateOf(facts);
    EXPECT_THAT(rate.value, AnyOf(0.0, 4.0, 8.0));
    EXPECT_EQ(rate.low, rate.value);
    EXPECT_THAT(rate.high, AnyOf(20.0, 40.0));
  }
  const auto& [latency, call, stall, power, counter, slowdown] = coverages;
  // 95 % intervals cover the truth in 19 of 20 cases. The seeds are fixed, so the shares are fixed,
  // too.
  EXPECT_GE(latency.share(), 0.92) << latency.covered << " of " << latency.all;
  EXPECT_EQ(call.share(), 1);
  EXPECT_EQ(stall.share(), 1) << stall.covered << " of " << stall.all;
  EXPECT_GE(power.share(), 0.92) << power.covered << " of " << power.all;
  EXPECT_GE(counter.share(), 0.85) << counter.covered << " of " << counter.all;
  EXPECT_GE(slowdown.share(), 0.92) << slowdown.covered << " of " << slowdown.all;
}

TEST(Qualification, IntervalsAreNarrowEnoughToBeUseful) {
  const HardwareFacts facts = FactsOf(DifficultModel(), 4, 300);
  for (const SwitchFacts& one : facts.switches) {
    // 80 samples of a log-normal with a spread of 0.4: about +- 12 %.
    EXPECT_LT(one.latency_ms.high - one.latency_ms.low, 0.4 * one.latency_ms.value);
  }
  for (const auto& one : facts.power) {
    EXPECT_LT(one.busy_w->high - one.busy_w->low, 0.05 * one.busy_w->value);
  }
  // The intervals decide whether a slowdown is above 1 %. A large slowdown needs no narrow one.
  for (const auto& one : facts.interference) {
    if (one.slowdown.value > 0.05) continue;
    EXPECT_LT(one.slowdown.high - one.slowdown.low, 0.02) << one.kind << one.changes_per_s;
  }
}

struct RateCase {
  const char* name;
  double SimulatedModel::*field;
  double is;
  double value, high;  // The expected rate. A `high` of 0 is not compared.
  const char* limit;
};

TEST(Qualification, TheHarmlessRateOfTwoGpus) {
  const RateCase cases[] = {
      // Two GPUs change their clock every 10 ms each. The result says nothing about higher rates,
      // which were not tried.
      {"plain", &SimulatedModel::time_noise, 0, 200, 200, nullptr},
      {"stops for long", &SimulatedModel::holds_collective_ms, 100, 0, 2,
       "Even 2 changes a second harm"},
      {"slow driver", &SimulatedModel::call_ms, 60, 20, 20,
       "managed at most 33.3 changes a second"},
      {"noise hides harm", &SimulatedModel::time_noise, 0.2, 0, 0,
       "No rate is shown to be harmless"},
  };
  for (const RateCase& one : cases) {
    SCOPED_TRACE(one.name);
    SimulatedModel model = PlainModel();
    model.*one.field = one.is;
    const HardwareFacts facts = FactsOf(model, 2);
    EXPECT_EQ(RateOf(facts).value, one.value);
    if (one.high > 0) {
      EXPECT_EQ(RateOf(facts).high, one.high);
    }
    EXPECT_EQ(facts.range_lock_saves, false);
    // A rate that the driver does not reach is not a result.
    for (const double rate : {20.0, 40.0}) {
      EXPECT_EQ(Find(facts, "launch", rate, 0) != nullptr, rate <= 33.3 || model.call_ms < 60);
    }
    if (one.limit != nullptr) {
      EXPECT_THAT(facts.limits, Contains(HasSubstr(one.limit)));
    }
  }
}

// All GPUs are measured at once. So the values of the odd GPU are noticed and left out.
TEST(Qualification, AGpuThatDiffersFromItsSiblingsIsNamed) {
  std::vector<SimulatedModel> models = Gpus(4, PlainModel());
  models[2].counter_period_ms *= 2;
  for (double* power_w : {&models[2].idle_power_w, &models[2].busy_power_w,
                          &models[2].blocked_power_w, &models[2].blocked_power_lowest_w}) {
    *power_w *= 1.3;
  }
  SimulatedNode node(models, 1);
  const HardwareFacts facts = Qualified(node, {.duration_s = 60}).facts;
  EXPECT_THAT(facts.limits,
              Contains(AllOf(HasSubstr("GPU-virtual-2 differs from its siblings: its period of "
                                       "the energy counter is "),
                             HasSubstr("and the median of 4 GPUs is"))));
  EXPECT_THAT(facts.limits, Not(Contains(HasSubstr("GPU-virtual-1 differs"))));
  ASSERT_TRUE(facts.energy_counter);
  EXPECT_TRUE(Covers(facts.energy_counter->period_ms, 100));
  EXPECT_LT(facts.energy_counter->period_ms.high, 150);
  ASSERT_FALSE(facts.power.empty());
  EXPECT_TRUE(Covers(*facts.power.front().busy_w, models[0].busy_power_w));
  EXPECT_LT(facts.power.front().busy_w->high, 1.2 * models[0].busy_power_w);
}

TEST(Qualification, LandingsAfterASecondAreSeen) {
  SimulatedModel model = PlainModel();
  model.landing_ms = 1200;
  const HardwareFacts facts = FactsOf(model, 1);
  const SwitchFacts* found = Find(facts, Direction::kUp, true, false);
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(Covers(found->latency_ms, 1201));
}

TEST(Qualification, ClocksThatNeverLandAreALimit) {
  SimulatedModel model = PlainModel();
  model.landing_ms = 1e7;
  const HardwareFacts facts = FactsOf(model, 1);
  EXPECT_TRUE(facts.switches.empty());
  EXPECT_THAT(facts.limits, Contains(HasSubstr("were not seen")));
}

// A change between two clocks above the reached clock cannot be seen. The clocks of the list alone
// would not do: a far change up has a ratio of 1.70 where 1.75 are needed.
TEST(Qualification, AtAPowerLimitChangesAreMeasuredBetweenClocksThatAreReached) {
  const SimulatedModel model = H100AtItsPowerLimit();
  const HardwareFacts facts = FactsOf(model, 2, 60);
  EXPECT_EQ(facts.switches.size(), 8);
  for (const SwitchFacts& one : facts.switches) {
    const double landing_ms =
        MedianOfSlowest(model.landing_ms, model.landing_spread, one.all_gpus ? 2 : 1);
    EXPECT_NEAR(one.latency_ms.value, model.call_ms + landing_ms, 0.25 * landing_ms);
  }
  EXPECT_THAT(facts.limits, Contains(HasSubstr("the GPUs keep at most 1320 of 1980 MHz")));
  EXPECT_THAT(facts.limits, Not(Contains(HasSubstr("not seen"))));
}

// Without readings, nobody knows the reached clock.
TEST(Qualification, ChangesThatCannotBeSeenAreALimit) {
  SimulatedModel model = H100AtItsPowerLimit();
  model.can_read = false;
  const HardwareFacts facts = FactsOf(model, 1);
  EXPECT_EQ(Find(facts, Direction::kUp, false, false), nullptr);
  EXPECT_THAT(facts.limits, Contains(HasSubstr("2 of 2 far switches up of one GPU were not seen")));
}

using Numbers = std::map<std::string, Estimate>;
Numbers NumbersOf(const HardwareFacts& facts) {
  Numbers numbers;
  const auto add = [&](const std::string& name, const std::optional<Estimate>& value) {
    if (value) numbers[name] = *value;
  };
  for (const SwitchFacts& one : facts.switches) {
    const auto name = fmt::format("{}{}{}", one.direction == Direction::kUp ? "up" : "down",
                                  one.is_far ? " far" : "", one.all_gpus ? " all" : "");
    add(name + " latency", one.latency_ms);
    add(name + " call", one.call_ms);
    add(name + " stall", one.stall_ms);
  }
  for (const auto& one : facts.power) {
    add(fmt::format("{} idle", one.sm_clock_mhz), one.idle_w);
    add(fmt::format("{} blocked", one.sm_clock_mhz), one.blocked_w);
    add(fmt::format("{} busy", one.sm_clock_mhz), one.busy_w);
  }
  add("period", facts.energy_counter->period_ms);
  add("bias", facts.energy_counter->bias);
  for (const auto& one : facts.interference) {
    add(fmt::format("{} {} {}", one.kind, one.changes_per_s, one.reads_per_s), one.slowdown);
  }
  add("rate", facts.max_changes_per_s);
  return numbers;
}

TEST(Qualification, ASecondRunConfirmsTheNumbersOfTheFirst) {
  constexpr std::uint64_t kRuns = kHasFewCases ? 2 : 8;
  int confirmed = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= kRuns; seed += 2) {
    SimulatedNode first_node(Gpus(4, H100AtItsPowerLimit()), seed);
    SimulatedNode second_node(Gpus(4, H100AtItsPowerLimit()), seed + 1);
    const Numbers first = NumbersOf(Qualified(first_node, {}).facts);
    const Numbers second = NumbersOf(Qualified(second_node, {}).facts);
    // The estimates of 8 cases, 5 clocks, the counter, and 4 operations with 7 rates and with
    // readings.
    EXPECT_EQ(first.size(), 8U * 3 + 5U * 3 + 2U + 4U * 8 + 1U);
    for (const auto& [name, value] : first) {
      ASSERT_TRUE(second.contains(name)) << name;
      const Estimate& again = second.at(name);
      const bool is_confirmed = value.low <= again.high && again.low <= value.high;
      ++all;
      confirmed += is_confirmed;
      if (!is_confirmed) {
        std::cout << fmt::format("{}: {} to {}, then {} to {}\n", name, value.low, value.high,
                                 again.low, again.high);
      }
    }
  }
  // Two independent 95 % intervals of one value do not overlap in less than 1 % of all cases.
  EXPECT_GE(confirmed, 0.98 * all);
}

TEST(Qualification, WithoutRightsTheRestIsMeasured) {
  SimulatedModel model = PlainModel();
  model.can_set_clocks = false;
  const Qualification qualified = Qualified(model, 2);
  const auto& facts = qualified.facts;
  EXPECT_FALSE(qualified.has_set_clocks);
  EXPECT_TRUE(facts.switches.empty());
  EXPECT_FALSE(facts.max_changes_per_s);
  EXPECT_FALSE(facts.range_lock_saves);
  ASSERT_EQ(facts.power.size(), 1U);
  EXPECT_TRUE(facts.energy_counter);
  EXPECT_NE(Find(facts, "launch", 0, 25), nullptr);
  EXPECT_THAT(facts.limits, Contains(HasSubstr("permission denied")));
}

TEST(Qualification, IfOneGpuRefusesNoClockStaysSet) {
  std::vector<SimulatedModel> models = Gpus(2, PlainModel());
  models[1].can_set_clocks = false;
  SimulatedNode node(models, 1);
  const Qualification qualified = Qualified(node, {.duration_s = 30});
  EXPECT_TRUE(qualified.has_set_clocks);  // The caller restores the settings from before.
  EXPECT_EQ(node.device(0).ReadSetting(device::Control::kSmClock)->setting, std::nullopt);
  EXPECT_TRUE(qualified.facts.switches.empty());
  EXPECT_THAT(qualified.facts.limits, Contains(HasSubstr("permission denied")));
}

TEST(Qualification, GpusOfDifferentKindsAreRefused) {
  std::vector<SimulatedModel> models = Gpus(2, PlainModel());
  models[1].name = "Another GPU";
  SimulatedNode node(models, 1);
  EXPECT_THAT(
      Qualify(node, {.duration_s = 30}),
      FailsWith(AllOf(HasSubstr("GPU-virtual-1 (Another GPU)"), HasSubstr("`gpu = UUID`"))));
  EXPECT_EQ(node.writes(), 0);
}

TEST(Qualification, WithoutReadingsTheRestIsMeasured) {
  SimulatedModel model = PlainModel();
  model.can_read = false;
  const HardwareFacts facts = FactsOf(model, 2);
  EXPECT_TRUE(facts.power.empty());
  EXPECT_FALSE(facts.energy_counter);
  EXPECT_FALSE(facts.range_lock_saves);
  EXPECT_FALSE(facts.switches.empty());
  EXPECT_TRUE(facts.max_changes_per_s);
  EXPECT_EQ(Find(facts, "launch", 0, 25), nullptr);
  EXPECT_THAT(facts.limits, Contains(HasSubstr("cannot read the power: not supported")));
}

TEST(Qualification, NoClocksMeansNoWrites) {
  SimulatedNode node(Gpus(2, PlainModel()), 1);
  const Qualification qualified = Qualified(node, {.duration_s = 30, .sets_clocks = false});
  EXPECT_EQ(node.writes(), 0);
  EXPECT_TRUE(qualified.facts.switches.empty());
}

TEST(Qualification, OneGpuHasNoCollectives) {
  const HardwareFacts facts = FactsOf(PlainModel(), 1);
  EXPECT_EQ(Find(facts, "collective", 0, 25), nullptr);
  EXPECT_THAT(facts.limits,
              Contains(HasSubstr("\"collective\" was not measured: the node has only one GPU")));
  for (const SwitchFacts& one : facts.switches) EXPECT_FALSE(one.all_gpus);
}

TEST(Qualification, StopsWhenAsked) {
  SimulatedNode node(Gpus(2, PlainModel()), 1);
  int asked = 0;
  EXPECT_THAT(Qualify(node, {.duration_s = 300, .should_stop = [&] { return ++asked > 40; }}),
              FailsWith(HasSubstr("interrupted")));
}

}  // namespace
}  // namespace perseus::qualifier
