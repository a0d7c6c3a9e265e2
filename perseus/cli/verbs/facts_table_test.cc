#include <gmock/gmock.h>

#include <sstream>

#include "perseus/cli/verbs/facts_table.h"

namespace perseus::cli {
namespace {

TEST(FactsTable, HasEveryFact) {
  const auto facts = hardware_facts::Read(PERSEUS_SOURCE_DIR "/examples/hardware-facts.toml");
  ASSERT_TRUE(facts);
  const std::string table = FormatFacts(*facts);
  for (const std::string part :
       {"node-1: 8 x NVIDIA A100-SXM4-80GB, driver 570.124.06", "far, up", "9.10 (8.80 to 9.60)",
        "95.0 (94.1 to 96.0)", "1.30 (0.90 to 1.80)", "multiples of 0.001 J",
        "at least 80 a second, of the whole node (not shown for 160)", "saves power while a GPU",
        "limit: The power limit of 400 W"}) {
    EXPECT_THAT(table, ::testing::HasSubstr(part));
  }
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(!line.starts_with("--") || line.size() <= 80) << line;
  }
}

}  // namespace
}  // namespace perseus::cli
