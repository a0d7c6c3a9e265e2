// Tests `perseus plan`: its table, its files, and its targets.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <regex>
#include <sstream>

#include "perseus/base/file.h"
#include "tests/cli/program.h"

namespace perseus {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

class PlanVerbTest : public CommandTest {
 protected:
  PlanVerbTest() { MakeProfile(); }

  const std::string plan_ = std::string("plan profile.csv") + kJob;
};

const json& PlanNamed(const json& summary, const std::string& name) {
  const json& plans = summary["plans"];
  const auto found = std::find_if(plans.begin(), plans.end(),
                                  [&](const json& plan) { return plan["name"] == name; });
  EXPECT_NE(found, plans.end()) << name << " is not in " << summary;
  return *found;
}

TEST_F(PlanVerbTest, PrintsATableAndAFinding) {
  const std::string out = RunWell(plan_);
  EXPECT_THAT(out, ContainsRegex("^at most [0-9]+ switches per GPU and iteration:\n\nplan "));
  for (const char* row :
       {"\nmaximum frequency", "\nno slowdown", "\n5 % slowdown", "\nleast energy"}) {
    EXPECT_THAT(out, HasSubstr(row));
  }
  EXPECT_THAT(OneLine(out), HasSubstr("of the energy at maximum frequency"));
  EXPECT_THAT(out, HasSubstr("No plan was saved (-o DIR"));
  EXPECT_THAT(Files("."), ElementsAre("profile.csv"));  // Without -o, the program writes no files.
  ExpectComplaint(Run(plan_ + "--stops 3"), 2, "--stops needs a directory for the report");
}

// At a power limit, the highest clocks of a profile have the same time and energy, because a GPU
// reaches none of them.
TEST_F(PlanVerbTest, OfEqualClocksPlansUseTheLowest) {
  constexpr int kReachedMhz = 1110;
  const std::regex of_clock("([0-9]+,[a-z]+,)([0-9]+)(,.*)");
  std::istringstream rows(Read("profile.csv"));
  std::string capped;
  std::string row;
  std::smatch parts;
  std::vector<std::string> higher;  // The begins of the rows above the reached clock.
  int equal = 0;
  while (std::getline(rows, row)) {
    if (std::regex_match(row, parts, of_clock)) {
      if (std::stoi(parts[2]) > kReachedMhz) {
        higher.push_back(parts[1].str() + parts[2].str());
        continue;
      }
      for (const std::string& begin : higher) capped += begin + parts[3].str() + "\n";
      equal += static_cast<int>(higher.size());
      higher.clear();
    }
    capped += row + "\n";
  }
  ASSERT_EQ(equal, 20 * 8);  // 20 clocks of 8 instructions.
  Write("profile.csv", capped);
  for (const std::string flags : {"", " --per-instruction", " --max-switches 2"}) {
    const Outcome made = Run(plan_ + " --no-frontier -o out" + flags);
    EXPECT_EQ(made.status, 0);
    EXPECT_THAT(made.err, Not(HasSubstr("warning")));
    const json plan = json::parse(Read("out/plans/no-slowdown.json"));
    int highest = 0;
    for (const json& rank : plan.at("pp_ranks")) {
      for (const json& one : rank.at("instructions")) {
        highest = std::max(highest, one.value("frequency", 0));
      }
    }
    EXPECT_EQ(highest, kReachedMhz) << flags;
    EXPECT_LT(plan.at("energy_j"), plan.at("baseline").at("energy_j"));
  }
}

TEST_F(PlanVerbTest, RowsOfAVeryShortJobDiffer) {
  Write("short.csv",
        "stage,instruction,frequency,time,energy\n"
        "0,forward,1400,0.0000010,0.0004\n0,forward,1200,0.0000012,0.0003\n"
        "0,backward,1400,0.0000010,0.0004\n0,backward,1200,0.0000012,0.0003\n");
  EXPECT_THAT(RunWell("plan short.csv --schedule 1f1b --microbatches 1 --blocking-power 8"
                      " --per-instruction"),
              AllOf(HasSubstr(" 0.00000200000 "), HasSubstr(" 0.00000220000 ")));
}

TEST_F(PlanVerbTest, WritesTheFilesThatTheSummaryLists) {
  const std::string printed = RunWell(plan_ + "--slowdown 7 -o out --json");
  EXPECT_EQ(printed, Read("out/summary.json"));
  const std::vector<std::string> files = Files("out");
  EXPECT_THAT(files,
              IsSupersetOf({"frontier.csv", "plans/least-energy.json", "plans/no-slowdown.json",
                            "plans/slowdown-7.json", "summary.json", "trace.json"}));
  auto listed = json::parse(Read("out/summary.json"))["files"].get<std::vector<std::string>>();
  listed.emplace_back("summary.json");
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(files, listed);
  for (const std::string& file : files) {
    if (file.ends_with(".json")) {
      EXPECT_TRUE(json::accept(Read("out/" + file))) << file;
    }
  }
  std::istringstream rows(Read("out/frontier.csv"));
  std::string row;
  std::getline(rows, row);
  EXPECT_EQ(row, "time,energy_bound,marginal_watts,energy_error");
  std::vector<double> times_s;
  while (std::getline(rows, row)) times_s.push_back(std::stod(row));
  EXPECT_EQ(std::ranges::adjacent_find(times_s, std::greater_equal()), times_s.end());
  EXPECT_EQ(json::parse(printed)["frontier"]["breakpoints"], times_s.size());
  // The trace shows the plan of the first target.
  EXPECT_THAT(Read("out/trace.json"), AllOf(HasSubstr("7 % slowdown"), Not(HasSubstr("least"))));
}

// The search for a plan is not exact, especially with a switch latency.
TEST_F(PlanVerbTest, NoRowIsBetterForTheTargetOfAnotherRow) {
  std::string flags = "--edp --price 0.12 0.5 ";
  for (int percent = 1; percent <= 16; ++percent) flags += fmt::format("--slowdown {} ", percent);
  for (const std::string latency : {"", "--switch-latency 12 "}) {
    const json summary =
        RunJson("plan profile.csv --schedule 1f1b --microbatches 2 --blocking-power 83.64 " +
                flags + latency);
    const auto edp = [](const json& plan) {
      return plan["energy_j"].get<double>() * plan["time_s"].get<double>();
    };
    const auto dollars = [](const json& plan) {  // For 4 GPUs.
      return plan["energy_j"].get<double>() / 3.6e6 * 0.12 +
             plan["time_s"].get<double>() / 3600 * 0.5 * 4;
    };
    double former_j = summary["baseline"]["energy_j"];
    for (const json& plan : summary["plans"]) {
      SCOPED_TRACE(plan["target"].get<std::string>() + latency);
      EXPECT_GE(plan["energy_j"], PlanNamed(summary, "least-energy")["energy_j"]);
      EXPECT_GE(edp(plan), edp(PlanNamed(summary, "least-energy-delay")));
      EXPECT_GE(dollars(plan), dollars(PlanNamed(summary, "price-0.12-0.5")));
      EXPECT_LE(plan["time_s"], plan["deadline_s"]);
      EXPECT_LE(plan["lower_bound_j"].get<double>(), plan["energy_j"].get<double>() * (1 + 1e-9));
      if (!plan["name"].get<std::string>().starts_with("slowdown")) continue;
      EXPECT_LE(plan["energy_j"], former_j);
      former_j = plan["energy_j"];
    }
  }
}

TEST_F(PlanVerbTest, FlagsOverrideTheJobFile) {
  Write("jobs/job.toml",
        "profile = \"../profile.csv\"\n[pipeline]\nschedule = \"gpipe\"\npp_ranks = 4\n"
        "microbatches = 6\n[gpu]\nblocking_power_w = 83.64\n");
  const json of_file = RunJson("plan --job jobs/job.toml");
  EXPECT_EQ(of_file["job"]["schedule"], "gpipe");
  EXPECT_EQ(of_file["job"]["instructions"], 4 * 2 * 6);
  const json of_flags =
      RunJson("plan --job jobs/job.toml --schedule 1f1b --microbatches 8 --blocking-power 83.64");
  EXPECT_EQ(of_flags["job"]["schedule"], "1f1b");
  EXPECT_EQ(of_flags["plans"], RunJson(plan_)["plans"]);
}

TEST_F(PlanVerbTest, TheShownTableOfLimitsIsThatOfThePlans) {
  const std::string plan =
      "plan profile.csv --schedule 1f1b --microbatches 8 --blocking-power 80 --no-frontier "
      "--effort 0 --slowdown 3 ";
  const json shown = RunJson(plan + "--switch-tradeoff");
  EXPECT_EQ(shown["plans"], RunJson(plan + "--max-switches auto")["plans"]);
  EXPECT_TRUE(shown["plans"][0].contains("max_switches"));
}

// The facts allow 16 changes per second of 8 GPUs.
TEST_F(PlanVerbTest, TheRateOfHardwareFactsLimitsClockChanges) {
  const std::string facts = ReadFile(PERSEUS_SOURCE_DIR "/examples/hardware-facts.toml").value();
  const auto write_facts = [&](const std::string& name, int changes_per_s) {
    const std::string rate = "{value = 80, low = 80";
    std::string other = facts;
    other.replace(other.find(rate), rate.size(),
                  fmt::format("{{value = {0}, low = {0}", changes_per_s));
    Write(name, other);
  };
  write_facts("two.toml", 16);
  const std::string plan =
      "plan profile.csv --schedule 1f1b --microbatches 8 --no-frontier --effort 0 --facts "
      "two.toml ";
  const Outcome per_instruction =
      Run(plan + "--switch-latency 0 --switch-cost 0 --per-instruction --json");
  EXPECT_THAT(per_instruction.err, HasSubstr("two.toml allows 2 (use a lower --max-switches"));
  const json free = json::parse(per_instruction.out);
  const json limited = RunJson(plan + "--switch-latency 0 --switch-cost 0 --switch-tradeoff");
  EXPECT_FALSE(free["plans"][0].contains("max_switches"));
  const json& first = limited["plans"][0];
  EXPECT_EQ(first.at("max_switches"),
            static_cast<int>(0.95 * 2 * first.at("deadline_s").get<double>()));
  EXPECT_LE(first.at("switches_per_gpu"), first.at("max_switches"));
  EXPECT_LE(first.at("time_s"), first.at("deadline_s"));
  EXPECT_LT(first.at("switches"), free["plans"][0].at("switches"));
  EXPECT_THAT(OneLine(RunWell(plan + "--switch-latency 0 --switch-cost 0 --switch-tradeoff")),
              AllOf(HasSubstr("at most "),
                    HasSubstr("allows 2 clock changes per second and GPU; 1 of 1 plans are")));
  write_facts("slow.toml", 8);
  const Outcome above =
      Run("plan profile.csv --schedule 1f1b --microbatches 8 --no-frontier --facts slow.toml "
          "--switch-latency 0 --switch-cost 0 --max-switches 1000 --json");
  EXPECT_EQ(json::parse(above.out)["plans"][0]["max_switches"], 1000);
  EXPECT_THAT(above.err, HasSubstr("slow.toml allows 1 (use a lower --max-switches"));
  RunWell("synth --gpu a100 --stages 4 --imbalance 0.1 -o imbalanced.csv");
  const std::string imbalanced =
      "plan imbalanced.csv --schedule 1f1b --microbatches 4 --blocking-power 84 --effort 0 ";
  const json least =
      PlanNamed(RunJson(imbalanced + "--per-instruction --min-energy"), "least-energy");
  const double budget_j = 1.001 * least["energy_j"].get<double>();
  ExpectComplaint(
      Run(imbalanced + fmt::format("--facts slow.toml --switch-latency 0 --switch-cost 0 "
                                   "--energy-budget {}",
                                   budget_j)),
      3,
      "(the hardware facts allow 1 clock changes a second; a limit of your own "
      "replaces that: --max-switches)");
  // If a limit is picked, it is within the rate.
  for (const char* way : {"", "--max-switches auto"}) {
    const json picked = RunJson(plan + "--switch-latency 0 --switch-cost 0 " + way)["plans"][0];
    EXPECT_LE(picked.at("max_switches"), first.at("max_switches"));
  }
  ExpectComplaint(Run(plan + "--max-switches some"), 2, "--max-switches");
}

// Instructions of an H100 with a small model take a few ms. A clock for each of them would change
// clocks hundreds of times a second.
TEST_F(PlanVerbTest, WithoutFactsPlansAssumeARateThatGpusFollow) {
  std::string rows;
  std::istringstream lines(RunWell("synth --gpu a100 --stages 4"));
  std::getline(lines, rows);
  rows += '\n';
  for (std::string row; std::getline(lines, row);) {
    std::vector<std::string> cells;
    std::istringstream in(row);
    for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
    rows += fmt::format("{},{},{},{},{}\n", cells[0], cells[1], cells[2], std::stod(cells[3]) / 20,
                        std::stod(cells[4]) / 20);
  }
  Write("short.csv", rows);
  const std::string plan =
      "plan short.csv --schedule 1f1b --microbatches 48 --blocking-power 84 --slowdown 0 "
      "--slowdown 5 --no-frontier " +
      kInstantChanges;
  for (const json& one : RunJson(plan)["plans"]) {
    EXPECT_LE(one.at("max_switches").get<double>(), 20 * one.at("time_s").get<double>());
    EXPECT_GT(one.at("saving"), 0);
  }
  EXPECT_THAT(RunWell(plan), AllOf(HasSubstr("switches per GPU keep "),
                                   HasSubstr("without facts, plans assume 20.")));
  EXPECT_THAT(RunWell(plan + "--per-instruction"), Not(HasSubstr("at most")));
}

TEST_F(PlanVerbTest, LimitsClockChanges) {
  const std::string plan = plan_ + "--no-frontier ";
  const json few = RunJson(plan + "--max-switches 2 -o out");
  const json& limited = PlanNamed(few, "no-slowdown");
  EXPECT_EQ(limited["max_switches"], 2);
  EXPECT_EQ(limited["target"], "no slowdown, at most 2 switches per GPU");
  EXPECT_LE(limited["time_s"], limited["deadline_s"]);
  const json free = RunJson(plan + "--per-instruction");
  EXPECT_GE(limited["lower_bound_j"], PlanNamed(free, "no-slowdown")["lower_bound_j"]);
  RunWell("evaluate out/plans/no-slowdown.json --profile profile.csv");
}

// A single climb starts from the plans of the whole effort. With a single climb, effort 2 is worse
// than effort 1 in this test.
TEST_F(PlanVerbTest, MoreEffortIsNeverWorseWithALimitOfClockChanges) {
  RunWell("synth --gpu a40 --stages 4 -o a40.csv");
  const std::string plan =
      "plan a40.csv --schedule 1f1b --pp-ranks 4 --microbatches 8 --blocking-power 60 "
      "--no-frontier --max-switches 3 --slowdown 3 --effort ";
  json before = RunJson(plan + "1")["plans"];
  for (const char* effort : {"2", "3"}) {
    json plans = RunJson(plan + effort)["plans"];
    ASSERT_EQ(plans.size(), before.size());
    for (std::size_t i = 0; i < plans.size(); ++i) {
      EXPECT_LE(plans[i]["energy_j"], before[i]["energy_j"]) << plans[i]["name"] << " " << effort;
    }
    before = std::move(plans);
  }
}

// The plan file contains the cost of changes, so another program that evaluates the plan gets the
// same result.
TEST_F(PlanVerbTest, PlansForTheCostOfClockChanges) {
  const std::string plan = plan_ + "--no-frontier --max-switches 4 ";
  const json cheap = PlanNamed(RunJson(plan), "no-slowdown");
  const json costly =
      PlanNamed(RunJson(plan + "--switch-cost 0.001,0.5 --switch-latency 2 -o out"), "no-slowdown");
  EXPECT_LE(costly["time_s"], costly["deadline_s"]);
  EXPECT_GE(costly["energy_j"], cheap["energy_j"]);
  const json file = json::parse(Read("out/plans/no-slowdown.json"));
  EXPECT_EQ(file.at("job").at("switch_cost").at("stall_s"), 0.001);
  EXPECT_EQ(file.at("job").at("switch_cost").at("energy_j"), 0.5);
  const json same = RunJson("evaluate out/plans/no-slowdown.json --profile profile.csv");
  EXPECT_EQ(same["energy_j"], costly["energy_j"]);
  const json free =
      RunJson("evaluate out/plans/no-slowdown.json --profile profile.csv --switch-cost 0");
  EXPECT_LT(free["energy_j"], costly["energy_j"]);
}

TEST_F(PlanVerbTest, WithACostOfClockChangesNoLimitIsNoWorseThanALimit) {
  const std::string plan = plan_ + "--no-frontier --switch-cost 0.002,1 ";
  const json free = PlanNamed(RunJson(plan + "--per-instruction"), "no-slowdown");
  const json limited = PlanNamed(RunJson(plan + "--max-switches 16"), "no-slowdown");
  EXPECT_LE(free["energy_j"], 1.001 * limited["energy_j"].get<double>());
  EXPECT_LE(free["time_s"], free["deadline_s"]);
}

TEST_F(PlanVerbTest, WithoutFactsAClockChangeTakesTheAssumedTime) {
  const std::string plan = plan_ + "--no-frontier ";
  const json assumed = PlanNamed(RunJson(plan), "no-slowdown");
  EXPECT_EQ(assumed,
            PlanNamed(RunJson(plan + "--switch-latency 15 --switch-cost 0.00011"), "no-slowdown"));
  EXPECT_LT(assumed["saving"], PlanNamed(RunJson(plan + kInstantChanges), "no-slowdown")["saving"]);
  EXPECT_THAT(RunWell(plan), HasSubstr("\nassumed without facts: the switch latency (15 ms), "
                                       "the switch cost (0.11 ms)\n"));
  EXPECT_THAT(RunWell(plan + kInstantChanges), Not(HasSubstr("assumed")));
}

TEST_F(PlanVerbTest, PicksTheFewestClockChangesThatKeepMostOfTheSaving) {
  const std::string plan = plan_ + kInstantChanges + "--no-frontier ";
  const json picked = RunJson(plan + "--max-switches auto -o out");
  const json free = PlanNamed(RunJson(plan + "--per-instruction"), "no-slowdown");
  const double most = free["saving"];
  int expected = -1;
  for (const json& limit : picked["switch_tradeoff"]) {
    if (expected < 0 && limit["saving"] >= 0.95 * most) expected = limit["max_switches"];
  }
  if (expected < 0) {
    EXPECT_FALSE(picked.contains("max_switches"));
  } else {
    EXPECT_EQ(picked["max_switches"], expected);
    const json& limited = PlanNamed(picked, "no-slowdown");
    EXPECT_GE(limited["saving"], 0.95 * most);
    EXPECT_THAT(limited["target"].get<std::string>(), HasSubstr("at most"));
  }
}

// Stage 0 has enough slack for the low clock in each forward pass, but in no backward pass. So each
// further change saves energy in one more forward pass, and 48 changes reach a quarter of the
// forward passes.
TEST_F(PlanVerbTest, LeavesOutLimitsThatCannotKeepMostOfTheSaving) {
  Write("alternating.csv",
        "stage,instruction,frequency,time,energy\n"
        "0,forward,1400,0.100,30\n0,forward,1000,0.110,20\n"
        "0,backward,1400,0.200,50\n0,backward,1000,0.290,45\n"
        "1,forward,1400,0.120,40\n1,forward,1000,0.160,30\n"
        "1,backward,1400,0.200,50\n1,backward,1000,0.290,40\n");
  const std::string plan =
      "plan alternating.csv --schedule 1f1b --microbatches 100 --blocking-power 60 --no-frontier " +
      kInstantChanges;
  EXPECT_THAT(RunWell(plan + "--max-switches auto"),
              AllOf(HasSubstr("\nlimit "), HasSubstr("\n16 "), Not(HasSubstr("\n24 ")),
                    HasSubstr("\nunlimited "), HasSubstr("and 48 switches keep at most ")));
  const json summary = RunJson(plan);
  EXPECT_FALSE(summary.contains("max_switches"));
  const json& tradeoff = summary["switch_tradeoff"];
  ASSERT_EQ(tradeoff.size(), 8U);
  double former_j = summary["baseline"]["energy_j"];
  for (const json& limit : tradeoff) {
    EXPECT_LE(limit["energy_j"], former_j);
    former_j = limit["energy_j"];
    // If no plan can save a certain amount, no plan with a limit can save it either.
    EXPECT_GE(limit["lower_bound_j"], PlanNamed(summary, "no-slowdown")["lower_bound_j"]);
    // Windows of time make the bound tight (window_program.h).
    EXPECT_LE(limit["energy_j"], 1.0001 * limit["lower_bound_j"].get<double>());
  }
}

// The limit applies to all plans. If it were picked for 25 % slowdown, the plan with no slowdown
// would save nothing.
TEST_F(PlanVerbTest, AnotherTargetLeavesNoSlowdownItsSaving) {
  const json alone = RunJson(plan_ + "--no-frontier");
  const json both = RunJson(plan_ + "--no-frontier --slowdown 25");
  EXPECT_EQ(both["max_switches"], alone["max_switches"]);
  EXPECT_EQ(PlanNamed(both, "no-slowdown")["saving"], PlanNamed(alone, "no-slowdown")["saving"]);
  EXPECT_GT(PlanNamed(both, "slowdown-25")["saving"], PlanNamed(both, "no-slowdown")["saving"]);
}

// The default search is shorter than the search of --max-switches auto.
TEST_F(PlanVerbTest, ByDefaultItPicksALimitOfClockChanges) {
  const std::string plan_flags = plan_ + kInstantChanges;
  const json summary = RunJson(plan_flags + "-o out");
  ASSERT_GE(summary["switch_tradeoff"].size(), 8U);
  ASSERT_TRUE(summary.contains("max_switches"));
  const json& plan = PlanNamed(summary, "no-slowdown");
  EXPECT_EQ(plan["max_switches"], summary["max_switches"]);
  const json each = RunJson(plan_flags + "--per-instruction");
  EXPECT_FALSE(each.contains("switch_tradeoff"));
  EXPECT_FALSE(each.contains("max_switches"));
  EXPECT_GE(plan["saving"], 0.95 * PlanNamed(each, "no-slowdown")["saving"].get<double>());
  EXPECT_LT(plan["switches"], PlanNamed(each, "no-slowdown")["switches"]);
  // The page draws the trade-off, and marks the limit.
  EXPECT_THAT(Read("out/report.html"), HasSubstr("\"switch_tradeoff\""));
  const std::string mark = fmt::format("\"max_switches\":{}", summary["max_switches"].get<int>());
  EXPECT_THAT(Read("out/report.html"), HasSubstr("}," + mark + "}"));
  EXPECT_THAT(RunWell(plan_flags),
              AllOf(HasSubstr(" of the saving (--switch-tradeoff: other limits)."),
                    Not(HasSubstr("\nlimit "))));
  // Shares are rounded down, so a row below 95 % does not look as if it kept 95 %.
  const std::string table = RunWell(plan_flags + "--max-switches auto");
  const json searched = RunJson(plan_flags + "--max-switches auto");
  const double unlimited = searched["unlimited_plan"]["saving"];
  for (const json& limit : searched["switch_tradeoff"]) {
    const double share = limit.at("saving").get<double>() / unlimited;
    EXPECT_THAT(table, HasSubstr(fmt::format(" {:.1f} %  ", std::floor(share * 1000) / 10)));
  }
}

// Few clocks were measured, and for one instruction the highest clock is missing. So a pp_rank that
// seldom changes its clock is slow, and no plan with few changes meets the deadline.
TEST_F(PlanVerbTest, ALimitThatNoPlanKeepsHasNoBound) {
  std::string rows;
  std::istringstream lines(RunWell("synth --gpu a100 --stages 4"));
  for (std::string row; std::getline(lines, row);) {
    std::smatch clock;
    const bool has_clock = std::regex_match(row, clock, std::regex("[^,]*,[^,]*,([0-9]+),.*"));
    if (has_clock && std::stoi(clock[1]) % 105 != 45) continue;
    if (!row.starts_with("3,backward,1410,")) rows += row + '\n';
  }
  Write("profile.csv", rows);
  const std::string plan =
      "plan profile.csv --schedule 1f1b --microbatches 16 --blocking-power 80 --no-frontier "
      "--figure switches.svg --max-switches auto " +
      kInstantChanges;
  const Outcome outcome = Run(plan + "-o out");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string& table = outcome.out;
  EXPECT_THAT(table, ContainsRegex("0 +none found +none"));
  EXPECT_THAT(table, Not(ContainsRegex("-[0-9]+\\.[0-9]+ %")));
  const json summary = json::parse(Read("out/summary.json"));
  const json& limits = summary["switch_tradeoff"];
  EXPECT_TRUE(limits[0]["lower_bound_j"].is_null()) << limits[0];
  for (const json& limit : limits) {
    EXPECT_TRUE(limit["energy_j"].is_null() || limit["lower_bound_j"].is_number()) << limit;
  }
  // The axis of the figure has no bound either. The same is true for results of an earlier version.
  EXPECT_THAT(Read("switches.svg"), Not(HasSubstr("−")));
  json earlier = summary;
  earlier["switch_tradeoff"][0]["lower_bound_j"] = 3.9e10;
  Write("out/summary.json", earlier.dump());
  ASSERT_EQ(Run("report out --profile profile.csv --figure switches.svg").status, 0);
  EXPECT_THAT(Read("switches.svg"), Not(HasSubstr("−")));
}

TEST_F(PlanVerbTest, AJobFileMayLimitClockChanges) {
  Write("job.toml",
        "profile = \"profile.csv\"\n[pipeline]\nschedule = \"1f1b\"\nmicrobatches = 4\n[gpu]\n"
        "blocking_power_w = 80\nmax_switches = 2\n");
  const std::string plan = "plan --job job.toml --no-frontier ";
  EXPECT_EQ(RunJson(plan)["max_switches"], 2);
  EXPECT_EQ(RunJson(plan + "--max-switches 4")["max_switches"], 4);
  EXPECT_FALSE(RunJson(plan + "--per-instruction").contains("max_switches"));
  EXPECT_EQ(RunJson(plan + "--noise 1")["max_switches"], 2);
}

TEST_F(PlanVerbTest, DrawsTheLimitsOfClockChanges) {
  const std::string plan = plan_ + "--no-frontier --effort 0 --figure switches.svg ";
  RunWell(plan + "--per-instruction --switch-tradeoff");
  EXPECT_THAT(Read("switches.svg"), HasSubstr("most clock changes of a GPU"));
  RunWell(plan + "-o out");
  const std::string of_plan = Read("switches.svg");
  // From the files, the report draws the same figure.
  RunWell("report out --profile profile.csv --figure switches.svg");
  EXPECT_EQ(Read("switches.svg"), of_plan);
  ExpectComplaint(Run(plan + "--per-instruction"), 2, "--switch-tradeoff");
  RunWell(plan_ + "--no-frontier --per-instruction -o out");
  ExpectComplaint(Run("report out --profile profile.csv --figure switches.svg"), 2,
                  "--switch-tradeoff");
}

TEST_F(PlanVerbTest, RefusesLimitsOfClockChangesThatCannotBe) {
  const std::string plan = plan_ + "--no-frontier -o out ";
  ExpectComplaint(Run(plan + "--switch-cost 0.1,x"), 2, "joules");
  ExpectComplaint(Run(plan + "--max-switches -1"), 2, "--max-switches");
  EXPECT_THAT(Files("out"), IsEmpty());
}

TEST_F(PlanVerbTest, WithoutTheFrontierItMakesOnlyTheRequestedPlans) {
  const json summary = RunJson(plan_ + "--no-frontier --slowdown 5 -o out");
  EXPECT_EQ(summary["plans"].size(), 2U);
  EXPECT_THAT(Files("out"), Not(Contains("frontier.csv")));
  // The deadline is unreachable, but only planning would find this.
  ExpectComplaint(Run(plan_ + "--no-frontier --deadline 0.001 --power-cap 900 -o other"), 2,
                  "frontier");
  EXPECT_THAT(Files("other"), IsEmpty());
}

TEST_F(PlanVerbTest, AnUnreachableTargetNamesAReachableValue) {
  for (const std::string flag : {"--deadline ", "--power-cap ", "--energy-budget "}) {
    const Outcome outcome = Run(plan_ + "--effort 0 --slowdown 5 " + flag + "0.001 -o out");
    ExpectComplaint(outcome, 3, " is ");
    EXPECT_THAT(Files("out"), IsEmpty());
    // The value in the message ("... is 888.085 W") can be met.
    std::istringstream message(outcome.err.substr(outcome.err.rfind(" is ") + 4));
    std::string value;
    message >> value;
    RunWell(fmt::format("{}--effort 0 {}{}", plan_, flag, value));
  }
}

// The targets are a slowdown as a fraction, a deadline in milliseconds, a price in cents, and a cap
// for all pipelines.
TEST_F(PlanVerbTest, WarnsOfTargetsThatAreProbablyInAnotherUnit) {
  const auto warning = [&](const std::string& flags) {
    const Outcome outcome = Run(plan_ + "--per-instruction " + flags);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(warning("--deadline 3000"), HasSubstr("warning: --deadline 3000 is far above "));
  EXPECT_EQ(warning("--deadline 4"), "");
  EXPECT_THAT(warning("--price 12 2"), HasSubstr("warning: 12 for a kWh is much beside 2 for a"));
  EXPECT_EQ(warning("--price 150 3000"), "");
  EXPECT_THAT(warning("--power-cap 30000"), HasSubstr("warning: --power-cap 30000 is above the "));
  EXPECT_THAT(warning("--energy-budget 1e6"), HasSubstr("J of one pipeline at maximum frequency"));
}

// `perseus job straggler`, `compare` and `tune` read a slowdown in the same way.
TEST_F(PlanVerbTest, ASlowdownHasOneUnit) {
  const auto planned = [&](const std::string& slowdown) {
    return RunJson(plan_ + "--per-instruction --no-frontier --slowdown " + slowdown)["plans"];
  };
  const json five = planned("5");
  EXPECT_EQ(planned("5%"), five);
  EXPECT_EQ(planned("'5 %'"), five);
  EXPECT_EQ(planned("1.05x"), five);
  EXPECT_THAT(planned("0.05%").dump(), HasSubstr("0.05 % slowdown"));
  const auto refused = [&](const std::string& slowdown) {
    const Outcome outcome = Run(plan_ + "--slowdown " + slowdown);
    EXPECT_EQ(outcome.status, 2) << slowdown;
    return outcome.err;
  };
  EXPECT_THAT(refused("0.05"), HasSubstr("0.05 means 0.05 percent longer, which is unlikely "
                                         "(give 0.05% to mean this, or 5%)"));
  EXPECT_THAT(refused("300"), HasSubstr("unlikely (give 300% to mean this, or 3x)"));
  for (const char* wrong : {"0.9x", "%", "x", "-5%", "1.05xx", "nan%", "1e9", "\"\""}) {
    EXPECT_THAT(refused(wrong), HasSubstr("percent longer, such as 25 or 25%; or 1.25x")) << wrong;
  }
}

TEST_F(PlanVerbTest, ASummaryOfOtherOriginIsNotTouched) {
  Write("out/summary.json", "{\"files\": [\"../profile.csv\"]}");
  ExpectComplaint(Run(plan_ + "-o out"), 2, "was not written by perseus plan");
  Write("out/summary.json",
        R"({"format": "perseus-summary", "files": ["../profile.csv", "plans/../../profile.csv"]})");
  EXPECT_THAT(RunWell(plan_ + "--no-frontier -o out"), Not(HasSubstr("No plan was saved")));
  EXPECT_THAT(Files("."), Contains("profile.csv"));
}

TEST_F(PlanVerbTest, FilesOfOtherOriginAreNotReplaced) {
  for (const char* name : {"frontier.csv", "plans/no-slowdown.json"}) {
    Write(std::string("out/") + name, "mine");
    ExpectComplaint(Run(plan_ + "-o out"), 2, std::string("out/") + name + ": already exists");
    EXPECT_EQ(Read(std::string("out/") + name), "mine");
    EXPECT_THAT(Files("out"), ElementsAre(name));
    RunWell("--version; rm -r out");
  }
}

TEST_F(PlanVerbTest, OutputThatCannotBeWrittenIsASystemFailure) {
  Write("file", "");
  ExpectComplaint(Run(plan_ + "--no-frontier -o file/out"), 1, "file/out: cannot make");
  ExpectComplaint(Run(plan_ + "--no-frontier >/dev/full -o out"), 1, "standard output");
  EXPECT_THAT(Files("."), ElementsAre("file", "profile.csv"));
  // The directory is checked before the contents of the inputs.
  ExpectComplaint(Run("plan file -o /proc/perseus/out"), 1,
                  "/proc/perseus/out: cannot make the directory: No such file");
}

}  // namespace
}  // namespace perseus
