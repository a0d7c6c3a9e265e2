#include "perseus/cluster/node_messages/node_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "perseus/base/json_file.h"
#include "tests/support/results.h"

namespace perseus::protocol {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr const char* kPlanA = "p-00000000000000aa";
constexpr const char* kPlanB = "p-00000000000000bb";

TEST(PlanIds, AreFitToBeFileNames) {
  EXPECT_TRUE(IsPlanId("p-0123456789abcdef"));
  for (const char* other : {"", "p-", "p-0123456789abcde", "p-0123456789abcdef0",
                            "p-0123456789ABCDEF", "p-../../etc/passw", "q-0123456789abcdef"}) {
    EXPECT_FALSE(IsPlanId(other)) << other;
  }
}

TEST(NodeEvents, AreReadAndWhatANewerServerAddsIsPassedOver) {
  const auto assignment = ParseEvent(
      "assignment",
      R"({"job":"j-1","key":"run","version":7,"from_step":120,"since":{"a":[1]},)"
      R"("plans":{"0":"p-00000000000000aa","12":"p-00000000000000bb"},"target":"10 % slowdown","reason":"profile 2"})");
  ASSERT_TRUE(assignment) << assignment.error().Message();
  const AssignmentEvent expected{"j-1",           "run",      7, 120, {{0, kPlanA}, {12, kPlanB}},
                                 "10 % slowdown", "profile 2"};
  EXPECT_EQ(std::get<AssignmentEvent>(*assignment), expected);

  const auto ended = ParseEvent("ended", R"({"job":"j-1"})");
  ASSERT_TRUE(ended);
  EXPECT_EQ(std::get<EndedEvent>(*ended).job, "j-1");

  const auto other = ParseEvent("weather", "rain");
  ASSERT_TRUE(other);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*other));
}

TEST(NodeEvents, BringPlansAlong) {
  const auto assignment = ParseEvent(
      "assignment",
      R"({"job":"j-1","key":"run","version":7,"from_step":120,"plans":{"0":"p-00000000000000aa"},)"
      R"("upcoming":["p-00000000000000bb"],)"
      R"("files":{"p-00000000000000aa": {"time_s": 0.1, "stages": []}}})");
  ASSERT_TRUE(assignment) << assignment.error().Message();
  const std::map<std::string, std::string> expected{{kPlanA, R"({"stages":[],"time_s":0.1})"}};
  EXPECT_EQ(std::get<AssignmentEvent>(*assignment).files, expected);
  EXPECT_EQ(std::get<AssignmentEvent>(*assignment).upcoming, std::vector<std::string>{kPlanB});
}

struct BadEvent {
  const char* name;
  const char* data;
  const char* message;
};
void PrintTo(const BadEvent& bad, std::ostream* out) { *out << bad.data; }

class BadEventTest : public testing::TestWithParam<BadEvent> {};
TEST_P(BadEventTest, IsAnErrorThatNamesThePlace) {
  const auto parsed = ParseEvent(GetParam().name, GetParam().data);
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().Message(), HasSubstr(GetParam().message));
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

TEST(Requests, AreAsDocumented) {
  const Attachment attachment{.ranks = {{{0, 3, 1}, "GPU-1"}}};
  EXPECT_EQ(json::parse(FormatAttachment(attachment)),
            json::parse(R"({"ranks":[{"dp_rank":0,"pp_rank":3,"tp_rank":1,"gpu":"GPU-1"}]})"));

  StepReport step{118, 0, 2.5, 2.25, 5120.5, 6, 4};
  StepReport unmetered = step;
  unmetered.energy_j.reset();
  unmetered.limited = 1;
  unmetered.without_clocks = 3;
  const std::vector<JobReport> reports{{"j-1", 7, 6, 88, {step, unmetered}}};
  EXPECT_EQ(json::parse(FormatReports(reports)), json::parse(R"({"jobs":[
      {"job":"j-1","acknowledged":7,"following":6,"since_step":88,"steps":[
        {"step":118,"dp_rank":0,"time_s":2.5,"busy_s":2.25,"energy_j":5120.5,"version":6,"ranks":4},
        {"step":118,"dp_rank":0,"time_s":2.5,"busy_s":2.25,"version":6,"ranks":4,"limited":1,
         "without_clocks":3}]}]})"));
}

// Checks that one side can read what the other side writes.
template <typename Read>
auto ReadBack(const std::string& text, Read read) {
  return json_file::Read(text, "message", 8, read);
}

