#include "perseus/planning/power_share/power_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace perseus::power_share {
namespace {

using ::testing::HasSubstr;

// Sums of a few thousand doubles.
constexpr double kRounding = 1e-9;

double FastestOf(const Job& job) {
  return std::ranges::min_element(job.points, {}, &Point::time_s)->time_s;
}
double LossOf(const Job& job, const Point& point) {
  return job.weight * (1 - FastestOf(job) / point.time_s);
}

// The least loss of all divisions. A linear program has an optimum in which at most one job is
// between two of its points. So this tries each job as that job, with all points of the others.
double LeastLoss(const std::vector<Job>& jobs, double cap_w) {
  double least = std::numeric_limits<double>::infinity();
  for (const Job& between : jobs) {
    // What the others leave, and their loss.
    std::vector<std::pair<double, double>> rests{{cap_w, 0}};
    for (const Job& other : jobs) {
      if (&other == &between) continue;
      std::vector<std::pair<double, double>> further;
      for (const auto& [rest_w, loss] : rests) {
        for (const Point& point : other.points) {
          further.emplace_back(rest_w - point.power_w, loss + LossOf(other, point));
        }
      }
      rests = std::move(further);
    }
    for (const auto& [rest_w, loss] : rests) {
      for (const Point& a : between.points) {
        if (a.power_w > rest_w) continue;
        least = std::min(least, loss + LossOf(between, a));
        for (const Point& b : between.points) {
          if (b.power_w <= rest_w) continue;
          const double part = (rest_w - a.power_w) / (b.power_w - a.power_w);
          const double rate = 1 / a.time_s + part * (1 / b.time_s - 1 / a.time_s);
          least = std::min(least, loss + LossOf(between, {1 / rate, rest_w}));
        }
      }
    }
  }
  return least;
}

// A few random points, which need not be convex.
Job RandomJob(std::mt19937_64& random, int points) {
  std::uniform_real_distribution<double> part(0, 1);
  Job job;
  job.weight = 1 + 9 * part(random);
  const double size = 100 + 1000 * part(random);
  for (int i = 0; i < points; ++i) {
    const double time_s = 1 + part(random);
    job.points.push_back({time_s, size * (1 / time_s + 0.3 * part(random))});
  }
  return job;
}

TEST(PowerShareTest, LosesAsLittleAsTheBestOfAllDivisions) {
  std::mt19937_64 random(7);
  int solved = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<Job> jobs;
    double least_w = 0;
    double most_w = 0;
    for (int i = 0; i < 1 + round % 3; ++i) {
      jobs.push_back(RandomJob(random, 1 + round % 4));
      const auto by_power = std::ranges::minmax(jobs.back().points, {}, &Point::power_w);
      least_w += by_power.min.power_w;
      most_w += by_power.max.power_w;
    }
    std::uniform_real_distribution<double> cap(0.95 * least_w, 1.05 * most_w);
    const double cap_w = cap(random);
    const auto division = Divide(jobs, cap_w);
    EXPECT_EQ(division.has_value(), cap_w >= least_w);
    if (!division) continue;
    ++solved;
    EXPECT_NEAR(division->loss, LeastLoss(jobs, cap_w), kRounding) << round;
    EXPECT_NEAR(division->loss, division->bound, kRounding) << round;
    EXPECT_LE(division->power_w, cap_w * (1 + kRounding));
  }
  EXPECT_GT(solved, 1000);
}

TEST(PowerShareTest, TheBoundProvesADivisionOfAThousandJobs) {
  std::mt19937_64 random(8);
  std::vector<Job> jobs;
  double least_w = 0;
  for (int i = 0; i < 1000; ++i) {
    jobs.push_back(RandomJob(random, 20));
    least_w += std::ranges::min(jobs.back().points, {}, &Point::power_w).power_w;
  }
  double last = std::numeric_limits<double>::infinity();
  for (const double more : {1.0, 1.01, 1.1, 1.2, 1.3, 2.0}) {
    const auto division = Divide(jobs, more * least_w);
    ASSERT_TRUE(division);
    EXPECT_NEAR(division->loss, division->bound, 1e3 * kRounding);
    EXPECT_LE(division->power_w, more * least_w * (1 + kRounding));
    EXPECT_LT(division->loss, last) << "more power, less loss";
    last = division->loss;
  }
  EXPECT_NEAR(last, 0, 1e3 * kRounding);
}

TEST(PowerShareTest, WattsGoWhereTheyGiveBackMostWork) {
  // 100 W more make the first job twice as fast, and the second job 1.25 times as fast.
  const std::vector<Job> jobs{{{{1, 300}, {2, 200}}}, {{{1, 300}, {1.25, 200}}}};
  const auto division = Divide(jobs, 550);
  ASSERT_TRUE(division);
  EXPECT_DOUBLE_EQ(division->shares[0].time_s, 1);
  EXPECT_DOUBLE_EQ(division->shares[1].power_w, 250);
  EXPECT_DOUBLE_EQ(1 / division->shares[1].time_s, 0.9);
  EXPECT_DOUBLE_EQ(division->price, 0.2 / 100);
  EXPECT_DOUBLE_EQ(division->loss, 0.1);
}

TEST(PowerShareTest, AHighCapGivesEachJobItsLeastTime) {
  const std::vector<Job> jobs{{{{2, 200}, {1, 300}}}, {{{3, 100}}}};
  const auto division = Divide(jobs, 1e6);
  ASSERT_TRUE(division);
  EXPECT_EQ(division->shares[0].time_s, 1);
  EXPECT_EQ(division->power_w, 400);
  EXPECT_EQ(division->loss, 0);
  EXPECT_EQ(division->price, 0);
}

TEST(PowerShareTest, ACapBelowTheLeastPowerStatesIt) {
  const std::vector<Job> jobs{{{{2, 200}, {1, 300}}}, {{{3, 100}}}};
  const auto refused = Divide(jobs, 299);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnreachable);
  EXPECT_THAT(refused.error().Message(), HasSubstr("the least power of the jobs, 300 W"));
  EXPECT_EQ(Divide(jobs, 300)->shares[0].time_s, 2);
}

TEST(PowerShareTest, RefusesNumbersThatAreNoPowers) {
  for (const Job& wrong : {Job{}, Job{{{0, 1}}}, Job{{{1, -1}}}, Job{{{1, 1}}, 0},
                           Job{{{std::numeric_limits<double>::quiet_NaN(), 1}}}}) {
    const auto refused = Divide(std::vector{Job{{{1, 1}}}, wrong}, 10);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().Message(), HasSubstr("job 1 has "));
  }
}

}  // namespace
}  // namespace perseus::power_share
