// Tests of FormatPlan, ParsePlan and FindOptions.
#include "perseus/planning/plan_file/plan_file.h"

#include "perseus/planning/plan/make_plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::plan_file {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A job of four pp_ranks, planned with a small slowdown.
struct Planned {
  plan::Planner planner;
  plan::Plan plan;
  PlannedJob job;

  PlanFile File() const { return plan::DescribePlan(planner, plan, job); }
  std::string Text() const { return FormatPlan(File()); }
};

Planned PlanJob(schedule::InstructionGraph graph, PlannedJob job) {
  auto planner = plan::Planner::Create(std::move(graph), {job.model.blocking_power_w, 0});
  EXPECT_TRUE(planner) << planner.error().Message();
  auto plan = planner->PlanFor(planner->baseline().time + planner->baseline().time / 20);
  EXPECT_TRUE(plan) << plan.error().Message();
  return {*std::move(planner), *std::move(plan), std::move(job)};
}

profile::Profile MakeProfile(int chunks, const std::vector<InstructionKind>& kinds) {
  synthetic::SyntheticProfileSpec spec;
  spec.pp_ranks = 4;
  spec.chunks = chunks;
  spec.kinds = kinds;
  return *synthetic::SynthesizeProfile(spec);
}

Planned PlanSchedule(const std::string& name, int chunks, const std::vector<InstructionKind>& kinds,
                     const schedule::FixedInstructions& fixed = {}) {
  PlannedJob job;
  job.profile = "profile.csv";
  job.schedule = *schedule::GenerateSchedule(
      {.name = name, .pp_ranks = 4, .microbatches = 8, .chunks = chunks});
  job.model.blocking_power_w = 83.64;
  job.model.fixed = fixed;
  auto graph = schedule::BuildInstructionGraph(job.schedule, MakeProfile(chunks, kinds), job.model);
  EXPECT_TRUE(graph) << graph.error().Message();
  return PlanJob(*std::move(graph), std::move(job));
}

Planned Plan1F1B() {
  return PlanSchedule("1f1b", 1, {InstructionKind::kForward, InstructionKind::kBackward});
}

void ExpectSurvives(const Planned& planned) {
  const std::string text = planned.Text();
  const auto parsed = ParsePlan(text, "plan.json");
  ASSERT_TRUE(parsed) << parsed.error().Message();
  EXPECT_EQ(FormatPlan(*parsed), text);

  EXPECT_EQ(parsed->time, planned.plan.evaluation.time);
  EXPECT_EQ(parsed->deadline, planned.plan.deadline);
  EXPECT_EQ(parsed->energy_j, planned.plan.evaluation.energy_j);
  EXPECT_EQ(parsed->lower_bound_j, planned.plan.lower_bound_j);
  EXPECT_EQ(parsed->job.schedule.pp_ranks, planned.job.schedule.pp_ranks);
  EXPECT_EQ(parsed->job.schedule.pp_rank_of_stage, planned.job.schedule.pp_rank_of_stage);
  EXPECT_EQ(parsed->job.schedule.chunk_of_stage, planned.job.schedule.chunk_of_stage);
  EXPECT_EQ(parsed->job.schedule.microbatches, planned.job.schedule.microbatches);

  const auto options = FindOptions(*parsed, planned.planner.graph(), "plan.json");
  ASSERT_TRUE(options) << options.error().Message();
  EXPECT_EQ(*options, planned.plan.options);
}

TEST(PlanFileTest, APlanIsTheSameAfterWritingAndReading) { ExpectSurvives(Plan1F1B()); }

TEST(PlanFileTest, KeepsTheStagesOfAV) {
  ExpectSurvives(PlanSchedule("zb-v", 2,
                              {InstructionKind::kForward, InstructionKind::kBackwardInput,
                               InstructionKind::kBackwardWeight}));
}

