#include "perseus/runtime/qualifier/qualification.h"

#include <string>
#include <utility>

#include "perseus/runtime/qualifier/measure_counter.h"
#include "perseus/runtime/qualifier/measure_interference.h"
#include "perseus/runtime/qualifier/measure_power.h"
#include "perseus/runtime/qualifier/measure_switches.h"
#include "perseus/runtime/qualifier/node_checks.h"
#include "perseus/runtime/qualifier/qualify_run.h"

namespace perseus::qualifier {
namespace {

// The comment of the header has the same numbers.
constexpr PartOfRun kCounter{.from = 0, .length = 0.10};
constexpr PartOfRun kPower{.from = 0.10, .length = 0.25};
constexpr PartOfRun kSwitches{.from = 0.35, .length = 0.25};
constexpr PartOfRun kInterference{.from = 0.60, .length = 0.40};

Result<void> MeasureAll(QualifyRun& run) {
  run.options.progress("energy counter", kCounter.from);
  if (run.can_read) {
    PERSEUS_RETURN_IF_ERROR(MeasureCounter(run, kCounter.length));
    PERSEUS_RETURN_IF_ERROR(MeasurePower(run, kPower));
  }
  // Without a kernel, a switch shows only in readings.
  const bool is_seen = run.can_read || run.node.WhyNot(Load::kCompute).empty();
  if (run.can_set && is_seen) PERSEUS_RETURN_IF_ERROR(MeasureSwitches(run, kSwitches));
  return MeasureInterference(run, kInterference);
}

}  // namespace

Result<Qualification> Qualify(MeasuredNode& node, const QualifyOptions& options) {
  QualifyRun run(node, options);
  run.result.facts.gpu_name = node.device(0).info().name;
  run.result.facts.gpu_count = node.gpu_count();
  PERSEUS_RETURN_IF_ERROR(CheckNode(run));
  PERSEUS_RETURN_IF_ERROR(MeasureAll(run));
  for (std::string& difference : run.siblings.Differences()) run.Limit(std::move(difference));
  options.progress("done", 1);
  return std::move(run.result);
}

}  // namespace perseus::qualifier
