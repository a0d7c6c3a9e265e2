// The time and energy of the computations of a recorded job at each clock of a modeled GPU.
//
// The model assumes that a recorded computation ran at the highest clock. The model gives the time
// and power of the computation at every other clock, relative to the highest clock.
//
// Two kinds of models exist. A GpuModel has the curves of two given stages of a large transformer.
// A GpuRoofline runs kernels. A timeline does not say what the job computes. So here, the kernels
// are those of one block of GPT-3 175B with tensor parallelism 8 and microbatches of one sequence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/simulation/replay/job_trace.h"
#include "perseus/simulation/synthetic/gpu_roofline.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::replay {

// One clock of a GPU, for computations of one kind.
struct ClockPoint {
  int frequency_mhz = 0;
  double time_ratio = 1;  // The time divided by the time at the highest clock.
  double power_w = 0;
};

// The time and the energy of a computation that takes `at_highest` at the highest clock.
Nanoseconds TimeAt(const ClockPoint& point, Nanoseconds at_highest);
double EnergyAt(const ClockPoint& point, Nanoseconds at_highest);
// The time and energy at each of `points`, as options in the same order.
std::vector<profile::Option> OptionsOf(const std::vector<ClockPoint>& points,
                                       Nanoseconds at_highest);

// The cost of computations at each useful clock. The highest clock comes first and has ratio 1.
struct JobPowerModel {
  std::vector<ClockPoint> forward;
  std::vector<ClockPoint> backward;
  double blocking_power_w = 0;

  static JobPowerModel Of(const synthetic::GpuModel& gpu);
  static Result<JobPowerModel> Of(const synthetic::GpuRoofline& gpu);
  const std::vector<ClockPoint>& points_of(EventKind kind) const {
    return kind == EventKind::kForward ? forward : backward;
  }
};

// All GPU models by name, then all rooflines. If a name is in both lists, it means the GPU model,
// as in `perseus synth`.
std::vector<std::string> JobPowerModelNames();
// Fails (kInput) for an unknown name. The message lists the known names.
Result<JobPowerModel> FindJobPowerModel(std::string_view gpu);

}  // namespace perseus::replay
