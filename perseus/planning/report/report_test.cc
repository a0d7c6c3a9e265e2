// Tests of the report: its totals agree with the plans, and data cannot leave its HTML element.
#include "perseus/planning/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "perseus/planning/plan/target.h"
#include "perseus/planning/report/assets.h"
#include "perseus/planning/schedule/instruction_graph.h"
#include "tests/support/planning_jobs.h"
#include "tests/support/seeds.h"

namespace perseus::report {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Case {
  std::string name;
  SyntheticJob job;
  Nanoseconds switch_latency = 0;
};

class ReportData : public testing::TestWithParam<Case> {
 protected:
  ReportData()
      : planner_(MakePlanner(MakeSyntheticJob(GetParam().job),
                             {kSyntheticBlockingPowerW, GetParam().switch_latency})) {
    const auto frontier = planner_.ComputeFrontier();
    Report report{.planner = planner_,
                  .job = {},
                  .frontier = {"bound", frontier->points},
                  .plans = {},
                  .overlays = {}};
    // The plans are not in order, so that the test sees whether the report sorts them.
    for (const double percent : {10., 0., 3.}) {
      auto plan = plan::PlanForTarget(planner_, &*frontier, {.value = percent});
      if (!plan) throw std::runtime_error(plan.error().Message());
      report.plans.push_back({std::to_string(percent), *std::move(plan)});
    }
    plans_ = report.plans;
    report.chosen = 0;
    data_ = json::parse(*FormatReportData(report));
  }

  // The plan with that name.
  const plan::Plan& PlanNamed(const std::string& name) const {
    for (const ReportedPlan& plan : plans_) {
      if (plan.name == name) return plan.plan;
    }
    throw std::out_of_range(name);
  }

  plan::Planner planner_;
  std::vector<ReportedPlan> plans_;
  json data_;
};

// Computes the same as the page: starts from gaps, and durations and energies from options.
void ExpectSame(const json& data, const json& iteration, const plan::Planner& planner,
                const plan::Evaluation& evaluation) {
  EXPECT_EQ(iteration["time_ns"], evaluation.time);
  EXPECT_EQ(iteration["energy_j"], evaluation.energy_j);
  EXPECT_EQ(iteration["switches"], evaluation.switches);
  double total_j = 0;
  int switches = 0;
  for (std::size_t rank = 0; rank < planner.graph().pp_rank_orders.size(); ++rank) {
    const json& lane = iteration["lanes"][rank];
    const std::vector<int>& order = planner.graph().pp_rank_orders[rank];
    ASSERT_EQ(lane["options"].size(), order.size());
    ASSERT_EQ(lane["critical"].get<std::string>().size(), order.size());
    Nanoseconds end = 0;
    Nanoseconds busy = 0;
    double lane_j = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto instruction = static_cast<std::size_t>(order[i]);
      const json& set =
          data["option_sets"][data["pp_ranks"][rank]["option_sets"][i].get<std::size_t>()];
      const std::size_t option = lane["options"][i];
      const bool is_blended = lane.contains("durations_ns");
      const Nanoseconds start = end + lane["gaps_ns"][i].get<Nanoseconds>();
      const Nanoseconds duration = is_blended ? lane["durations_ns"][i] : set["time_ns"][option];
      const double energy_j = is_blended ? lane["energies_j"][i] : set["energy_j"][option];
      EXPECT_EQ(start, evaluation.starts[instruction]);
      EXPECT_EQ(duration, evaluation.durations[instruction]);
      EXPECT_EQ(energy_j, evaluation.energies_j[instruction]);
      EXPECT_GE(lane["gaps_ns"][i].get<Nanoseconds>(), 0);
      end = start + duration;
      busy += duration;
      lane_j += energy_j;
    }
    EXPECT_LE(end, evaluation.time);
    EXPECT_EQ(lane["busy_ns"], busy);
    double kinds_j = 0;
    for (const json& energy_j : lane["energy_j"]) kinds_j += energy_j.get<double>();
    EXPECT_NEAR(kinds_j, lane_j, 1e-9 * lane_j);
    total_j += lane_j + lane["blocking_energy_j"].get<double>();
    switches += lane["switches"].get<int>();
  }
  EXPECT_NEAR(total_j, evaluation.energy_j, 1e-9 * evaluation.energy_j);
  EXPECT_EQ(switches, evaluation.switches);
}

