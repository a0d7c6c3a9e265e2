#include "perseus/cli/verbs/job_schedules.h"

#include <fmt/format.h>

#include <vector>

#include "perseus/cli/terminal/table.h"

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
  return text + answer.at("conclusion").get<std::string>() + "\n";
}

}  // namespace perseus::cli
