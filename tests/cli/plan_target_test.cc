// Tests that every plan of `perseus plan` keeps its target, for all other flags: a limit of clock
// changes, a trade-off, noise, hardware facts, another schedule, the cost of a change. If a target
// cannot be kept, the result is an error with a value that can be kept.
#include <fmt/core.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using nlohmann::json;

constexpr const char* kSmallJob = " --microbatches 2 --blocking-power 83.64 ";
constexpr const char* kSlowdown = "--slowdown 3 ";

struct Path {
  const char* name;
  const char* flags;
  const char* job = "profile.csv --schedule 1f1b";
};

// A target as a flag, and what it limits: "time_s", "energy_j" or "average_power_w".
struct Asked {
  std::string flag;
  const char* limits;
  double value;
};

class PlanTargetTest : public CommandTest, public testing::WithParamInterface<Path> {
 protected:
  PlanTargetTest() {
    RunWell("synth --stages 2 -o profile.csv");  // Tiny jobs get shorter searches.
    Write("facts.toml", kFactsOfA100);
    // The last stage lacks a clock that the other stages have, so some limits have no plan.
    std::string rows;
    std::istringstream lines(Read("profile.csv"));
    for (std::string row; std::getline(lines, row);) {
      if (row.find("1,backward,1410,") == std::string::npos) rows += row + '\n';
    }
    Write("missing.csv", rows);
  }

  std::string Plan() const { return std::string("plan ") + GetParam().job + kSmallJob; }
  std::string Command(const std::string& targets) const {
    return Plan() + GetParam().flags + ' ' + targets + "--json";
  }

  // Targets from one end of the frontier to the other, and beyond both ends. Some targets are
  // exactly the values of the plan with no slowdown, because limits are picked for this plan.
  std::vector<Asked> Targets() const {
    const Outcome outcome = Run(Plan() + "--per-instruction --json");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const json summary = json::parse(outcome.out);
    const json& fastest = Find(summary, "no-slowdown");
    const json& least = Find(summary, "least-energy");
    std::vector<Asked> targets;
    for (const auto& [flag, key] :
         {std::pair("--energy-budget", "energy_j"), std::pair("--power-cap", "average_power_w"),
          std::pair("--deadline", "time_s")}) {
      const double from = fastest[key];
      const double to = least[key];
      for (const double part : {-0.1, 0.0, 0.05, 0.6, 1.05}) {
        const std::string value = fmt::format("{:.9g}", from + part * (to - from));
        targets.push_back({fmt::format("{} {} ", flag, value), key, std::stod(value)});
      }
    }
    targets.push_back({kSlowdown, "time_s", 0});
    return targets;
  }

  static const json& Find(const json& summary, const std::string& name) {
    for (const json& plan : summary["plans"]) {
      if (plan["name"] == name) return plan;
    }
    ADD_FAILURE() << "no plan " << name;
    return summary;
  }
  // Checks the plan of the target. The plan has the name of the target: "power-cap-2000w".
  static void ExpectKept(const json& summary, const Asked& asked) {
    const json& plans = summary["plans"];
    constexpr double kRounding = 1 + 1e-9;  // Covers the rounding to nanoseconds and of a quotient.
    const std::string name = asked.flag.substr(2, asked.flag.find(' ') - 2) + '-';
    const auto plan = std::ranges::find_if(plans, [&](const json& one) {
      return one["name"].get<std::string>().starts_with(name) &&
             (asked.flag != kSlowdown || one["name"] == "slowdown-3");
    });
    ASSERT_NE(plan, plans.end());
    // At maximum frequency, too, clocks change if one is missing. So the baseline is that of the
    // job itself.
    const double value =
        asked.flag == kSlowdown ? 1.03 * summary["baseline"]["time_s"].get<double>() : asked.value;
    EXPECT_LE((*plan)[asked.limits], value * kRounding) << *plan;
  }
};