TEST(SwitchLimit, ABoundThatIsNoneIsNotDrawn) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  EXPECT_EQ(MakeSwitchLimit(2, std::nullopt, kNever, 100).most_saving, std::nullopt);
  EXPECT_EQ(MakeSwitchLimit(2, std::nullopt, 1e9, 100).most_saving, std::nullopt);
  EXPECT_EQ(MakeSwitchLimit(2, std::nullopt, 75, 100).most_saving, 0.25);
  EXPECT_EQ(MakeSwitchLimit(2, std::nullopt, 75, 100).saving, std::nullopt);
  EXPECT_EQ(MakeSwitchLimit(2, 75, 50, 100).saving, 0.25);
  // A plan that costs energy. Its bound seems higher, because sums are rounded.
  EXPECT_EQ(MakeSwitchLimit(2, 125, 126, 100).most_saving, -0.25);
}

TEST_P(ReportData, AgreesExactlyWithThePlans) {
  ExpectSame(data_, data_["baseline"], planner_, planner_.baseline());
  ASSERT_EQ(data_["plans"].size(), plans_.size());
  for (const json& plan : data_["plans"]) {
    const plan::Plan& planned = PlanNamed(plan["name"]);
    ExpectSame(data_, plan, planner_, planned.evaluation);
    EXPECT_EQ(plan["lower_bound_j"], planned.lower_bound_j);
    EXPECT_EQ(plan["target"], planned.target);
    EXPECT_GT(plan["marginal_w"].get<double>(), 0);
  }
}

TEST_P(ReportData, SortsPlansByTimeAndMarksTheChosenOne) {
  const json& plans = data_["plans"];
  for (std::size_t i = 1; i < plans.size(); ++i) {
    EXPECT_LE(plans[i - 1]["time_ns"], plans[i]["time_ns"]);
  }
  EXPECT_EQ(plans[data_["chosen"].get<std::size_t>()]["name"], plans_.front().name);
}

TEST_P(ReportData, MarksACriticalPathFromStartToEnd) {
  for (const json& plan : data_["plans"]) {
    bool starts = false;
    bool ends = false;
    for (std::size_t rank = 0; rank < plan["lanes"].size(); ++rank) {
      const json& lane = plan["lanes"][rank];
      const std::string marks = lane["critical"];
      starts = starts || (marks.front() == '1' && lane["gaps_ns"][0] == 0);
      Nanoseconds end = lane["busy_ns"];
      for (const json& gap : lane["gaps_ns"]) end += gap.get<Nanoseconds>();
      ends = ends || (marks.back() == '1' && plan["time_ns"] == end);
    }
    EXPECT_TRUE(starts);
    EXPECT_TRUE(ends);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , ReportData,
    testing::Values(Case{"OneForwardOneBackward", {}},
                    Case{"GPipe", {.schedule = "gpipe", .stages = 3, .microbatches = 5}},
                    Case{"SwitchLatency", {.microbatches = 4}, 5'000'000}),
    [](const auto& tested) { return tested.param.name; });

TEST(ReportPage, ContainsAnyDataSafely) {
  if (!HasReportPage()) GTEST_SKIP() << "this build has no page (no npm)";
  const std::string data = R"({"name":"</script><script>alert(1)</script><!--"})";
  const auto page = FormatReportPage(data);
  ASSERT_TRUE(page) << page.error().Message();
  const std::size_t begin = page->find(kDataBegin) + kDataBegin.size();
  const std::size_t end = page->find(kDataEnd, begin);
  EXPECT_EQ(json::parse(page->substr(begin, end - begin)), json::parse(data));
  EXPECT_EQ(page->substr(begin, end - begin).find('<'), std::string::npos);
}

TEST(FormatReportData, RefusesAReportWithoutPlans) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}));
  const auto data = FormatReportData(
      {.planner = planner, .job = {}, .frontier = {}, .plans = {}, .overlays = {}});
  ASSERT_FALSE(data);
  EXPECT_THAT(data.error().Message(), HasSubstr("the report has no plan"));
}

TEST(FormatReportData, PlansHaveTheirMeansUnderNoise) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}));
  Report report{.planner = planner, .job = {}, .frontier = {}, .plans = {}, .overlays = {}};
  report.plans.push_back({"a", *planner.PlanFor(planner.baseline().time)});
  const json without = json::parse(*FormatReportData(report));
  EXPECT_FALSE(without["job"].contains("noise"));
  EXPECT_FALSE(without["plans"][0].contains("noise"));
  report.noise = noise::Noise{0.01, 0.005};
  report.plans[0].under_noise = UnderNoise{{0.004, 0.0001, 0.15, 0.0002}, 0.16};
  const json with = json::parse(*FormatReportData(report));
  EXPECT_EQ(with["job"]["noise"], json({{"independent", 0.01}, {"common", 0.005}}));
  EXPECT_EQ(with["plans"][0]["noise"], json({{"slowdown", 0.004},
                                             {"slowdown_ci", 0.0001},
                                             {"saving", 0.15},
                                             {"saving_ci", 0.0002},
                                             {"most_saving", 0.16}}));
}