TEST(NodeMessages, AreReadAsTheyWereWritten) {
  const Attachment attachment{
      .ranks = {{{1, 3, 0}, "GPU-1"}, {{1, 3, 1}, ""}}, .restarted = true, .instance = "5e0c"};
  const auto attached = ReadBack(FormatAttachment(attachment), [](const json_file::Node& body) {
    return ReadAttachment(body, {.dp_rank = 1, .pp_rank = 3, .tp_rank = 1});
  });
  ASSERT_TRUE(attached) << attached.error().Message();
  EXPECT_EQ(*attached, attachment);
  EXPECT_EQ(*ParseRanks(FormatRanks(attachment.ranks)), attachment.ranks);

  const StepReport step{118, 1, 2.5, 2.25, 5120.5, 6, 4, 1, 2};
  const std::vector<JobReport> reports{{"j-1", 7, 6, 88, {step}, 3}, {.job = "j-2"}};
  const auto reported = ReadBack(FormatReports(reports), ReadReports);
  ASSERT_TRUE(reported) << reported.error().Message();
  EXPECT_EQ(reported->jobs, reports);
  EXPECT_THAT(reported->refused, IsEmpty());
  EXPECT_TRUE(CheckStep(step));

  const EndedEvent ended{"j-1", "run"};
  EXPECT_EQ(std::get<EndedEvent>(*ParseEvent(kEndedEvent, FormatEvent(ended))), ended);

  AssignmentEvent event{"j-1", "run", 7, 120, {{0, kPlanA}}, "no slowdown", "profile 2"};
  event.upcoming = {kPlanB};
  event.files = {{kPlanA, R"({"a":1})"}, {kPlanB, R"({"b":2})"}};
  std::vector<std::pair<std::string, SharedText>> files;
  for (const auto& [id, file] : event.files) {
    files.emplace_back(id, std::make_shared<const std::string>(file));
  }
  std::string text;
  for (const SharedText& part : FormatEvent(event, files)) text += *part;
  const auto parsed = ParseEvent(kAssignmentEvent, text);
  ASSERT_TRUE(parsed) << parsed.error().Message();
  EXPECT_EQ(std::get<AssignmentEvent>(*parsed), event);
}

TEST(NodeMessages, AnInvalidReportOfAJobAffectsNoOtherJob) {
  StepReport wrong{118, 1, 2.5, 2.25, 5120.5, 6, 4};
  wrong.time_s = 1e7;
  EXPECT_THAT(CheckStep(wrong), FailsWith(HasSubstr("time_s")));
  const JobReport good{.job = "j-1", .acknowledged = 7};
  const JobReport bad{.job = "j-2", .steps = {wrong}};
  const auto both = ReadBack(FormatReports(std::vector{bad, good}), ReadReports);
  ASSERT_TRUE(both) << both.error().Message();
  EXPECT_THAT(both->jobs, ElementsAre(good));
  EXPECT_THAT(both->refused, ElementsAre(Pair("j-2", HasSubstr("jobs[0].steps[0].time_s"))));
  EXPECT_THAT(ReadBack(FormatReports(std::vector{bad}), ReadReports),
              FailsWith(HasSubstr("jobs[0].steps[0].time_s")));
  EXPECT_FALSE(ReadBack(R"({"jobs": [{"job": "j-1"}, {"following": 1}]})", ReadReports));
}

TEST(NodeMessages, OfImpossibleRanksAreRefusedWithTheirPlace) {
  const auto place_of = [](const Attachment& attachment) {
    const auto read = ReadBack(FormatAttachment(attachment), [](const json_file::Node& node) {
      return ReadAttachment(node, {.dp_rank = 0, .pp_rank = 3, .tp_rank = 0});
    });
    return read ? "" : read.error().Message();
  };
  EXPECT_THAT(place_of({.ranks = {{{0, 4, 0}, ""}}}), HasSubstr("ranks[0].pp_rank"));
  EXPECT_THAT(place_of({.ranks = {{{0, 1, 1}, ""}}}), HasSubstr("ranks[0].tp_rank"));
  EXPECT_THAT(place_of({.ranks = {{{0, 1, 0}, std::string(129, 'G')}}}), HasSubstr("ranks[0].gpu"));
  EXPECT_THAT(place_of({.ranks = {{{0, 1, 0}, "GPU-0"}, {{0, 1, 0}, "GPU-1"}}}),
              HasSubstr("ranks[1]"));
}

}  // namespace
}  // namespace perseus::protocol
