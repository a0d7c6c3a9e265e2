#include "perseus/simulation/synthetic/synthetic_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "perseus/base/random.h"
#include "perseus/base/units.h"

namespace perseus::synthetic {
namespace {

constexpr int kMostEntries = 1'000'000;
// Attention has matrix products without weights, so the gradient of the activations is the larger
// part of the backward pass.
constexpr double kBackwardInputShare = 0.53;

StageWork WorkOf(InstructionKind kind, const GpuModel& gpu) {
  const auto part = [](const StageWork& work, double share) {
    return StageWork{work.compute_s * share, work.memory_s * share};
  };
  switch (kind) {
    case InstructionKind::kBackward:
      return gpu.backward;
    case InstructionKind::kBackwardInput:
      return part(gpu.backward, kBackwardInputShare);
    case InstructionKind::kBackwardWeight:
      return part(gpu.backward, 1 - kBackwardInputShare);
    case InstructionKind::kOptimizerStep:  // It reads and writes all states, and computes little.
      return {0, gpu.forward.compute_s + gpu.forward.memory_s};
    default:
      return gpu.forward;
  }
}

Result<void> CheckRange(std::string_view field, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return Fail("synthetic profile: {} {} is out of range (choose {} to {})", field, value, least,
              most);
}

Result<void> Check(const SyntheticProfileSpec& spec) {
  const struct {
    std::string_view field;
    double value, least, most;
  } ranges[] = {{"stages", static_cast<double>(spec.pp_ranks), 1, kMostEntries},
                {"chunks", static_cast<double>(spec.chunks), 1, kMostEntries},
                {"work_scale", spec.work_scale, 1e-3, 1e3},
                {"language_model_head", spec.language_model_head, 0, 10},
                {"imbalance", spec.imbalance, 0, 0.9},
                {"noise", spec.noise, 0, 0.3}};
  for (const auto& range : ranges) {
    auto fits = CheckRange(range.field, range.value, range.least, range.most);
    if (!fits) return fits;
  }
  if (spec.pp_ranks > kMostEntries / spec.chunks) {
    return Fail(
        "synthetic profile: {} stages of {} chunks are too many (choose at most {} in total)",
        spec.pp_ranks, spec.chunks, kMostEntries);
  }
  return CheckKinds("synthetic profile", spec.kinds);
}

// The options of an instruction, at each clock, the highest first.
std::vector<profile::Option> Sweep(const GpuModel& gpu, const StageWork& work, double noise,
                                   std::mt19937_64& random) {
  std::vector<profile::Option> options;
  for (int requested_mhz = gpu.highest_frequency_mhz; requested_mhz >= gpu.lowest_frequency_mhz;
       requested_mhz -= gpu.frequency_step_mhz) {
    const double actual_mhz = gpu.ActualFrequencyMhz(requested_mhz);
    const double time_noise = std::exp(noise * Normal(random));
    const double power_noise = std::exp(noise * Normal(random));
    const double time_s =
        (work.compute_s * gpu.highest_frequency_mhz / actual_mhz + work.memory_s) * time_noise;
    const double energy_j = gpu.UnlimitedPowerW(actual_mhz) * power_noise * time_s;
    options.push_back({requested_mhz,
                       {},
                       std::max<Nanoseconds>(1, ToNanoseconds(time_s)),
                       RoundToMicrojoules(energy_j),
                       1});
  }
  return options;
}

}  // namespace

double GpuModel::UnlimitedPowerW(double frequency_mhz) const {
  const double voltage =
      1 + voltage_slope_per_mhz * std::max(0.0, frequency_mhz - voltage_floor_mhz);
  return static_power_w + dynamic_power_w_per_mhz * frequency_mhz * voltage * voltage;
}

double GpuModel::ActualFrequencyMhz(double requested_mhz) const {
  if (UnlimitedPowerW(requested_mhz) <= power_limit_w) return requested_mhz;
  // Power grows with the clock, so bisection finds the limit. 50 steps reach the precision of a
  // double.
  double within = 0;
  double beyond = requested_mhz;
  for (int i = 0; i < 50; ++i) {
    const double middle = (within + beyond) / 2;
    (UnlimitedPowerW(middle) <= power_limit_w ? within : beyond) = middle;
  }
  return within;
}

std::vector<GpuModel> GpuModels() {
  // Calibrated by hand to published measurements of such GPUs, in three respects: the ratio of the
  // times at the power limit and at the lowest clock, the power at the voltage floor, and the power
  // at the limit. No measured value is copied.
  return {{.name = "a100",
           .lowest_frequency_mhz = 810,
           .highest_frequency_mhz = 1410,
           .frequency_step_mhz = 15,
           .blocking_power_w = 84,
           .power_limit_w = 475,
           .static_power_w = 44,
           .dynamic_power_w_per_mhz = 0.222,
           .voltage_floor_mhz = 1080,
           .voltage_slope_per_mhz = 0.00066,
           .forward = {.compute_s = 0.0455, .memory_s = 0.0033},
           .backward = {.compute_s = 0.079, .memory_s = 0.0115}},
          {.name = "a40",
           .lowest_frequency_mhz = 885,
           .highest_frequency_mhz = 1740,
           .frequency_step_mhz = 15,
           .blocking_power_w = 70,
           .power_limit_w = 294,
           .static_power_w = 102,
           .dynamic_power_w_per_mhz = 0.088,
           .voltage_floor_mhz = 1150,
           .voltage_slope_per_mhz = 0.00057,
           .forward = {.compute_s = 0.065, .memory_s = 0.056},
           .backward = {.compute_s = 0.122, .memory_s = 0.105}}};
}

Result<GpuModel> FindGpuModel(std::string_view name) {
  std::vector<std::string_view> names;
  for (const GpuModel& gpu : GpuModels()) {
    if (gpu.name == name) return gpu;
    names.push_back(gpu.name);
  }
  return Fail("synthetic profile: GPU model \"{}\" is unknown (choose one of {})", name,
              fmt::join(names, ", "));
}

Result<profile::Profile> SynthesizeProfile(const SyntheticProfileSpec& spec) {
  PERSEUS_ASSIGN_OR_RETURN(const GpuModel gpu, FindGpuModel(spec.gpu));
  if (const Result<void> checked = Check(spec); !checked) return Fail(checked);

  // With an even number of chunks, the V ends at the pp_rank where it began.
  const bool ends_at_first = spec.placement == ChunkPlacement::kV && spec.chunks % 2 == 0;
  const int head_rank = ends_at_first ? 0 : spec.pp_ranks - 1;
  std::mt19937_64 random(spec.seed);
  std::vector<profile::ProfileEntry> entries;
  for (int pp_rank = 0; pp_rank < spec.pp_ranks; ++pp_rank) {
    const double rank_work = 1 + spec.imbalance * (2 * Uniform(random) - 1);
    for (int chunk = 0; chunk < spec.chunks; ++chunk) {
      const bool has_head = pp_rank == head_rank && chunk == spec.chunks - 1;
      const double scale =
          spec.work_scale * (rank_work / spec.chunks + (has_head ? spec.language_model_head : 0));
      for (const InstructionKind kind : spec.kinds) {
        StageWork work = WorkOf(kind, gpu);
        work.compute_s *= scale;
        work.memory_s *= scale;
        entries.push_back({pp_rank, chunk, kind, Sweep(gpu, work, spec.noise, random)});
      }
    }
  }
  return profile::Profile(fmt::format("synthetic {} profile, seed {}", spec.gpu, spec.seed), {},
                          std::move(entries));
}

Result<void> CheckKinds(std::string_view what, const std::vector<InstructionKind>& kinds) {
  if (kinds.empty()) {
    return Fail("{}: no instruction kind is given (choose forward and backward)", what);
  }
  for (auto kind = kinds.begin(); kind != kinds.end(); ++kind) {
    if (!IsComputation(*kind)) {
      return Fail("{}: no clock changes the time of {} (choose computations)", what, Name(*kind));
    }
    if (std::find(kinds.begin(), kind, *kind) != kind) {
      return Fail("{}: kind {} is given twice (give each kind once)", what, Name(*kind));
    }
  }
  return {};
}

}  // namespace perseus::synthetic
