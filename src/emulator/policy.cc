#include "perseus/emulator/policy.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace perseus {

std::vector<std::unique_ptr<Policy>> AllPolicies(Nanoseconds unit) {
  std::vector<std::unique_ptr<Policy>> policies;
  policies.push_back(MakeAllMax());
  policies.push_back(MakeZeusGlobal());
  policies.push_back(MakeZeusPerStage());
  policies.push_back(MakeEnvPipe());
  policies.push_back(MakePerseusPublished(unit));
  policies.push_back(MakePerseus());
  return policies;
}

double EnergyUntil(Nanoseconds time, const OperatingPoint& point, const Planner& planner) {
  const double waiting_w = planner.model().blocking_power_w * planner.ranks();
  return point.evaluation.energy_j + waiting_w * ToSeconds(time - point.evaluation.time);
}

const OperatingPoint& ChooseFor(Nanoseconds time, std::span<const OperatingPoint> points,
                                const Planner& planner) {
  const OperatingPoint* best = nullptr;
  for (const OperatingPoint& point : points) {
    if (point.evaluation.time > time) continue;
    if (best == nullptr || EnergyUntil(time, point, planner) < EnergyUntil(time, *best, planner)) {
      best = &point;
    }
  }
  if (best != nullptr) return *best;
  return *std::ranges::min_element(
      points, {}, [](const OperatingPoint& point) { return point.evaluation.time; });
}

OperatingPoint MakePoint(const Planner& planner, std::string setting, std::vector<int> options) {
  OperatingPoint point{std::move(setting), std::move(options), {}};
  point.evaluation = Evaluator(planner.graph(), planner.model()).Evaluate(point.options);
  return point;
}

std::vector<OperatingPoint> Undominated(std::vector<OperatingPoint> points) {
  std::ranges::stable_sort(points, {}, [](const OperatingPoint& point) {
    return std::tuple(point.evaluation.time, point.evaluation.energy_j);
  });
  std::vector<OperatingPoint> kept;
  for (OperatingPoint& point : points) {
    if (!kept.empty() && point.evaluation.energy_j >= kept.back().evaluation.energy_j) continue;
    kept.push_back(std::move(point));
  }
  return kept;
}

}  // namespace perseus
