#include "perseus/cluster/server/api/differences.h"

#include <gtest/gtest.h>

namespace perseus::server {
namespace {

using nlohmann::json;

TEST(Differences, NameBothValues) {
  const json there =
      json::parse(R"({"key": "a", "schedule": {"pp_ranks": 4}, "gpu": {"name": "x"}})");
  EXPECT_EQ(Differences(there, there), "");
  EXPECT_EQ(Differences(there, json::parse(R"({"key": "a", "schedule": {"pp_ranks": 8},
                                               "gpu": {"name": "x"}})")),
            "schedule.pp_ranks 4, here 8");
  EXPECT_EQ(Differences(there, json::parse(R"({"key": "a", "schedule": {"pp_ranks": 4},
                                               "gpu": {"name": "y", "power": 5}})")),
            "gpu.name \"x\", here \"y\"; gpu.power none, here 5");
}

TEST(Differences, NameOnlyTheFirstOnes) {
  json there;
  json here;
  for (int i = 0; i < 9; ++i) there[std::to_string(i)] = i, here[std::to_string(i)] = i + 1;
  EXPECT_EQ(Differences(there, here), "0 0, here 1; 1 1, here 2; 2 2, here 3; 3 3, here 4; …");
}

TEST(Differences, ShortenLongTexts) {
  const std::string same(1000, 'x');
  const std::string text = Differences({{"csv", same + "1"}}, {{"csv", same + "2"}});
  EXPECT_TRUE(text.starts_with("csv \"xxx")) << text;
  EXPECT_LT(text.size(), 200U);
}

}  // namespace
}  // namespace perseus::server