TEST(PlanFileTest, FixedInstructionsAppearWithTheirKinds) {
  schedule::FixedInstructions fixed;
  fixed.p2p = 123'457;
  fixed.load = {.time = 1'000'003, .energy_j = 0.25};
  fixed.all_reduce = {.time = 20'000'001};
  fixed.optimizer = {.time = 7'000'000};
  const Planned planned = PlanSchedule(
      "interleaved-1f1b", 2, {InstructionKind::kForward, InstructionKind::kBackward}, fixed);
  ExpectSurvives(planned);
  const auto parsed = ParsePlan(planned.Text(), "plan.json");
  EXPECT_EQ(parsed->job.model.fixed.p2p, 123'457);
  EXPECT_EQ(parsed->job.model.fixed.load.energy_j, 0.25);
  EXPECT_LT(parsed->job.model.fixed.all_reduce.energy_j, 0);  // It draws the blocking power.
  EXPECT_EQ(parsed->pp_ranks[0].instructions.front().kind, InstructionKind::kLoad);
  EXPECT_EQ(parsed->pp_ranks[3].instructions.back().kind, InstructionKind::kOptimizer);
  EXPECT_EQ(parsed->pp_ranks[3].instructions.back().frequency_mhz, 0);
}

// Reduces a plan by editing the JSON. Nodes of all versions read this result.
nlohmann::json CutOfJson(const std::string& plan, const std::set<int>& pp_ranks) {
  auto json = nlohmann::json::parse(plan);
  for (auto& rank : json["pp_ranks"]) {
    if (pp_ranks.contains(rank["pp_rank"].get<int>())) continue;
    std::set<int> stages;
    auto kept = nlohmann::json::array();
    for (const auto& instruction : rank["instructions"]) {
      if (instruction.contains("stage") && stages.insert(instruction["stage"].get<int>()).second) {
        kept.push_back(instruction);
      }
    }
    rank["cut"] = true;
    rank["instructions"] = kept;
  }
  return json;
}

TEST(Cut, KeepsTheRequestedRanksAndOneInstructionOfEachOtherStage) {
  schedule::FixedInstructions fixed;
  fixed.load = {.time = 1'000'003, .energy_j = 0.25};
  fixed.optimizer = {.time = 7'000'000};
  for (const Planned& planned :
       {Plan1F1B(),
        PlanSchedule("zb-v", 2,
                     {InstructionKind::kForward, InstructionKind::kBackwardInput,
                      InstructionKind::kBackwardWeight}),
        PlanSchedule("interleaved-1f1b", 2, {InstructionKind::kForward, InstructionKind::kBackward},
                     fixed)}) {
    for (const std::set<int>& ranks : {std::set<int>{}, {0}, {1, 3}, {0, 1, 2, 3}}) {
      const auto cut = Cut(planned.File(), ranks);
      ASSERT_TRUE(cut) << cut.error().Message();
      const std::string line = FormatPlan(*cut, PlanText::kOneLine);
      EXPECT_THAT(line, Not(HasSubstr("\n")));
      EXPECT_EQ(nlohmann::json::parse(line), CutOfJson(planned.Text(), ranks));
      EXPECT_EQ(FormatPlan(*Cut(*ParsePlan(planned.Text(), "plan"), ranks)), FormatPlan(*cut));
      const auto read = ParsePlan(line, "cut");
      ASSERT_TRUE(read) << read.error().Message();
      EXPECT_EQ(FormatPlan(*read), FormatPlan(*cut));
    }
  }
}

TEST(Cut, RefusesUnknownRanks) {
  EXPECT_EQ(Cut(Plan1F1B().File(), {0, 4, 5}).error().Message(),
            "the plan has no pp_rank 4 (it has 4 pp_ranks, numbered from 0)");
  EXPECT_FALSE(Cut(Plan1F1B().File(), {-1}));
}

TEST(PlanFileTest, KeepsTheSwitchCost) {
  PlanFile file = Plan1F1B().File();
  EXPECT_THAT(FormatPlan(file), Not(HasSubstr("switch_cost")));
  file.job.switch_cost = {.stall = 4 * kMillisecond, .energy_j = 1.5};
  const auto read = ParsePlan(FormatPlan(file), "plan.json");
  ASSERT_TRUE(read) << read.error().Message();
  EXPECT_EQ(read->job.switch_cost.stall, 4 * kMillisecond);
  EXPECT_EQ(read->job.switch_cost.energy_j, 1.5);
}

TEST(PlanFileTest, KeepsOtherKnobs) {
  std::string csv = "stage,instruction,frequency,sm_count,time,energy\n";
  for (const char* kind : {"forward", "backward"}) {
    csv +=
        fmt::format("0,{0},1400,2,0.01,4\n0,{0},1400,4,0.011,3.5\n0,{0},1200,4,0.012,3.2\n", kind);
  }
  PlannedJob job;
  job.profile = "profile.csv";
  job.schedule = *schedule::GenerateSchedule({.name = "gpipe", .pp_ranks = 1, .microbatches = 2});
  auto graph = schedule::BuildInstructionGraph(
      job.schedule, *profile::ParseProfile(csv, "profile.csv"), job.model);
  ASSERT_TRUE(graph) << graph.error().Message();
  const Planned planned = PlanJob(*std::move(graph), std::move(job));
  EXPECT_THAT(planned.Text(), HasSubstr("\"knobs\":{\"sm_count\":"));
  ExpectSurvives(planned);
}

// One pp_rank that runs two microbatches. Its profile has these columns of knobs.
schedule::InstructionGraph TwoKnobs(const std::string& header, const std::string& low,
                                    const std::string& high) {
  std::string csv = "stage,instruction,frequency,time,energy," + header + "\n";
  for (const char* kind : {"forward", "backward"}) {
    csv += fmt::format("0,{0},1400,0.01,4,{1}\n0,{0},1400,0.012,3,{2}\n", kind, low, high);
  }
  const auto schedule =
      schedule::GenerateSchedule({.name = "gpipe", .pp_ranks = 1, .microbatches = 2});
  auto graph =
      schedule::BuildInstructionGraph(*schedule, *profile::ParseProfile(csv, "profile.csv"), {});
  EXPECT_TRUE(graph) << graph.error().Message();
  return *std::move(graph);
}

TEST(PlanFileTest, FindsKnobsByNameInAnyOrderOfColumns) {
  PlannedJob job;
  job.profile = "profile.csv";
  job.schedule = *schedule::GenerateSchedule({.name = "gpipe", .pp_ranks = 1, .microbatches = 2});
  const Planned planned = PlanJob(TwoKnobs("sm,mem", "1,2", "2,1"), std::move(job));
  const auto parsed = ParsePlan(planned.Text(), "plan.json");
  ASSERT_TRUE(parsed) << parsed.error().Message();

  const schedule::InstructionGraph swapped = TwoKnobs("mem,sm", "2,1", "1,2");
  const auto options = FindOptions(*parsed, swapped, "plan.json");
  ASSERT_TRUE(options) << options.error().Message();
  EXPECT_EQ(plan::Evaluator(swapped, planned.planner.model()).Evaluate(*options).energy_j,
            planned.plan.evaluation.energy_j);

  const auto renamed = FindOptions(*parsed, TwoKnobs("sm,power", "1,2", "2,1"), "plan.json");
  ASSERT_FALSE(renamed);
  EXPECT_THAT(renamed.error().Message(),
              StartsWith("plan.json: the plan sets the knob \"mem\", which the profile lacks ("));
  const auto added = FindOptions(*parsed, TwoKnobs("sm,tc,mem", "1,5,2", "2,5,1"), "plan.json");
  ASSERT_FALSE(added);
  EXPECT_THAT(added.error().Message(),
              StartsWith("plan.json: the profile has the knob \"tc\", which"));
}

// A file has the number of a text. In another profile, the text may have another number.
TEST(PlanFileTest, KeepsKnobsWithTexts) {
  PlannedJob job;
  job.profile = "profile.csv";
  job.schedule = *schedule::GenerateSchedule({.name = "gpipe", .pp_ranks = 1, .microbatches = 2});
  const Planned planned = PlanJob(TwoKnobs("kernel,mem", "flash,2", "plain,1"), std::move(job));
  EXPECT_THAT(planned.Text(), HasSubstr(R"("knob_labels":{"kernel":["flash","plain"]})"));
  ExpectSurvives(planned);
  const auto parsed = ParsePlan(planned.Text(), "plan.json");
  ASSERT_TRUE(parsed) << parsed.error().Message();

  schedule::InstructionGraph swapped = TwoKnobs("mem,kernel", "2,flash", "1,plain");
  std::ranges::swap(swapped.knob_labels[1][0], swapped.knob_labels[1][1]);
  for (schedule::OptionSet& set : swapped.option_sets) {
    for (profile::Option& option : set.options) option.other_knobs[1] = 1 - option.other_knobs[1];
  }
  const auto options = FindOptions(*parsed, swapped, "plan.json");
  ASSERT_TRUE(options) << options.error().Message();
  EXPECT_EQ(plan::Evaluator(swapped, planned.planner.model()).Evaluate(*options).energy_j,
            planned.plan.evaluation.energy_j);

  const auto other =
      FindOptions(*parsed, TwoKnobs("kernel,mem", "fast,2", "simple,1"), "plan.json");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().Message(), HasSubstr("but not with these other knobs"));
}