TEST_P(PlanTargetTest, EveryPlanKeepsItsTarget) {
  for (const Asked& asked : Targets()) {
    SCOPED_TRACE(asked.flag);
    Asked possible = asked;
    Outcome outcome = Run(Command(asked.flag));
    // If the target is impossible, the error has the nearest possible value. The first error
    // ignores the limit of clock changes, and the second one includes it. This value can be
    // requested with success. With noise, the error has a slowdown, and no time.
    const auto has_slowdown = [&] {
      return outcome.err.find("with this noise") != std::string::npos;
    };
    for (int refusals = 0; outcome.status == 3 && refusals < 2 && !has_slowdown(); ++refusals) {
      std::smatch nearest;
      const std::regex value("(?:is|takes) ([0-9.]+) [sJW]");
      ASSERT_TRUE(std::regex_search(outcome.err, nearest, value)) << outcome.err;
      possible.value = std::stod(nearest[1]);
      EXPECT_GT(possible.value, asked.value);
      possible.flag = asked.flag.substr(0, asked.flag.find(' ') + 1) + nearest[1].str() + ' ';
      outcome = Run(Command(possible.flag));
    }
    if (has_slowdown()) continue;
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    ExpectKept(json::parse(outcome.out), possible);
  }
}

using UnaskedTargetTest = ProgramTest;

// The table also has targets that the user did not request. Some of these targets have no plan with
// so few changes.
TEST_F(UnaskedTargetTest, ATargetThatNobodyAsksForMayHaveNoPlan) {
  std::string rows;
  std::istringstream lines(RunWell("synth --gpu a100 --stages 4"));
  for (std::string row; std::getline(lines, row);) {
    std::smatch clock;
    const std::regex longest("3,backward,([0-9]+),.*");
    if (std::regex_match(row, clock, longest) && std::stoi(clock[1]) > 1305) continue;
    rows += row + '\n';
  }
  Write("slow.csv", rows);
  const std::string plan = std::string("plan slow.csv --schedule 1f1b") + kSmallJob +
                           "--max-switches 0 --effort 0 --json ";
  const Outcome refused = Run(plan);
  EXPECT_EQ(refused.status, 3) << refused.out;
  std::smatch nearest;
  ASSERT_TRUE(std::regex_search(refused.err, nearest, std::regex("takes ([0-9.]+) s")))
      << refused.err;
  const Outcome outcome = Run(plan + "--deadline " + nearest[1].str());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json plans = json::parse(outcome.out)["plans"];
  EXPECT_NE(plans.front()["name"], "no-slowdown");
  EXPECT_TRUE(plans.back()["name"].get<std::string>().starts_with("deadline-")) << plans.back();
}

INSTANTIATE_TEST_SUITE_P(
    Flags, PlanTargetTest,
    testing::Values(Path{"Default", ""}, Path{"FirstLook", "--effort 0"},
                    Path{"PerInstruction", "--per-instruction"},
                    Path{"NoChange", "--max-switches 0 --effort 0"},
                    Path{"Limit", "--max-switches 2 --effort 0"},
                    Path{"LimitAndTradeoff", "--max-switches 2 --switch-tradeoff --effort 0"},
                    Path{"Noise", "--noise 4 --effort 0"},
                    Path{"NoiseAndLimit", "--noise 1 --max-switches 3 --effort 0"},
                    Path{"Facts", "--facts facts.toml --effort 0"},
                    Path{"Latency", "--switch-latency 5 --effort 0"},
                    Path{"LatencyAndLimit", "--switch-latency 5 --max-switches 2 --effort 0"},
                    Path{"ScheduleAuto", "--effort 0", "profile.csv --schedule auto"},
                    Path{"Cost", "--switch-cost 0.0005,0.1 --effort 0"},
                    Path{"MissingClock", "", "missing.csv --schedule 1f1b"},
                    Path{"MissingClockAndLimit", "--max-switches 8 --effort 0",
                         "missing.csv --schedule 1f1b"}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace perseus
