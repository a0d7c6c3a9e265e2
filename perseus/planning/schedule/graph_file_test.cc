// Tests of ParseInstructionGraph: general graphs in JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

//   gpu0:  a ----------> b
//           \           ^
//   gpu1:    `--> c ---'  1 ms later
constexpr std::string_view kDiamond = R"({
  "instructions": [
    {"name": "a", "resource": "gpu0",
     "options": [{"frequency": 1000, "time": 0.06, "energy": 20},
                 {"frequency": 1410, "time": 0.05, "energy": 23.8}]},
    {"name": "b", "resource": "gpu0", "options": [{"time": 0.01, "energy": 1}]},
    {"name": "c", "resource": "gpu1", "options": [{"time": 0.02, "energy": 2}]}],
  "dependencies": [{"from": "a", "to": "c"}, {"from": "c", "to": "b", "delay": 0.001}],
  "blocking_power": 83.64
})";

TEST(GraphFile, ReadsAndSorts) {
  const Result<GraphFile> file = ParseInstructionGraph(kDiamond, "work.json");
  ASSERT_TRUE(file) << file.error().Message();
  const InstructionGraph& graph = file->graph;
  EXPECT_EQ(file->blocking_power_w, 83.64);
  EXPECT_EQ(graph.name, "work.json");
  EXPECT_EQ(Describe(graph, 0), "\"a\"");
  EXPECT_EQ(Describe(graph, 1), "\"c\"") << "before b, which waits for it";
  EXPECT_EQ(Describe(graph, 2), "\"b\"");
  EXPECT_THAT(graph.pp_rank_names, ElementsAre("gpu0", "gpu1"));
  EXPECT_THAT(graph.pp_rank_orders, ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  ASSERT_EQ(graph.dependencies.size(), 3U);
  EXPECT_EQ(graph.dependencies[2].delay, 1'000'000);
}

TEST(GraphFile, SortsOptionsByFrequencyHighestFirst) {
  const Result<GraphFile> file = ParseInstructionGraph(kDiamond, "work.json");
  ASSERT_TRUE(file) << file.error().Message();
  const OptionSet& options = file->graph.options_of(0);
  ASSERT_EQ(options.options.size(), 2U);
  EXPECT_EQ(options.options[0].frequency_mhz, 1410);
  EXPECT_EQ(options.options[0].time, 50'000'000);
  EXPECT_EQ(options.options[0].energy_j, 23.8);
  EXPECT_EQ(options.baseline, 0);
}

TEST(GraphFile, AnInstructionWithoutAResourceBlocksNoOther) {
  const Result<GraphFile> file = ParseInstructionGraph(R"({"instructions": [
      {"name": "a", "options": [{"time": 1, "energy": 1}]},
      {"name": "b", "options": [{"time": 1, "energy": 1}]}]})",
                                                       "work.json");
  ASSERT_TRUE(file) << file.error().Message();
  EXPECT_THAT(file->graph.pp_rank_names, ElementsAre("a", "b"));
  EXPECT_TRUE(file->graph.dependencies.empty());
}

TEST(GraphFile, AGivenBlockingPowerReplacesThatOfTheFile) {
  EXPECT_EQ(ParseInstructionGraph(kDiamond, "work.json", 50)->blocking_power_w, 50);
  EXPECT_EQ(ParseInstructionGraph(kDiamond, "work.json", 0)->blocking_power_w, 0);
  const std::string without_resource =
      R"({"instructions": [{"name": "a", "options": [{"time": 1, "energy": 1}]}]})";
  const Result<GraphFile> file = ParseInstructionGraph(without_resource, "work.json", 50);
  ASSERT_FALSE(file) << "a GPU of its own would idle";
  EXPECT_THAT(file.error().Message(),
              StartsWith("work.json: instructions[0] \"a\" has no resource, but a blocking power"));
  EXPECT_TRUE(ParseInstructionGraph(without_resource, "work.json", 0));
}

TEST(GraphFile, ADependencyThatTheResourceImpliesKeepsItsDelay) {
  const Result<GraphFile> file = ParseInstructionGraph(R"({"instructions": [
      {"name": "a", "resource": "gpu0", "options": [{"time": 1, "energy": 1}]},
      {"name": "b", "resource": "gpu0", "options": [{"time": 1, "energy": 1}]}],
      "dependencies": [{"from": "a", "to": "b", "delay": 2}, {"from": "a", "to": "b"}]})",
                                                       "work.json");
  ASSERT_TRUE(file) << file.error().Message();
  ASSERT_EQ(file->graph.dependencies.size(), 1U);
  EXPECT_EQ(file->graph.dependencies[0].delay, 2'000'000'000);
}

struct Refusal {
  std::string_view name;
  std::string text;
  std::string_view message;
};

// A file with one instruction, which has the given list of options.
std::string WithOptions(std::string_view options) {
  return R"({"instructions": [{"name": "a", "options": )" + std::string(options) + "}]}";
}
// A file with instructions "a" and "b" on one resource and the given list of dependencies.
std::string WithDependencies(std::string_view dependencies) {
  return R"({"instructions": [
      {"name": "a", "resource": "r", "options": [{"time": 1, "energy": 1}]},
      {"name": "b", "resource": "r", "options": [{"time": 1, "energy": 1}]}],
      "dependencies": )" +
         std::string(dependencies) + "}";
}

class GraphFileRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(GraphFileRefusal, SaysWhereAndWhatToDo) {
  const Result<GraphFile> file = ParseInstructionGraph(GetParam().text, "work.json");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().Message(), StartsWith(std::string(GetParam().message)));
  EXPECT_EQ(file.error().Message().find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, GraphFileRefusal,
    ::testing::Values(
        Refusal{"Nothing", "", "work.json:1: not JSON: "},
        Refusal{"NotJson", "{\n\n\"a\" 3}", "work.json:3: not JSON: "},
        Refusal{"NotUtf8", "{\"\xff\": 1}", "work.json:1: not JSON: "},
        Refusal{"NotAnObject", "[]", "work.json: is not an object"},
        Refusal{"DepthBomb", std::string(1'000'000, '['), "work.json: nested too deeply"},
        Refusal{"UnknownKey", R"({"instruction": []})",
                "work.json: has no key \"instruction\" (did you mean \"instructions\"?)"},
        Refusal{"KeyTwice", R"({"instructions": [{"name": "a", "name": "b"}]})",
                "work.json: key \"name\" appears twice in one object (remove one)"},
        Refusal{"NoInstructions", "{}", "work.json: instructions is missing"},
        Refusal{"EmptyInstructions", R"({"instructions": []})", "work.json: instructions is empty"},
        Refusal{"InstructionsIsNoList", R"({"instructions": {}})",
                "work.json: instructions is not a list"},
        Refusal{"InstructionIsNoObject", R"({"instructions": [1]})",
                "work.json: instructions[0] is not an object"},
        Refusal{"NoName", R"({"instructions": [{"options": []}]})",
                "work.json: instructions[0].name is missing"},
        Refusal{"NumberAsName", R"({"instructions": [{"name": 3, "options": []}]})",
                "work.json: instructions[0].name is not a string"},
        Refusal{"NameTwice",
                R"({"instructions": [{"name": "a", "options": [{"time": 1, "energy": 1}]},
                                   {"name": "a", "options": [{"time": 1, "energy": 1}]}]})",
                "work.json: instructions[1].name \"a\" is also the name of instructions[0]"},
        Refusal{"NoOptions", WithOptions("[]"), "work.json: instructions[0].options is empty"},
        Refusal{"NoTime", WithOptions(R"([{"energy": 1}])"),
                "work.json: instructions[0].options[0].time is missing"},
        Refusal{"NoFrequency",
                WithOptions(R"([{"time": 1, "energy": 1}, {"time": 2, "energy": 1}])"),
                "work.json: instructions[0].options[0].frequency is missing"},
        Refusal{"FrequencyTwice", WithOptions(R"([{"frequency": 9, "time": 1, "energy": 1},
                                {"frequency": 9, "time": 2, "energy": 1}])"),
                "work.json: instructions[0].options has frequency 9 twice (keep one)"},
        Refusal{"NegativeTime", WithOptions(R"([{"time": -1, "energy": 1}])"),
                "work.json: instructions[0].options[0].time is not a number from 0 to 1000000"},
        Refusal{"NoTimeAtAll", WithOptions(R"([{"time": 1e-12, "energy": 1}])"),
                "work.json: instructions[0].options[0].time is less than a nanosecond"},
        Refusal{"HugeTime", WithOptions(R"([{"time": 1e7, "energy": 1}])"),
                "work.json: instructions[0].options[0].time is not a number from 0 to 1000000"},
        Refusal{"OverflowingTime", WithOptions(R"([{"time": 1e999, "energy": 1}])"),
                "work.json: not JSON: number overflow"},
        Refusal{"NaN", WithOptions(R"([{"time": NaN, "energy": 1}])"), "work.json:1: not JSON"},
        Refusal{"TextForEnergy", WithOptions(R"([{"time": 1, "energy": "1"}])"),
                "work.json: instructions[0].options[0].energy is not a number"},
        Refusal{"NoEnergyAtAll", WithOptions(R"([{"time": 1, "energy": 0}])"),
                "work.json: instructions[0].options[0].energy is not positive (expected joules)"},
        Refusal{"BlockingWithoutResource",
                R"({"blocking_power": 1,
                    "instructions": [{"name": "a", "options": [{"time": 1, "energy": 1}]}]})",
                "work.json: instructions[0] \"a\" has no resource"},
        Refusal{"DependenciesIsNoList", WithDependencies("3"),
                "work.json: dependencies is not a list"},
        Refusal{"UnknownInstruction", WithDependencies(R"([{"from": "a", "to": "z"}])"),
                "work.json: dependencies[0].to: no instruction has the name \"z\""},
        Refusal{"NegativeDelay", WithDependencies(R"([{"from": "a", "to": "b", "delay": -1}])"),
                "work.json: dependencies[0].delay is not a number from 0"},
        Refusal{"AgainstTheResource", WithDependencies(R"([{"from": "b", "to": "a"}])"),
                "work.json: instructions wait for each other: "},
        Refusal{"ItsOwnSuccessor", WithDependencies(R"([{"from": "b", "to": "b"}])"),
                "work.json: instructions wait for each other: \"b\" -> \"b\""}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace perseus::schedule