TEST(PlanFileTest, AGeneralGraphIsListedByName) {
  const std::string options = R"("options": [{"frequency": 2000, "time": 0.01, "energy": 4},
    {"frequency": 1500, "time": 0.012, "energy": 3}, {"frequency": 1000, "time": 0.02, "energy": 2}])";
  const auto file = schedule::ParseInstructionGraph(
      R"({"instructions": [{"name": "a \"b\"", )" + options + R"(}, {"name": "c", )" + options +
          R"(}], "dependencies": [{"from": "a \"b\"", "to": "c"}]})",
      "work.json");
  ASSERT_TRUE(file) << file.error().Message();
  PlannedJob job;
  job.profile = "work.json";
  const Planned planned = PlanJob(file->graph, std::move(job));
  ExpectSurvives(planned);
  EXPECT_TRUE(ParsePlan(planned.Text(), "plan.json")->job.IsGeneralGraph());
  EXPECT_THAT(planned.Text(), HasSubstr(R"({"kind":"generic","name":"a \"b\"")"));
}

struct Damage {
  std::string name;
  std::string from;  // Its first occurrence in the text of the plan is replaced.
  std::string to;
  std::string message;
};

// For GoogleTest's messages.
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class DamagedPlanTest : public testing::TestWithParam<Damage> {};

