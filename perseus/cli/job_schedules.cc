#include "perseus/cli/job_schedules.h"

#include <fmt/format.h>

#include <vector>

#include "perseus/cli/table.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> ScheduleCells(const std::string& name, const ordered_json& row) {
  return {name, fmt::format("{}", fmt::join(row.at("in_flight").get<std::vector<int>>(), " ")),
          FormatQuantity(row.at("energy_j").get<double>()),
          FormatPercent(row.at("saving").get<double>()),
          row.contains("most_saving") ? FormatPercent(row.at("most_saving").get<double>()) : ""};
}

}  // namespace

std::string FormatSchedules(const ordered_json& answer) {
  const ordered_json& running = answer.at("running");
  Table table({"schedule", "in flight", "energy (J)", "saving", "at most"});
  if (!running.is_null()) table.AddRow(ScheduleCells("of the job", running));
  for (const ordered_json& other : answer.at("others")) {
    table.AddRow(ScheduleCells(fmt::format("+{}", other.at("more_in_flight").get<int>()), other));
  }
  std::string text = table.Format() + "\n";
  if (running.is_null()) {
    text += fmt::format("The schedule of the job is slower than {} at maximum frequency.\n",
                        answer.at("reference").at("schedule").get<std::string>());
  }
  const double now = running.is_null() ? 0 : running.at("saving").get<double>();
  const double further = answer.at("others").back().at("saving").get<double>() - now;
  if (further < schedule_search::kWorthSaying) {
    return text + "None of these schedules saves more than that of the job.\n";
  }
  return text + fmt::format(
                    "With the last schedule, a next run would save another {:.2f} % of the energy, "
                    "if its GPUs have the memory. This run keeps its own: perseus schedule search "
                    "writes others.\n",
                    further * 100);
}

}  // namespace perseus::cli
