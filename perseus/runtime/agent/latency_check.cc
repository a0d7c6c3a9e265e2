#include "perseus/runtime/agent/latency_check.h"

#include "perseus/runtime/agent/settings_guard.h"

namespace perseus::agent {

Result<device::SwitchLatency> MeasureSafely(device::Device& device, const LatencyCheck& check) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto guard,
      SettingsGuard::Take(
          {&device}, {.state = check.state, .boot_id = check.boot_id, .holder = "perseus doctor"}));
  std::shared_ptr<void> load = check.start_load();
  RealClock clock;
  const auto measured = device::MeasureSwitchLatency(device, device::ClocksToMeasure(device.info()),
                                                     check.rounds, check.timeout, clock);
  load.reset();
  PERSEUS_RETURN_IF_ERROR(guard.Restore());
  if (!measured) return FailAs(ErrorKind::kSystem, "{}", measured.error().message);
  return *measured;
}

}  // namespace perseus::agent
