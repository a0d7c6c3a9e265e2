#include "perseus/simulation/replay/job_power_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "perseus/base/index.h"
#include "perseus/planning/profile/curve.h"
#include "perseus/simulation/synthetic/model_zoo.h"

namespace perseus::replay {
namespace {

using synthetic::KernelWork;

// The workload of a roofline (job_power_model.h).
constexpr const char* kRepresentativeModel = "gpt3-175b";
constexpr int kRepresentativeTensorParallelism = 8;

struct ClockRange {
  int highest_mhz = 0;
  int lowest_mhz = 0;
  int step_mhz = 0;
};

// Returns the useful clocks of a computation. `run` gives the time and energy of the computation if
// a clock is requested. The results are used for computations of any duration. So the time relative
// to the highest clock, and the power, must not depend on the duration.
std::vector<ClockPoint> UsefulPoints(
    const ClockRange& clocks, double blocking_power_w,
    const std::function<synthetic::TimeAndEnergy(double requested_mhz)>& run) {
  std::vector<ClockPoint> points;
  double least_time_s = 0;
  for (int mhz = clocks.highest_mhz; mhz >= clocks.lowest_mhz; mhz -= clocks.step_mhz) {
    const auto [time_s, energy_j] = run(mhz);
    if (points.empty()) least_time_s = time_s;
    // All clocks above the power limit give the same result, except for the last bits of the
    // bisection.
    constexpr double kAlike = 1 + 1e-9;
    if (!points.empty() && time_s <= points.back().time_ratio * least_time_s * kAlike) continue;
    points.push_back({mhz, time_s / least_time_s, energy_j / time_s});
  }
  std::vector<ClockPoint> useful;
  // The Pareto front needs times in whole nanoseconds. They are for a computation of one second,
  // which is long enough for a small rounding error.
  for (const int i : profile::ParetoFront(OptionsOf(points, kSecond), blocking_power_w)) {
    useful.push_back(points[At(i)]);
  }
  return useful;
}

}  // namespace

Nanoseconds TimeAt(const ClockPoint& point, Nanoseconds at_highest) {
  return std::llround(point.time_ratio * static_cast<double>(at_highest));
}

double EnergyAt(const ClockPoint& point, Nanoseconds at_highest) {
  return point.power_w * ToSeconds(TimeAt(point, at_highest));
}

std::vector<profile::Option> OptionsOf(const std::vector<ClockPoint>& points,
                                       Nanoseconds at_highest) {
  std::vector<profile::Option> options;
  options.reserve(points.size());
  for (const ClockPoint& point : points) {
    options.push_back({.frequency_mhz = point.frequency_mhz,
                       .other_knobs = {},
                       .time = TimeAt(point, at_highest),
                       .energy_j = EnergyAt(point, at_highest)});
  }
  return options;
}

JobPowerModel JobPowerModel::Of(const synthetic::GpuModel& gpu) {
  const auto points_of = [&](const synthetic::StageWork& work) {
    return UsefulPoints(
        {gpu.highest_frequency_mhz, gpu.lowest_frequency_mhz, gpu.frequency_step_mhz},
        gpu.blocking_power_w, [&](double requested_mhz) -> synthetic::TimeAndEnergy {
          const double mhz = gpu.ActualFrequencyMhz(requested_mhz);
          const double time_s = work.compute_s * gpu.highest_frequency_mhz / mhz + work.memory_s;
          return {time_s, gpu.UnlimitedPowerW(mhz) * time_s};
        });
  };
  return {points_of(gpu.forward), points_of(gpu.backward), gpu.blocking_power_w};
}

Result<JobPowerModel> JobPowerModel::Of(const synthetic::GpuRoofline& gpu) {
  PERSEUS_ASSIGN_OR_RETURN(
      const auto layers,
      synthetic::LayersOf(
          {.model = kRepresentativeModel, .tensor_parallel = kRepresentativeTensorParallelism}));
  const auto block = std::ranges::find_if(layers, &synthetic::LayerWork::is_block);
  std::vector<KernelWork> backward = block->backward_input;
  backward.insert(backward.end(), block->backward_weight.begin(), block->backward_weight.end());
  const auto points_of = [&](const std::vector<KernelWork>& kernels) {
    // Below half of the highest clock, time and energy both grow.
    const int lowest_mhz = std::max(gpu.lowest_frequency_mhz, gpu.highest_frequency_mhz / 2);
    return UsefulPoints({gpu.highest_frequency_mhz, lowest_mhz, gpu.frequency_step_mhz},
                        gpu.blocking_power_w,
                        [&](double requested_mhz) { return gpu.Run(kernels, requested_mhz); });
  };
  return JobPowerModel{points_of(block->forward), points_of(backward), gpu.blocking_power_w};
}

std::vector<std::string> JobPowerModelNames() {
  std::vector<std::string> names;
  for (const synthetic::GpuModel& gpu : synthetic::GpuModels()) names.emplace_back(gpu.name);
  for (const synthetic::GpuRoofline& gpu : synthetic::GpuRooflines()) {
    if (std::ranges::find(names, gpu.name) == names.end()) names.emplace_back(gpu.name);
  }
  return names;
}

Result<JobPowerModel> FindJobPowerModel(std::string_view gpu) {
  for (const synthetic::GpuModel& model : synthetic::GpuModels()) {
    if (model.name == gpu) return JobPowerModel::Of(model);
  }
  for (const synthetic::GpuRoofline& roofline : synthetic::GpuRooflines()) {
    if (roofline.name == gpu) return JobPowerModel::Of(roofline);
  }
  return Fail("the GPU model \"{}\" is unknown (choose one of {})", gpu,
              fmt::join(JobPowerModelNames(), ", "));
}

}  // namespace perseus::replay
