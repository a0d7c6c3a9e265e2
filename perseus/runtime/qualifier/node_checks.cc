#include "perseus/runtime/qualifier/node_checks.h"

#include <fmt/format.h>

#include <optional>
#include <string>

namespace perseus::qualifier {
namespace {

using device::Control;
using device::DeviceErrorKind;
using device::Setting;

// Whether the driver refuses, so that it refuses later as well.
bool IsRefusal(DeviceErrorKind kind) {
  return kind == DeviceErrorKind::kPermission || kind == DeviceErrorKind::kNotSupported;
}

// Facts are of one kind of GPU, and all GPUs are locked to the same clocks.
Result<void> CheckKinds(QualifyRun& run) {
  const device::DeviceInfo& first = run.node.device(0).info();
  for (const int gpu : run.all_gpus) {
    const device::DeviceInfo& info = run.node.device(gpu).info();
    if (info.name == first.name && info.sm_clocks_mhz == first.sm_clocks_mhz) continue;
    return FailAs(ErrorKind::kSystem,
                  "{} ({}) and {} ({}) are different kinds of GPU, or have different clocks "
                  "(measure each kind alone: --gpu UUID)",
                  first.uuid, first.name, info.uuid, info.name);
  }
  return {};
}

void CheckLoads(QualifyRun& run) {
  for (const Load load : {Load::kCompute, Load::kBlocked}) {
    const std::string why = run.node.WhyNot(load);
    if (why.empty()) continue;
    run.Limit(fmt::format("No kernel that {} runs: {}.",
                          load == Load::kCompute ? "computes" : "waits", why));
  }
}

// Sets the clock of all GPUs to what it would be set to anyway. If the driver refuses, the rest
// is measured without clocks.
Result<void> CheckRights(QualifyRun& run) {
  if (!run.can_set) return {};
  for (const int gpu : run.all_gpus) {
    const device::DeviceInfo& info = run.node.device(gpu).info();
    std::string why = info.measure_only;
    if (why.empty() && !info.sm_clocks_mhz.empty()) {
      const int top_mhz = info.sm_clocks_mhz.back();
      const auto applied = run.node.device(gpu).Apply(Control::kSmClock, Setting{top_mhz, top_mhz});
      if (applied) {
        run.result.has_set_clocks = true;
        continue;
      }
      why = applied.error().message;
      if (!IsRefusal(applied.error().kind)) return FailAs(ErrorKind::kSystem, "{}", why);
    }
    run.can_set = false;
    for (int set = 0; set < gpu; ++set) {
      PERSEUS_RETURN_IF_ERROR(Pass(run.node.device(set).Apply(Control::kSmClock, std::nullopt)));
    }
    run.Limit(fmt::format("This user may not set clocks, so no clock was set: {}.",
                          why.empty() ? "the driver lists no clocks" : why));
    return {};
  }
  return {};
}

void CheckClocks(QualifyRun& run) {
  const auto clocks = ChooseSwitchClocks(run.node.device(0).info().sm_clocks_mhz);
  if (clocks) {
    run.clocks = *clocks;
  } else if (run.can_set) {
    run.can_set = false;
    run.Limit("The driver lists fewer than three SM clocks, so no clock was set.");
  }
}

// A driver without readings of power or clocks cannot say more later either.
Result<void> CheckReadings(QualifyRun& run) {
  for (const int gpu : run.all_gpus) {
    const auto read = run.node.device(gpu).Read();
    if (read) continue;
    if (!IsRefusal(read.error().kind)) {
      return FailAs(ErrorKind::kSystem, "{}", read.error().message);
    }
    run.can_read = false;
    run.Limit(
        fmt::format("The driver refuses readings, so neither power nor energy was measured: {}.",
                    read.error().message));
    return {};
  }
  return {};
}

}  // namespace

Result<void> CheckNode(QualifyRun& run) {
  PERSEUS_RETURN_IF_ERROR(CheckKinds(run));
  if (!run.options.sets_clocks) {
    run.Limit("The clocks were not set, because the measurement was run without clocks.");
  }
  CheckLoads(run);
  PERSEUS_RETURN_IF_ERROR(CheckRights(run));
  CheckClocks(run);
  return CheckReadings(run);
}

}  // namespace perseus::qualifier
