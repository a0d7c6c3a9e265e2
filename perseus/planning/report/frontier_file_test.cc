#include "perseus/planning/report/frontier_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::report {
namespace {

using ::testing::HasSubstr;

TEST(ParseFrontier, ReadsTheOutputOfFormatFrontier) {
  const plan::Frontier frontier{
      .points = {{2'822'212'829, 6124.411, 2210.5, 0.25}, {3'000'000'001, 5.5, 0, 0}},
      .least_energy = 1};
  const auto curve = ParseFrontier(FormatFrontier(frontier), "frontier.csv");
  ASSERT_TRUE(curve) << curve.error().Message();
  EXPECT_EQ(curve->name, "frontier.csv");
  ASSERT_EQ(curve->points.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(curve->points[i].time, frontier.points[i].time);
    EXPECT_EQ(curve->points[i].bound_j, frontier.points[i].bound_j);
    EXPECT_EQ(curve->points[i].price_w, frontier.points[i].price_w);
    EXPECT_EQ(curve->points[i].error_j, frontier.points[i].error_j);
  }
  EXPECT_DOUBLE_EQ(curve->error, 0.25 / 6124.411);
}

TEST(ParseFrontier, SortsAndIgnoresOtherColumns) {
  const auto curve = ParseFrontier("note,energy,time\nslow,10,3\nfast,20,2\n", "other.csv");
  ASSERT_TRUE(curve) << curve.error().Message();
  ASSERT_EQ(curve->points.size(), 2U);
  EXPECT_EQ(curve->points[0].time, 2'000'000'000);
  EXPECT_EQ(curve->points[0].bound_j, 20);
}

struct Bad {
  std::string name;
  std::string text;
  std::string message;
};

class BadFrontier : public testing::TestWithParam<Bad> {};

TEST_P(BadFrontier, TheErrorHasPlaceAndRemedy) {
  const auto curve = ParseFrontier(GetParam().text, "f.csv");
  ASSERT_FALSE(curve);
  EXPECT_EQ(curve.error().kind, ErrorKind::kInput);
  EXPECT_THAT(curve.error().Message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    , BadFrontier,
    testing::Values(
        Bad{"Empty", "", "f.csv: is empty"}, Bad{"NoRows", "time,energy\n", "f.csv: has no points"},
        Bad{"NoEnergy", "time,watts\n1,2\n", "f.csv:1: column \"energy\" is missing"},
        Bad{"Profile", "stage,instruction,frequency,time,energy\n", "f.csv:1: is a profile"},
        Bad{"NotANumber", "time,energy\n1,2\n1.5,2J\n", "f.csv:3: energy \"2J\" is not a number"},
        Bad{"Infinite", "time,energy\n1,inf\n", "f.csv:2: energy \"inf\" is not a number"},
        Bad{"Negative", "time,energy\n-1,2\n", "f.csv:2: time \"-1\" is out of range"},
        Bad{"CutOff", "time,energy\n1,2\n1\n", "f.csv:3: 1 fields, but the header has 2"}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace perseus::report
