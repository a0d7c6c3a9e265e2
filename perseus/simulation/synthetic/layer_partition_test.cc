#include "perseus/simulation/synthetic/model_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::synthetic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string MessageFor(std::vector<int> boundaries, int layers, int parts) {
  const auto checked = CheckBoundaries(boundaries, layers, parts);
  return checked ? "no error" : checked.error().message;
}

TEST(LayerPartition, BoundariesGoFromTheFirstLayerToTheLast) {
  EXPECT_EQ(MessageFor({0, 8, 14, 21, 27}, 27, 4), "no error");
  EXPECT_THAT(MessageFor({0, 8, 27}, 27, 4), HasSubstr("make 2 parts, but 4 parts"));
  EXPECT_THAT(MessageFor({}, 27, 4), HasSubstr("make 0 parts"));
  EXPECT_THAT(MessageFor({0, 8, 8, 21, 27}, 27, 4), HasSubstr("8 is followed by 8"));
  EXPECT_THAT(MessageFor({0, 14, 8, 21, 27}, 27, 4), HasSubstr("14 is followed by 8"));
  EXPECT_THAT(MessageFor({0, 8, 14, 21, 26}, 27, 4), HasSubstr("use 0 to 27"));
  EXPECT_THAT(MessageFor({1, 8, 14, 21, 27}, 27, 4), HasSubstr("use 0 to 27"));
}

TEST(LayerPartition, UniformGivesTheRemainderToTheFirst) {
  EXPECT_THAT(*UniformBoundaries(27, 4), ElementsAre(0, 7, 14, 21, 27));
  EXPECT_THAT(*UniformBoundaries(3, 3), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(UniformBoundaries(3, 4).error().message, HasSubstr("cannot fill 4 parts"));
}

//   embedding  embedding  block  block  block  block  head
//   0          1          2      3      4      5      6
//   |---------- part 0 ---------------||------ part 1 ------|
TEST(LayerPartition, UniformBlocksCountOnlyBlocks) {
  std::vector<LayerWork> layers(7);
  for (std::size_t i = 2; i < 6; ++i) layers[i].is_block = true;
  EXPECT_THAT(*UniformBlockBoundaries(layers, 2), ElementsAre(0, 4, 7));
  EXPECT_THAT(*UniformBlockBoundaries(layers, 1), ElementsAre(0, 7));
  EXPECT_FALSE(UniformBlockBoundaries(layers, 5));
}

}  // namespace
}  // namespace perseus::synthetic
