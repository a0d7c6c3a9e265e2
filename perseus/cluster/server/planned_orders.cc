#include "perseus/cluster/server/planned_orders.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/units.h"

namespace perseus::server {
namespace {

using nlohmann::ordered_json;

// No iteration takes less, whatever nodes report.
constexpr double kLeastIterationSeconds = 1e-6;

}  // namespace

std::string FormatPlannedOrders(const PlannedOrders& orders) {
  auto pipelines = ordered_json::array();
  for (const PlannedOrders::Share& share : orders.pipelines) {
    pipelines.push_back(
        {{"plan", share.plan}, {"time_s", share.time_s}, {"energy_j", share.energy_j}});
  }
  const ordered_json json{
      {"from_step", orders.from_step},
      {"target", orders.target},
      {"reason", orders.reason},
      {"pipelines", std::move(pipelines)},
      {"upcoming", orders.upcoming},
      {"time_s", orders.time_s},
      {"tail_s", orders.tail_s},
      {"baseline", {{"time_s", orders.baseline_time_s}, {"energy_j", orders.baseline_energy_j}}},
      {"refined", orders.is_refined}};
  return json.dump();
}

Result<PlannedOrders> ParsePlannedOrders(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  try {
    PlannedOrders orders;
    orders.from_step = json.at("from_step");
    orders.target = json.at("target");
    orders.reason = json.at("reason");
    for (const auto& share : json.at("pipelines")) {
      orders.pipelines.push_back({share.at("plan"), share.at("time_s"), share.at("energy_j")});
    }
    orders.upcoming = json.at("upcoming").get<std::vector<std::string>>();
    orders.time_s = json.at("time_s");
    orders.tail_s = json.at("tail_s");
    orders.baseline_time_s = json.at("baseline").at("time_s");
    orders.baseline_energy_j = json.at("baseline").at("energy_j");
    orders.is_refined = json.at("refined");
    return orders;
  } catch (const nlohmann::json::exception& error) {
    return FailAs(ErrorKind::kSystem, "orders in the database cannot be read: {}", error.what());
  }
}

std::int64_t FirstStep(const store::JobRecord& job, double iteration_s, store::Milliseconds now, double lead_s) {
  if (job.last_step < 0) return 0;
  iteration_s = std::max(iteration_s, kLeastIterationSeconds);
  const double since_s = static_cast<double>(std::max<store::Milliseconds>(0, now - job.last_step_at)) /
                         kMillisecondsPerSecond;
  // A job that stands still, or is gone, has not gone on by itself for long.
  const double ahead = std::ceil((std::min(since_s, 10 * iteration_s) + lead_s) / iteration_s);
  return job.last_step + static_cast<std::int64_t>(ahead) + 1;
}

std::string WithFirstStep(const PlannedOrders& orders, const store::JobRecord& job,
                          const std::optional<PlannedOrders>& in_force, store::Milliseconds now,
                          double lead_s) {
  double iteration_s = orders.time_s;
  if (in_force) iteration_s = std::min(iteration_s, in_force->time_s);
  const auto summary = nlohmann::json::parse(job.summary, nullptr, false);
  if (summary.is_object())
    iteration_s = std::min(iteration_s, summary.value("step_s", iteration_s));
  PlannedOrders dated = orders;
  dated.from_step = FirstStep(job, iteration_s, now, lead_s);
  return FormatPlannedOrders(dated);
}

}  // namespace perseus::server
