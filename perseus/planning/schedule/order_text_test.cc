#include "perseus/planning/schedule/order_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "perseus/planning/schedule/schedule.h"

namespace perseus::schedule {
namespace {

using ::testing::HasSubstr;

TEST(DescribeOrder, NamesTheWarmupOfEachRank) {
  EXPECT_EQ(DescribeOrder(*GenerateWarmupSchedule(12, std::vector{5, 4, 3, 1})),
            "pp_rank 0: 5 forwards before its first backward; 5 F, 7 (B F), 5 B\n"
            "pp_rank 1: 4 forwards before its first backward; 4 F, 8 (B F), 4 B\n"
            "pp_rank 2: 3 forwards before its first backward; 3 F, 9 (B F), 3 B\n"
            "pp_rank 3: 1 forward before its first backward; 12 (F B)\n");
}

TEST(DescribeOrder, SeveralChunksNameTheirStages) {
  const std::string text = DescribeOrder(*GenerateSchedule(
      {.name = "interleaved-1f1b", .pp_ranks = 2, .microbatches = 4, .chunks = 2}));
  EXPECT_THAT(text, HasSubstr("pp_rank 0: 5 forwards before its first backward; 2 0F, 2 2F, "));
}

TEST(DescribeOrder, OtherOrdersOfMicrobatchesNameThem) {
  const auto schedule = ParseSchedule("0F1,0F0,0B0,0B1\n", "s.csv");
  ASSERT_TRUE(schedule) << schedule.error().message;
  EXPECT_EQ(DescribeOrder(*schedule),
            "pp_rank 0: 2 forwards before its first backward; F1, F0, B0, B1\n");
}

}  // namespace
}  // namespace perseus::schedule
