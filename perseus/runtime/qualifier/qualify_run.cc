#include "perseus/runtime/qualifier/qualify_run.h"

#include <algorithm>
#include <numeric>

namespace perseus::qualifier {
namespace {

std::vector<int> AllGpus(const MeasuredNode& node) {
  std::vector<int> gpus(static_cast<std::size_t>(node.gpu_count()));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

std::vector<std::string> NamesOf(MeasuredNode& node) {
  std::vector<std::string> names;
  for (const int gpu : AllGpus(node)) names.push_back(node.device(gpu).info().uuid);
  return names;
}

}  // namespace

QualifyRun::QualifyRun(MeasuredNode& measured, const QualifyOptions& wanted)
    : node(measured),
      options(wanted),
      all_gpus(AllGpus(measured)),
      can_set(wanted.sets_clocks),
      siblings(NamesOf(measured)) {}

void QualifyRun::Limit(std::string sentence) {
  auto& limits = result.facts.limits;
  if (std::find(limits.begin(), limits.end(), sentence) == limits.end()) {
    limits.push_back(std::move(sentence));
  }
}

Result<void> QualifyRun::CheckStop() const {
  if (!options.should_stop()) return {};
  return FailAs(ErrorKind::kSystem, "the measurement was interrupted, so it has no result");
}

Result<void> QualifyRun::LockAll(const device::Setting& setting) {
  for (const int gpu : all_gpus) {
    PERSEUS_RETURN_IF_ERROR(Pass(node.device(gpu).Apply(device::Control::kSmClock, setting)));
  }
  return {};
}

Result<void> QualifyRun::RunOnAll(Load load) {
  for (const int gpu : all_gpus) PERSEUS_RETURN_IF_ERROR(node.Run(gpu, load));
  return {};
}

Load QualifyRun::BusyLoad() const {
  return node.WhyNot(Load::kCompute).empty() ? Load::kCompute : Load::kIdle;
}

Nanoseconds QualifyRun::DurationOf(double fraction) const {
  return static_cast<Nanoseconds>(options.duration_s * fraction * kSecond);
}

}  // namespace perseus::qualifier
