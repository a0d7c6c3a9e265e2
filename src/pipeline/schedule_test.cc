#include "perseus/pipeline/schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "perseus/base/file.h"
#include "perseus/pipeline/schedule_check.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;

// A schedule drawn as in PyTorch's dumps, with spaces to align what runs at the same time. The
// spaces stand for bubbles.
std::string Drawn(std::string_view drawing) {
  std::string csv;
  std::istringstream rows{std::string(drawing)};
  for (std::string row; std::getline(rows, row);) {
    std::istringstream cells(row);
    std::string separator;
    for (std::string cell; cells >> cell;) {
      csv += separator + cell;
      separator = ",";
    }
    if (!separator.empty()) csv += '\n';
  }
  return csv;
}

std::string Generated(const ScheduleSpec& spec) {
  const Result<Schedule> schedule = GenerateSchedule(spec);
  return schedule ? FormatSchedule(*schedule) : schedule.error().message;
}

TEST(Schedule, Gpipe) {
  EXPECT_EQ(Generated({.name = "gpipe", .ranks = 3, .microbatches = 4}), Drawn(R"(
    0F0 0F1 0F2 0F3                         0B0 0B1 0B2 0B3
        1F0 1F1 1F2 1F3                 1B0 1B1 1B2 1B3
            2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3
  )"));
}

TEST(Schedule, OneForwardOneBackward) {
  EXPECT_EQ(Generated({.name = "1f1b", .ranks = 3, .microbatches = 4}), Drawn(R"(
    0F0 0F1 0F2         0B0 0F3 0B1     0B2     0B3
        1F0 1F1     1B0 1F2 1B1 1F3 1B2     1B3
            2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3
  )"));
}

TEST(Schedule, OneForwardOneBackwardWithFewMicrobatches) {
  EXPECT_EQ(Generated({.name = "1f1b", .ranks = 4, .microbatches = 2}), Drawn(R"(
    0F0 0F1                     0B0 0B1
        1F0 1F1             1B0 1B1
            2F0 2F1     2B0 2B1
                3F0 3B0 3F1 3B1
  )"));
}

// Each recompute stands where the rank waits for the gradient.
TEST(Schedule, EarlyRecompute) {
  EXPECT_EQ(Generated({.name = "early-recompute-1f1b", .ranks = 2, .microbatches = 3}), Drawn(R"(
    0F0 0F1 0R0         0B0 0F2 0R1     0B1 0R2     0B2
        1F0 1R0     1B0 1F1 1R1     1B1 1F2 1R2 1B2
  )"));
}

TEST(Schedule, InterleavedOneForwardOneBackward) {
  EXPECT_EQ(Generated({.name = "interleaved-1f1b", .ranks = 2, .microbatches = 4, .chunks = 2}),
            Drawn(R"(
    0F0 0F1 2F0 2F1     0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1     2B2     2B3     0B2     0B3
        1F0 1F1     3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3     1B2     1B3
  )"));
}

// The wgrads that rank r holds back (r of them) fill its drain.
TEST(Schedule, ZbH1) {
  EXPECT_EQ(Generated({.name = "zb-h1", .ranks = 3, .microbatches = 4}), Drawn(R"(
    0F0 0F1 0F2         0I0 0W0 0F3 0I1 0W1     0I2 0W2 0I3 0W3
        1F0 1F1     1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3
            2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3
  )"));
}

TEST(Schedule, InterleavedZb) {
  EXPECT_EQ(Generated({.name = "interleaved-zb", .ranks = 2, .microbatches = 2, .chunks = 2}),
            Drawn(R"(
    0F0 0F1 2F0     2F1 2I0 2W0 2I1 2W1 0I0 0W0     0I1 0W1
        1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1
  )"));
}

//   rank 0:  stage 0  stage 3
//   rank 1:  stage 1  stage 2
TEST(Schedule, ZbV) {
  EXPECT_EQ(Generated({.name = "zb-v", .ranks = 2, .microbatches = 3}), Drawn(R"(
    0F0 0F1 0F2     3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1     0I2 0W2
        1F0 2F0 1F1 2F1         2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2
  )"));
}

}  // namespace
}  // namespace perseus