TEST(FormatReportData, ThinsALongFrontierAndKeepsItsEndsAndItsLeast) {
  const plan::Planner planner = MakePlanner(MakeSyntheticJob({}));
  Report report{.planner = planner, .job = {}, .frontier = {}, .plans = {}, .overlays = {}};
  report.plans.push_back({"a", *planner.PlanFor(planner.baseline().time)});
  for (int i = 0; i < 100'000; ++i) {
    const double away = i - 77'777;
    report.frontier.points.push_back({1'000'000'000 + i * 1'000, 5000 + 1e-6 * away * away, 1});
  }
  const json frontier = json::parse(*FormatReportData(report))["frontier"];
  EXPECT_EQ(frontier["breakpoints"], 100'000);
  EXPECT_LE(frontier["time_s"].size(), 2'002U);
  EXPECT_EQ(frontier["time_s"].front(), 1.0);
  EXPECT_EQ(frontier["time_s"].back(), 1.099999);
  EXPECT_EQ(*std::ranges::min_element(frontier["energy_j"]), 5000.0);
}

// Time runs to the right. d starts 2 ns (a transfer) after the end of b.
//
//   gpu0  [a 10][b 20    ]
//   gpu1        [c 15 ]    . .[d 5]
//   gpu2  [e 36                   ]
constexpr const char* kGraph = R"({"instructions": [
  {"name": "a", "resource": "gpu0", "options": [{"time": 10e-9, "energy": 1}]},
  {"name": "b", "resource": "gpu0", "options": [{"time": 20e-9, "energy": 1}]},
  {"name": "c", "resource": "gpu1", "options": [{"time": 15e-9, "energy": 1}]},
  {"name": "d", "resource": "gpu1", "options": [{"time": 5e-9, "energy": 1}]},
  {"name": "e", "resource": "gpu2", "options": [{"time": 36e-9, "energy": 1}]}],
 "dependencies": [{"from": "a", "to": "c"}, {"from": "b", "to": "d", "delay": 2e-9}]})";

TEST(CriticalInstructions, AreTheInstructionsThatTheIterationWaitsFor) {
  const auto file = schedule::ParseInstructionGraph(kGraph, "graph.json");
  ASSERT_TRUE(file) << file.error().Message();
  const schedule::InstructionGraph& graph = file->graph;
  const plan::Evaluation evaluation =
      plan::Evaluator(graph, {}).Evaluate(schedule::BaselineOptions(graph));
  ASSERT_EQ(evaluation.time, 37);
  std::vector<std::string> critical;
  const std::vector<bool> is_critical = CriticalInstructions(graph, evaluation);
  for (std::size_t i = 0; i < is_critical.size(); ++i) {
    if (is_critical[i]) critical.push_back(graph.options_of(static_cast<int>(i)).name);
  }
  EXPECT_THAT(critical, ElementsAre("a", "b", "d"));  // e ends a nanosecond before d.
}

TEST(CriticalInstructions, OnlyTheyMakeTheIterationLonger) {
  for (std::uint64_t seed = 0; seed < Seeds(200); ++seed) {
    schedule::InstructionGraph graph = RandomJob({.instructions = 12}, seed);
    // Each instruction has its own option set, so that the test can make one longer.
    std::vector<schedule::OptionSet> sets;
    for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
      sets.push_back(graph.options_of(static_cast<int>(i)));
      graph.instructions[i].option_set = static_cast<int>(i);
    }
    graph.option_sets = std::move(sets);
    const std::vector<int> options = schedule::BaselineOptions(graph);
    const plan::Evaluation evaluation = plan::Evaluator(graph, {}).Evaluate(options);
    const std::vector<bool> critical = CriticalInstructions(graph, evaluation);
    for (std::size_t i = 0; i < graph.instructions.size(); ++i) {
      profile::Option& option = graph.option_sets[i].options[static_cast<std::size_t>(options[i])];
      ++option.time;
      const Nanoseconds longer = plan::Evaluator(graph, {}).Evaluate(options).time;
      --option.time;
      EXPECT_EQ(longer, evaluation.time + (critical[i] ? 1 : 0)) << "seed " << seed << ", " << i;
    }
  }
}

}  // namespace
}  // namespace perseus::report
