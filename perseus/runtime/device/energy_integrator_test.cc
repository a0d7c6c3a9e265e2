#include "perseus/runtime/device/energy_integrator.h"

#include <gtest/gtest.h>

namespace perseus::device {
namespace {

TEST(EnergyIntegrator, AddsTrapezoidsBetweenReadings) {
  EnergyIntegrator energy;
  EXPECT_EQ(energy.energy_j(), 0);
  energy.Add(5 * kSecond, 100);
  EXPECT_EQ(energy.energy_j(), 0);
  energy.Add(7 * kSecond, 200);  // 2 s at 150 W.
  EXPECT_DOUBLE_EQ(energy.energy_j(), 300);
  energy.Add(7 * kSecond + kSecond / 2, 200);
  EXPECT_DOUBLE_EQ(energy.energy_j(), 400);
}

TEST(EnergyIntegrator, ZeroTimeAddsNothing) {
  EnergyIntegrator energy;
  energy.Add(2 * kSecond, 100);
  energy.Add(2 * kSecond, 900);
  energy.Add(kSecond, 900);
  energy.Add(3 * kSecond, 100);
  EXPECT_DOUBLE_EQ(energy.energy_j(), 100);
}

TEST(EnergyCounter, ContinuesAfterTheDriverResetsIt) {
  EnergyCounter energy;
  EXPECT_DOUBLE_EQ(energy.Add(1000, 1), 1000);
  EXPECT_DOUBLE_EQ(energy.Add(1500, 1), 1500);
  EXPECT_DOUBLE_EQ(energy.Add(20, 2), 1520);
  EXPECT_DOUBLE_EQ(energy.Add(30, 2), 1530);
  EXPECT_DOUBLE_EQ(energy.Add(50, 3), 1550) << "the library restarted, the driver did not";
}

TEST(EnergyCounter, AcceptsReadingsOutOfOrder) {
  EnergyCounter energy;
  EXPECT_DOUBLE_EQ(energy.Add(1500, 1), 1500);
  EXPECT_DOUBLE_EQ(energy.Add(1490, 1), 1500);
  EXPECT_DOUBLE_EQ(energy.Add(20, 2), 1520);
  EXPECT_DOUBLE_EQ(energy.Add(1510, 1), 1520);
}

}  // namespace
}  // namespace perseus::device
