#include "perseus/runtime/qualifier/measure_counter.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "perseus/base/median.h"
#include "perseus/runtime/qualifier/energy_counter.h"
#include "perseus/runtime/qualifier/gpu_readings.h"

namespace perseus::qualifier {

Result<void> MeasureCounter(QualifyRun& run, double fraction) {
  PERSEUS_RETURN_IF_ERROR(run.RunOnAll(run.BusyLoad()));
  Sleep(run.node.clock(), kPowerSettles);
  PERSEUS_ASSIGN_OR_RETURN(
      const auto readings,
      ReadFor(run, std::clamp(run.DurationOf(fraction), 2 * kSecond, kLongestWindow)));
  PERSEUS_RETURN_IF_ERROR(run.RunOnAll(Load::kIdle));
  std::vector<std::optional<Estimate>> periods_ms, biases;
  std::vector<double> resolutions_j;
  for (const auto& of_gpu : readings) {
    if (!of_gpu.empty() && of_gpu.front().is_energy_integrated) {
      run.Limit("A GPU has no energy counter. Energy is integrated from power readings.");
      return {};
    }
    const auto findings = ExamineCounter(CountersOf(of_gpu));
    if (!findings) {
      run.Limit("The energy counter changed too rarely to be examined.");
      return {};
    }
    periods_ms.emplace_back(findings->period_ms);
    biases.emplace_back(findings->bias);
    resolutions_j.push_back(findings->resolution_j);
  }
  const auto period_ms = run.siblings.Combine("period of the energy counter",
                                              Siblings::Unit::kMilliseconds, periods_ms);
  const auto bias =
      run.siblings.Combine("bias of the energy counter", Siblings::Unit::kFraction, biases);
  run.result.facts.energy_counter = hardware_facts::EnergyCounterFacts{
      .period_ms = *period_ms, .resolution_j = Median(resolutions_j), .bias = *bias};
  return {};
}

}  // namespace perseus::qualifier