TEST_P(DamagedPlanTest, TheErrorIsOneLineWithThePlace) {
  std::string text = Plan1F1B().Text();
  const std::size_t place = text.find(GetParam().from);
  ASSERT_NE(place, std::string::npos) << text.substr(0, 2000);
  text.replace(place, GetParam().from.size(), GetParam().to);
  const auto parsed = ParsePlan(text, "plan.json");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().kind, ErrorKind::kInput);
  EXPECT_THAT(parsed.error().Message(), StartsWith("plan.json:"));
  EXPECT_THAT(parsed.error().Message(), HasSubstr(GetParam().message));
  EXPECT_THAT(parsed.error().Message(), EndsWith(")"));  // The remedy.
  EXPECT_THAT(parsed.error().Message(), Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedPlanTest,
    testing::Values(
        Damage{"NotJson", "\"version\"", "version", "plan.json:3: not JSON"},
        Damage{"OtherFormat", "perseus-plan", "perseus-plot", "is not a plan of Perseus"},
        Damage{"LaterVersion", "\"version\": 1", "\"version\": 2", "version is not 1"},
        Damage{"UnknownKey", "\"switches\"", "\"swiches\"", "no key \"swiches\" (did you mean"},
        Damage{"KeyTwice", "\"switches\": ", "\"gap\": 1, \"switches\": ", "\"gap\" appears twice"},
        Damage{"Missing", "\"microbatches\":8,", "", "job.microbatches is missing"},
        Damage{"TimeIsText", "\"start_s\":0", "\"start_s\":\"0\"",
               "pp_ranks[0].instructions[0].start_s is not a number from 0 to"},
        Damage{"NegativeFrequency", "\"frequency\":", "\"frequency\":-",
               "pp_ranks[0].instructions[0].frequency is not a number from 0 to"},
        Damage{"NegativeTime", "\"duration_s\":", "\"duration_s\":-",
               "pp_ranks[0].instructions[0].duration_s is not a number from 0 to"},
        Damage{"UnknownKind", "\"forward\"", "\"foreword\"",
               "pp_ranks[0].instructions[0].kind: unknown kind of instruction \"foreword\""},
        Damage{"KindOfAGraph", "\"forward\"", "\"generic\"", "instruction of a pipeline"},
        Damage{"StageElsewhere", "\"stage\":0", "\"stage\":1",
               "stage 1 is chunk 0 of pp_rank 0 elsewhere"},
        Damage{"StageFraction", "\"stage\":0", "\"stage\":0.5", "is not a whole number"},
        Damage{"StageNowhere", "\"stage\":0", "\"stage\":9", "stage 9 exists, but stage 4"},
        Damage{"RankOutOfOrder", "\"pp_rank\": 1", "\"pp_rank\": 2",
               "pp_ranks[1].pp_rank is not 1"},
        Damage{"NegativeBound", "\"lower_bound_j\": ", "\"lower_bound_j\": -",
               "lower_bound_j is not a number from 0 to"},
        Damage{"TooDeep", "\"fixed\":{}", "\"fixed\":{\"p2p\":[[[[[[[[]]]]]]]]}",
               "nested too deeply"},
        Damage{"BinaryName", "profile.csv", "\x01\xff", "not JSON"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(PlanFileTest, TheErrorOfAFrequencyThatWasNotMeasuredHasTheNearest) {
  const Planned planned = Plan1F1B();
  PlanFile file = planned.File();
  file.pp_ranks[2].instructions[5].frequency_mhz = 1203;
  const auto options = FindOptions(file, planned.planner.graph(), "plan.json");
  ASSERT_FALSE(options);
  EXPECT_THAT(options.error().Message(),
              StartsWith("plan.json: pp_ranks[2].instructions[5]: stage 2 forward was not measured "
                         "at 1203 MHz, the nearest measured is 1200 MHz ("));
}

TEST(PlanFileTest, RefusesAPlanForAnotherJob) {
  const Planned planned = Plan1F1B();
  PlanFile file = planned.File();
  file.pp_ranks[1].instructions.pop_back();
  const auto options = FindOptions(file, planned.planner.graph(), "plan.json");
  ASSERT_FALSE(options);
  EXPECT_THAT(options.error().Message(), HasSubstr("pp_ranks[1].instructions[15]: the job has "
                                                   "backward of microbatch 7 on pp_rank 1 here"));
}

}  // namespace
}  // namespace perseus::plan_file
