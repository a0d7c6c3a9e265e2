#include "perseus/simulation/baselines/policy.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace perseus::baselines {

std::vector<std::unique_ptr<Policy>> AllPolicies(Nanoseconds unit, recipe::Wishes wishes) {
  std::vector<std::unique_ptr<Policy>> policies;
  policies.push_back(MakeAllMax());
  policies.push_back(MakeZeusGlobal());
  policies.push_back(MakeZeusPerStage());
  policies.push_back(MakeEnvPipe());
  policies.push_back(MakePerseusPublished(unit));
  policies.push_back(MakePerseus(std::move(wishes)));
  return policies;
}

const OperatingPoint& ChooseFor(Nanoseconds time, std::span<const OperatingPoint> points,
                                const plan::Planner& planner) {
  const OperatingPoint* best = nullptr;
  for (const OperatingPoint& point : points) {
    if (point.evaluation.time > time) continue;
    if (best == nullptr ||
        planner.EnergyUntil(time, point.evaluation) < planner.EnergyUntil(time, best->evaluation)) {
      best = &point;
    }
  }
  if (best != nullptr) return *best;
  return *std::ranges::min_element(
      points, {}, [](const OperatingPoint& point) { return point.evaluation.time; });
}

OperatingPoint MakePoint(const plan::Planner& planner, std::string setting,
                         std::vector<int> options) {
  OperatingPoint point{std::move(setting), std::move(options), {}};
  point.evaluation = plan::Evaluator(planner.graph(), planner.model()).Evaluate(point.options);
  return point;
}

std::vector<OperatingPoint> Undominated(const plan::Planner& planner,
                                        std::vector<OperatingPoint> points) {
  std::ranges::stable_sort(points, {}, [](const OperatingPoint& point) {
    return std::tuple(point.evaluation.time, point.evaluation.energy_j);
  });
  std::vector<OperatingPoint> kept;
  for (OperatingPoint& point : points) {
    const Nanoseconds time = point.evaluation.time;
    if (!kept.empty() && planner.EnergyUntil(time, kept.back().evaluation) <=
                             planner.EnergyUntil(time, point.evaluation)) {
      continue;
    }
    kept.push_back(std::move(point));
  }
  return kept;
}

}  // namespace perseus::baselines
