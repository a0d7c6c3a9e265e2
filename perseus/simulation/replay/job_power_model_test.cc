#include "perseus/simulation/replay/job_power_model.h"

#include <gmock/gmock.h>

namespace perseus::replay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(JobPowerModel, EveryModeledGpuHasUsefulClocks) {
  EXPECT_THAT(JobPowerModelNames(),
              ElementsAre("a100", "a40", "a100-pcie", "a100-sxm", "h100-sxm"));
  for (const std::string& name : JobPowerModelNames()) {
    SCOPED_TRACE(name);
    const auto model = FindJobPowerModel(name);
    ASSERT_TRUE(model) << model.error().Message();
    for (const auto& points : {model->forward, model->backward}) {
      ASSERT_GT(points.size(), 5U);
      EXPECT_EQ(points[0].time_ratio, 1);
      for (std::size_t i = 1; i < points.size(); ++i) {
        EXPECT_LT(points[i].frequency_mhz, points[i - 1].frequency_mhz);
        EXPECT_GT(points[i].time_ratio, points[i - 1].time_ratio);
        EXPECT_LT(points[i].power_w, points[i - 1].power_w);
      }
      EXPECT_GT(points.back().power_w, model->blocking_power_w);
    }
  }
  const auto unknown = FindJobPowerModel("h900");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().Message(),
              HasSubstr("\"h900\" is unknown (choose one of a100, a40,"));
}

TEST(JobPowerModel, AGpuModelHasItsCurves) {
  const synthetic::GpuModel gpu = *synthetic::FindGpuModel("a100");
  const JobPowerModel model = JobPowerModel::Of(gpu);
  EXPECT_EQ(model.blocking_power_w, gpu.blocking_power_w);
  EXPECT_EQ(model.forward[0].frequency_mhz, gpu.highest_frequency_mhz);
  EXPECT_EQ(model.backward[0].frequency_mhz, gpu.highest_frequency_mhz);
  // More of the backward is memory work, which no clock slows.
  EXPECT_GT(model.forward.back().time_ratio, model.backward.back().time_ratio);
}

TEST(JobPowerModel, ARooflineDrawsAtMostItsPowerLimit) {
  for (const synthetic::GpuRoofline& gpu : synthetic::GpuRooflines()) {
    SCOPED_TRACE(gpu.name);
    const auto model = JobPowerModel::Of(gpu);
    ASSERT_TRUE(model) << model.error().Message();
    EXPECT_EQ(model->blocking_power_w, gpu.blocking_power_w);
    constexpr double kRounding = 1 + 1e-9;
    EXPECT_LE(model->forward[0].power_w, gpu.power_limit_w * kRounding);
    EXPECT_LE(model->backward[0].power_w, gpu.power_limit_w * kRounding);
    // Half of the clock takes at most twice the time.
    EXPECT_LE(model->forward.back().time_ratio, 2);
    EXPECT_GT(model->forward.back().time_ratio, 1.1);
  }
}

}  // namespace
}  // namespace perseus::replay
