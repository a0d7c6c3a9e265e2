// Compares policies on measured jobs with the published results (reference/published.csv), in the
// units of the profiles. The published times are ten times as large. The published energies are
// eighty times as large (ten times eight GPUs in a stage).
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "bench/measured_job.h"
#include "perseus/base/file.h"
#include "perseus/planning/profile/csv_reader.h"
#include "perseus/simulation/baselines/policy.h"

namespace perseus {
namespace {

struct PublishedPolicies {
  const MeasuredJob* job = nullptr;
  int microbatches = 0;
  double perseus_saving = 0;  // Without a straggler, as a fraction.
  double envpipe_time_s = 0;
  double envpipe_energy_j = 0;
};

std::filesystem::path PublishedPoliciesPath() { return PublishedDirectory() / "published.csv"; }

// Returns all rows of the file. Aborts if the file does not have the expected contents.
std::vector<PublishedPolicies> ReadPublishedPolicies() {
  const auto text = ReadFile(PublishedPoliciesPath());
  if (!text) std::abort();
  std::vector<PublishedPolicies> rows;
  profile::CsvReader reader(*text, "published.csv");
  if (!reader.Next().value_or(false)) std::abort();
  while (reader.Next().value_or(false)) {
    const auto fields = reader.fields();
    if (fields.size() != 7) std::abort();
    const auto number = [&](std::size_t i) { return std::stod(std::string(fields[i])); };
    PublishedPolicies row;
    for (const MeasuredJob& job : kMeasuredJobs) {
      if (job.name.starts_with(fields[0])) row.job = &job;
    }
    if (row.job == nullptr) std::abort();
    row.microbatches = static_cast<int>(number(2));
    row.perseus_saving = number(4) / 100;
    row.envpipe_time_s = number(5) / 10;
    row.envpipe_energy_j = number(6) / 80;
    rows.push_back(row);
  }
  return rows;
}

class PublishedPoliciesTest : public testing::Test {
 protected:
  void SetUp() override {
    rows_ = ReadPublishedPolicies();
    ASSERT_EQ(rows_.size(), 8U);
  }

  static plan::Planner PlannerOf(const PublishedPolicies& row) {
    return *plan::Planner::Create(*ReadIteration(*row.job, row.microbatches),
                                  {row.job->blocking_power_w, 0});
  }

  std::vector<PublishedPolicies> rows_;
};

// The published planner rounds times. Our plan must save at least as much, without any slowdown. It
// must also be within 0.15 percentage points of the upper bound. Exception: the plan of Bloom with
// 12 microbatches is 0.156 points below this bound. In this case, a mixed-integer solver finds
// nothing better in five minutes either (docs/benchmarks.md).
TEST_F(PublishedPoliciesTest, PlanSavesAtLeastThePublishedSavingWithNoSlowdown) {
  for (const PublishedPolicies& row : rows_) {
    const plan::Planner planner = PlannerOf(row);
    const plan::Evaluation& baseline = planner.baseline();
    const auto plan = planner.PlanFor(baseline.time);
    ASSERT_TRUE(plan) << plan.error().Message();
    SCOPED_TRACE(testing::Message() << row.job->name << ", " << row.microbatches);
    EXPECT_LE(plan->evaluation.time, baseline.time);
    const double saving = 1 - plan->evaluation.energy_j / baseline.energy_j;
    EXPECT_GE(saving, row.perseus_saving);
    const bool is_hard = row.job == &kMeasuredJobs[1] && row.microbatches == 12;
    EXPECT_LE(1 - plan->lower_bound_j / baseline.energy_j - saving, is_hard ? 0.0016 : 0.0015);
  }
}

// The requirement is 0.5 % in time and 2 % in energy. Several critical paths have the same length,
// and the published paths come from rounded times.
TEST_F(PublishedPoliciesTest, EnvPipeEqualsThePublishedResult) {
  for (const PublishedPolicies& row : rows_) {
    SCOPED_TRACE(testing::Message() << row.job->name << ", " << row.microbatches);
    const auto offered = baselines::MakeEnvPipe()->Points(PlannerOf(row), {});
    ASSERT_TRUE(offered);
    const plan::Evaluation& evaluation = offered->points.front().evaluation;
    EXPECT_NEAR(ToSeconds(evaluation.time), row.envpipe_time_s, 0.005 * row.envpipe_time_s);
    EXPECT_NEAR(evaluation.energy_j, row.envpipe_energy_j, 0.02 * row.envpipe_energy_j);
    // Bloom's last stage is lighter than the others.
    EXPECT_EQ(offered->note.empty(), row.job == &kMeasuredJobs[0]);
  }
}

}  // namespace
}  // namespace perseus
