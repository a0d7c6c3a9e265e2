#include "perseus/cluster/node/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

namespace perseus::node {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kMessagesPlanA = "p-00000000000000aa";
constexpr const char* kMessagesPlanB = "p-00000000000000bb";

TEST(PlanIds, AreFitToBeFileNames) {
  EXPECT_TRUE(IsPlanId("p-0123456789abcdef"));
  for (const char* other : {"", "p-", "p-0123456789abcde", "p-0123456789abcdef0",
                            "p-0123456789ABCDEF", "p-../../etc/passw", "q-0123456789abcdef"}) {
    EXPECT_FALSE(IsPlanId(other)) << other;
  }
}

TEST(NodeEvents, AreReadAndWhatANewerServerAddsIsPassedOver) {
  const auto assignment = ParseNodeEvent(
      {"assignment", "j-1:7",
       R"({"job":"j-1","key":"run","version":7,"from_step":120,"since":{"a":[1]},)"
       R"("plans":{"0":"p-00000000000000aa","12":"p-00000000000000bb"},"reason":"target"})"});
  ASSERT_TRUE(assignment) << assignment.error().message;
  const JobAssignment expected{"j-1",   "run", 7, 120, {{0, kMessagesPlanA}, {12, kMessagesPlanB}},
                               "target"};
  EXPECT_EQ(std::get<JobAssignment>(*assignment), expected);

  const auto ended = ParseNodeEvent({"ended", "", R"({"job":"j-1"})"});
  ASSERT_TRUE(ended);
  EXPECT_EQ(std::get<JobEnded>(*ended).job, "j-1");

  const auto other = ParseNodeEvent({"weather", "", "rain"});
  ASSERT_TRUE(other);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*other));
}

TEST(NodeEvents, BringPlansAlong) {
  const auto assignment = ParseNodeEvent(
      {"assignment", "j-1:7",
       R"({"job":"j-1","key":"run","version":7,"from_step":120,"plans":{"0":"p-00000000000000aa"},)"
       R"("upcoming":["p-00000000000000bb"],)"
       R"("files":{"p-00000000000000aa": {"time_s": 0.1, "stages": []}}})"});
  ASSERT_TRUE(assignment) << assignment.error().message;
  const std::map<std::string, std::string> expected{
      {kMessagesPlanA, R"({"stages":[],"time_s":0.1})"}};
  EXPECT_EQ(std::get<JobAssignment>(*assignment).files, expected);
  EXPECT_EQ(std::get<JobAssignment>(*assignment).upcoming,
            std::vector<std::string>{kMessagesPlanB});
}

struct BadEvent {
  const char* name;
  const char* data;
  const char* message;
};
void PrintTo(const BadEvent& bad, std::ostream* out) { *out << bad.data; }

class BadEventTest : public testing::TestWithParam<BadEvent> {};
TEST_P(BadEventTest, IsAnErrorThatNamesThePlace) {
  const auto parsed = ParseNodeEvent({GetParam().name, "", GetParam().data});
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().message, HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(
    All, BadEventTest,
    testing::Values(
        BadEvent{"assignment", "", "event assignment:1: not JSON"},
        BadEvent{"assignment", R"({"job":"j","key":"k","version":0,"from_step":0,"plans":{}})",
                 "version is not a whole number"},
        BadEvent{"assignment",
                 R"({"job":"j","key":"k","version":1,"from_step":0,"plans":{"0":"../x"}})",
                 "plans.0 \"../x\" is not a plan's id"},
        BadEvent{
            "assignment",
            R"({"job":"j","key":"k","version":1,"from_step":0,"plans":{"all":"p-00000000000000aa"}})",
            "plans has \"all\""},
        BadEvent{
            "assignment",
            R"({"job":"j","key":"k","version":1,"from_step":0,"plans":{},"upcoming":["../x"]})",
            "\"../x\" is not a plan's id"},
        BadEvent{"ended", "[]", "job is missing"}));

TEST(Answers, NameTheJobOrDoNot) {
  EXPECT_EQ(JobOfAnswer(R"({"job":"j-1","more":1})"), "j-1");
  for (const char* body : {"", "{}", "[]", R"({"job":7})"}) EXPECT_EQ(JobOfAnswer(body), "");
}

TEST(Requests, AreAsDocumented) {
  protocol::RankHeader rank;
  rank.name = {0, 3, 1};
  rank.gpu = "GPU-1";
  EXPECT_EQ(json::parse(FormatRanks(std::vector{rank}, false, "")),
            json::parse(R"({"ranks":[{"dp_rank":0,"pp_rank":3,"tp_rank":1,"gpu":"GPU-1"}]})"));

  StepReport step{118, 0, 2.5, 2.25, 5120.5, 6, 4};
  StepReport unmetered = step;
  unmetered.energy_j.reset();
  const std::vector<JobReport> reports{{"j-1", 7, 6, 88, {step, unmetered}}};
  EXPECT_EQ(json::parse(FormatReports(reports)), json::parse(R"({"jobs":[
      {"job":"j-1","acknowledged":7,"following":6,"since_step":88,"steps":[
        {"step":118,"dp_rank":0,"time_s":2.5,"busy_s":2.25,"energy_j":5120.5,"version":6,"ranks":4},
        {"step":118,"dp_rank":0,"time_s":2.5,"busy_s":2.25,"version":6,"ranks":4}]}]})"));
}

}  // namespace
}  // namespace perseus::node
