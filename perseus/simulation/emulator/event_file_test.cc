#include "perseus/simulation/emulator/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::emulator {
namespace {

using ::testing::HasSubstr;

TEST(ParseEvents, ReadsAllKindsOfEvents) {
  const auto events = ParseEvents(R"(
[[straggler]]
dp_rank = 3
pp_rank = 2
from = 100
until = 300
slowdown = 1.2
[[straggler]]
dp_rank = 0
max_frequency_mhz = 1050
[[straggler]]
dp_rank = 1
input_delay_s = 0.4
[[plan]]
from = 500
file = "plans/slowdown-5.json"
[[power_cap]]
from = 700
watts = 180000
)",
                                  "events.toml");
  ASSERT_TRUE(events) << events.error().Message();
  ASSERT_EQ(events->disturbances.size(), 3U);
  EXPECT_EQ(events->disturbances[0].dp_rank, 3);
  EXPECT_EQ(events->disturbances[0].pp_rank, 2);
  EXPECT_EQ(events->disturbances[0].from.iteration, 100);
  EXPECT_EQ(events->disturbances[0].until.iteration, 300);
  EXPECT_EQ(events->disturbances[0].value, 1.2);
  EXPECT_EQ(events->disturbances[1].kind, Disturbance::Kind::kThrottle);
  EXPECT_EQ(events->disturbances[1].pp_rank, -1);
  EXPECT_GT(events->disturbances[1].until.iteration, 1'000'000);
  EXPECT_EQ(events->disturbances[2].kind, Disturbance::Kind::kInput);
  EXPECT_EQ(events->plans[0].file, "plans/slowdown-5.json");
  EXPECT_EQ(events->power_caps[0].watts, 180'000);
  EXPECT_GT(events->power_caps[0].until.iteration, 1'000'000);
  EXPECT_EQ(events->disturbances[1].where, "events.toml:8");
  EXPECT_EQ(events->plans[0].where, "events.toml:14");
  EXPECT_EQ(events->power_caps[0].where, "events.toml:17");
}

TEST(ParseEvents, ReadsTimesByTheClock) {
  const auto events = ParseEvents(R"(
[[straggler]]
dp_rank = 0
from_s = 12.5
until_s = 20
slowdown = 1.2
[[plan]]
from = 7
delay_s = 2
file = "p.json"
[[power_cap]]
from_s = 3
delay_s = 0.5
until_s = 9
watts = 1000
)",
                                  "events.toml");
  ASSERT_TRUE(events) << events.error().Message();
  EXPECT_EQ(events->disturbances[0].from.iteration, 0);
  EXPECT_EQ(events->disturbances[0].from.after, 12'500'000'000);
  EXPECT_EQ(events->disturbances[0].until.after, 20'000'000'000);
  EXPECT_EQ(events->plans[0].from.iteration, 7);
  EXPECT_EQ(events->plans[0].from.after, 2'000'000'000);
  EXPECT_EQ(events->power_caps[0].from.after, 3'500'000'000);
  EXPECT_EQ(events->power_caps[0].until.after, 9'000'000'000);
}

struct Bad {
  std::string name;
  std::string text;
  std::string complaint;
};

class BadEvents : public testing::TestWithParam<Bad> {};

TEST_P(BadEvents, AreErrorsWithTheirLine) {
  const auto events = ParseEvents(GetParam().text, "e.toml");
  ASSERT_FALSE(events);
  EXPECT_THAT(events.error().Message(), HasSubstr(GetParam().complaint));
}

INSTANTIATE_TEST_SUITE_P(
    , BadEvents,
    testing::Values(
        Bad{"NotToml", "[[straggler]\n", "e.toml:1: not TOML"},
        Bad{"UnknownTable", "[[stragler]]\ndp_rank = 1\n", "e.toml:1: the event file has no key"},
        Bad{"UnknownKey", "[[straggler]]\ndp_rank = 1\nslow = 2\n", "no key \"slow\""},
        Bad{"NotAList", "straggler = 3\n", "e.toml:1: straggler is not a list of tables"},
        Bad{"NoPipeline", "[[straggler]]\nslowdown = 2\n", "has no dp_rank"},
        Bad{"NegativePipeline", "[[straggler]]\ndp_rank = -1\nslowdown = 2\n",
            "e.toml:2: dp_rank is not a whole number from 0"},
        Bad{"NoWay", "[[straggler]]\ndp_rank = 1\n", "slow in exactly one way"},
        Bad{"TwoWays", "[[straggler]]\ndp_rank = 1\nslowdown = 2\ninput_delay_s = 1\n",
            "slow in exactly one way"},
        Bad{"Faster", "[[straggler]]\ndp_rank = 1\nslowdown = 0.5\n",
            "e.toml:3: slowdown is below 1"},
        Bad{"EndsBeforeItBegins", "[[straggler]]\ndp_rank = 1\nslowdown = 2\nfrom = 5\nuntil = 5\n",
            "ends before"},
        Bad{"EndsBeforeItBeginsByTheClock",
            "[[straggler]]\ndp_rank = 1\nslowdown = 2\nfrom_s = 5.5\nuntil_s = 5\n", "ends before"},
        Bad{"TwoBeginnings", "[[straggler]]\ndp_rank = 1\nslowdown = 2\nfrom_s = 5.5\nfrom = 5\n",
            "e.toml:4: from and from_s are both given"},
        Bad{"NegativeTime", "[[power_cap]]\nwatts = 5\ndelay_s = -1\n",
            "e.toml:3: delay_s is not a number from 0"},
        Bad{"NoFile", "[[plan]]\nfrom = 3\n", "[[plan]] has no file"},
        Bad{"NoWatts", "[[power_cap]]\nfrom = 3\n", "[[power_cap]] has no watts"},
        Bad{"CapEndsBeforeItArrives",
            "[[power_cap]]\nwatts = 5\nfrom_s = 3\ndelay_s = 2\nuntil_s = 4\n",
            "[[power_cap]] ends before"},
        Bad{"WattsAsText", "[[power_cap]]\nwatts = \"many\"\n", "e.toml:2: watts is not a number"}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace perseus::emulator
