#include "perseus/runtime/protocol/orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"

namespace perseus::protocol {
namespace {

using ::testing::HasSubstr;

Orders Profiling() {
  Orders orders;
  orders.version = 8;
  orders.from_step = 9'007'199'254'740'992;  // 2^53.
  orders.record = false;
  orders.clocks = {{0, 0, InstructionKind::kForward, 1410},
                   {3, 1, InstructionKind::kBackwardWeight, 210}};
  return orders;
}

TEST(Orders, SurviveTheirFile) {
  Orders following;
  following.plan = "plans/7.json";
  Orders apart;
  apart.plan = "plans/p-12.json";
  apart.plans = {{1, "plans/p-9a.json"}, {12, "plans/p-7.json"}};
  apart.server = {"j-0123456789abcdef", 3};
  Orders own;
  own.own = true;
  own.from_step = 7;
  own.until_step = 9;
  for (const Orders& orders : {Orders(), Profiling(), following, apart, own}) {
    const auto parsed = ParseOrders(FormatOrders(orders), "orders.json");
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, orders);
  }
}

TEST(Orders, APipelineThatIsNotListedFollowsThePlanOfAll) {
  Orders orders;
  EXPECT_EQ(orders.PlanOf(0), "");
  orders.plans = {{1, "plans/b.json"}};
  EXPECT_EQ(orders.PlanOf(0), "");
  EXPECT_EQ(orders.PlanOf(1), "plans/b.json");
  orders.plan = "plans/a.json";
  EXPECT_EQ(orders.PlanOf(0), "plans/a.json");
  EXPECT_EQ(orders.PlanOf(1), "plans/b.json");
}

struct BadOrders {
  const char* name;
  const char* text;
  const char* message;
};
void PrintTo(const BadOrders& bad, std::ostream* out) { *out << bad.name; }

class BadOrdersTest : public testing::TestWithParam<BadOrders> {};
TEST_P(BadOrdersTest, AreAnErrorThatNamesThePlace) {
  const auto parsed = ParseOrders(GetParam().text, "orders.json");
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().message, HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(
    All, BadOrdersTest,
    testing::Values(
        BadOrders{"Empty", "", "orders.json:1: not JSON"},
        BadOrders{"OtherFile", R"({"format":"perseus-plan"})", "has no key \"format\""},
        BadOrders{"Newer", R"({"perseus_orders":2,"version":1,"from_step":0,"record":true})",
                  "perseus_orders is not 1"},
        BadOrders{"NoVersion", R"({"perseus_orders":1,"from_step":0,"record":true})",
                  "version is missing"},
        BadOrders{"VersionZero", R"({"perseus_orders":1,"version":0,"from_step":0,"record":true})",
                  "version is not a whole number from 1"},
        BadOrders{
            "HugeStep",
            R"({"perseus_orders":1,"version":1,"from_step":18446744073709551615,"record":true})",
            "from_step is not a whole number"},
        BadOrders{"EndsBeforeItBegins",
                  R"({"perseus_orders":1,"version":1,"from_step":5,"until_step":5,"record":true})",
                  "until_step 5 is not after from_step 5"},
        BadOrders{
            "OwnAndPlan",
            R"({"perseus_orders":1,"version":1,"from_step":0,"record":true,"own":true,"plan":"a"})",
            "own is true"},
        BadOrders{"RecordIsText",
                  R"({"perseus_orders":1,"version":1,"from_step":0,"record":"yes"})",
                  "record is neither true nor false"},
        BadOrders{
            "Both",
            R"({"perseus_orders":1,"version":1,"from_step":0,"record":true,"plan":"p","clocks":[]})",
            "both plan and clocks"},
        BadOrders{
            "PlanElsewhere",
            R"({"perseus_orders":1,"version":1,"from_step":0,"record":true,"plan":"../p.json"})",
            "not a path within the job's directory"},
        BadOrders{
            "PlansAndClocks",
            R"({"perseus_orders":1,"version":1,"from_step":0,"record":true,"plans":{},"clocks":[]})",
            "both plan and clocks"},
        BadOrders{"PlansAreAList",
                  R"({"perseus_orders":1,"version":1,"from_step":0,"record":true,"plans":["p"]})",
                  "plans is not an object"},
        BadOrders{
            "NoPipeline",
            R"({"perseus_orders":1,"version":1,"from_step":0,"record":true,"plans":{"01":"p"}})",
            "plans has \"01\", which is no pipeline's number"},
        BadOrders{
            "PlanOfAPipelineElsewhere",
            R"({"perseus_orders":1,"version":1,"from_step":0,"record":true,"plans":{"1":"/etc/p"}})",
            "plans.1 \"/etc/p\" is not a path within the job's directory"},
        BadOrders{
            "ServerWithoutVersion",
            R"({"perseus_orders":1,"version":1,"from_step":0,"record":true,"server":{"job":"j"}})",
            "server.version is missing"},
        BadOrders{
            "NoSuchKind",
            R"({"perseus_orders":1,"version":1,"from_step":0,"record":true,"clocks":[{"rank":0,"chunk":0,"kind":"load","mhz":1}]})",
            "clocks[0].kind \"load\" is not a computation"},
        BadOrders{
            "NoClock",
            R"({"perseus_orders":1,"version":1,"from_step":0,"record":true,"clocks":[{"rank":0,"chunk":0,"kind":"forward","mhz":0}]})",
            "clocks[0].mhz is not"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(OrdersFile, IsNothingBeforeItWasWrittenAndWholeAfterwards) {
  const TemporaryDirectory temporary;
  const std::filesystem::path& directory = temporary.path();
  auto read = ReadOrders(directory);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_FALSE(read->has_value());

  ASSERT_TRUE(WriteOrders(directory, Profiling()));
  read = ReadOrders(directory);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, Profiling());

  std::ofstream(directory / "orders.json") << "{";
  read = ReadOrders(directory);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("orders.json:1: not JSON"));
}

}  // namespace
}  // namespace perseus::protocol
