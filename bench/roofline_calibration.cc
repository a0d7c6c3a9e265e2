// Do the curves of the GPU model (perseus/simulation/synthetic/gpu_roofline.h) have the shape of
// two measured profiles? Prints the time relative to a reference clock and the average power,
// measured and modeled, for a middle stage of GPT-3 175B on A100-SXM and of Bloom 176B on A40. Only
// the efficiency, stalls, static and dynamic power and voltage of the A100 and the A40 were fitted
// to these profiles.
//
// The model of the stage has only its matrix products for one sequence, because the measured times
// agree with that: twelve layers of GPT-3 are 11.4 TFLOP for one of eight GPUs. With 50 ms for
// them, a GPU reaches 73 % of its peak, which leaves no time for other work.
//
//   roofline_calibration
//
// Needs ../shared or the folder in PERSEUS_SHARED_DIR.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <vector>

#include "bench/measured_job.h"
#include "perseus/base/file.h"
#include "perseus/simulation/synthetic/model_profile.h"

namespace perseus {
namespace {

constexpr int kStage = 3;

struct Case {
  const MeasuredJob& job;
  std::string_view gpu;
  std::string_view model;
  int layers = 0;  // Of the stage.
  double power_limit_w = 0;
  double reference_mhz = 0;  // The highest clock that the power limit does not affect.
};
constexpr Case kCases[] = {
    // These GPUs drew 480 W. The 80 GB SXM module also exists with a limit of 500 W.
    {kMeasuredJobs[0], "a100-sxm", "gpt3-175b", 12, 480, 1290},
    {kMeasuredJobs[1], "a40", "bloom-176b", 9, 294, 1395}};

std::vector<synthetic::KernelWork> Kernels(const std::vector<synthetic::LayerWork>& model,
                                           int layers, InstructionKind kind) {
  std::vector<synthetic::KernelWork> all;
  const auto add = [&](const std::vector<synthetic::KernelWork>& kernels) {
    std::copy_if(kernels.begin(), kernels.end(), std::back_inserter(all),
                 [](const synthetic::KernelWork& kernel) { return kernel.flops > 0; });
  };
  for (const synthetic::LayerWork& layer : model) {
    if (!layer.is_block || layers-- <= 0) continue;
    if (kind == InstructionKind::kForward) {
      add(layer.forward);
    } else {
      add(layer.backward_input);
      add(layer.backward_weight);
    }
  }
  return all;
}

Result<void> Print(const Case& item) {
  const auto text = ReadFile(ProfilePath(item.job));
  if (!text) return Fail(text);
  const auto profile = profile::ParseProfile(*text, item.job.name);
  if (!profile) return Fail(profile);
  auto gpu = synthetic::FindGpuRoofline(item.gpu);
  if (!gpu) return Fail(gpu);
  gpu->power_limit_w = item.power_limit_w;
  const auto layers = synthetic::LayersOf({.model = std::string(item.model), .tensor_parallel = 8});
  if (!layers) return Fail(layers);
  for (const InstructionKind kind : {InstructionKind::kForward, InstructionKind::kBackward}) {
    const auto kernels = Kernels(*layers, item.layers, kind);
    const auto& options = profile->Find(kStage, 0, kind)->options;
    double reference_s = 0;
    for (const profile::Option& option : options) {
      if (option.frequency_mhz == item.reference_mhz) reference_s = ToSeconds(option.time);
    }
    const double model_reference_s = gpu->Run(kernels, item.reference_mhz).time_s;
    fmt::print("{} on {}, {}: {:.4f} s at {} MHz, modeled {:.4f} s\n", item.model, item.gpu,
               Name(kind), reference_s, item.reference_mhz, model_reference_s);
    fmt::print("{:>6} {:>8} {:>8} {:>8} {:>8}\n", "MHz", "t", "model", "W", "model");
    for (std::size_t i = 0; i < options.size(); i += 4) {
      const synthetic::TimeAndEnergy run = gpu->Run(kernels, options[i].frequency_mhz);
      const double time_s = ToSeconds(options[i].time);
      fmt::print("{:6} {:8.3f} {:8.3f} {:8.1f} {:8.1f}\n", options[i].frequency_mhz,
                 time_s / reference_s, run.time_s / model_reference_s, options[i].energy_j / time_s,
                 run.energy_j / run.time_s);
    }
  }
  return {};
}

int Main() {
  for (const Case& item : kCases) {
    if (const Result<void> printed = Print(item); !printed) {
      fmt::print(stderr, "{}\n", printed.error().message);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace perseus

int main() { return perseus::Main(); }
