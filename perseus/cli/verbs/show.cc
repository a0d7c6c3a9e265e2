// `perseus show` shows plans side by side.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/named_plans.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kShowAbout =
    "Show plans side by side: time, energy, savings, and the mean clock of every stage.\n"
    "Reads only the plans, in JSON, as `perseus plan -o` writes them: files, or its directory.\n"
    "`perseus evaluate` checks plans against a profile.";
constexpr const char* kShowExamples =
    "  perseus show out/plans/no-slowdown.json out/plans/slowdown-5.json";

struct ShowFlags {
  std::vector<std::string> plans;
  bool as_json = false;
};

// The mean clock of a group: the forwards of a stage, or the instructions of a resource.
struct ClockShare {
  std::string of;
  double sum_mhz = 0;
  int instructions = 0;

  double mean_mhz() const { return sum_mhz / instructions; }
};

struct Shown {
  std::string path;
  plan_file::PlanFile plan;
  double waiting = 0;  // The waiting time, as a fraction of the time of all pp_ranks.
  std::vector<ClockShare> clocks;

  double saving() const { return 1 - plan.energy_j / plan.baseline_energy_j; }
  double slowdown() const { return ToSeconds(plan.time) / ToSeconds(plan.baseline_time) - 1; }
  double average_power_w() const { return plan.energy_j / ToSeconds(plan.time); }
  double switches_per_gpu() const {
    return static_cast<double>(plan.switches) / static_cast<double>(plan.pp_ranks.size());
  }
  double gap() const { return std::max(0.0, plan.energy_j / plan.lower_bound_j - 1); }
};

Shown Summarize(NamedPlan named) {
  plan_file::PlanFile& plan = named.file;
  Shown shown;
  std::map<std::pair<int, std::string>, ClockShare>
      clocks;  // The stage in the key gives the order.
  double busy_s = 0;
  for (const plan_file::PlannedRank& rank : plan.pp_ranks) {
    for (const plan_file::PlannedInstruction& instruction : rank.instructions) {
      busy_s += ToSeconds(instruction.duration);
      if (instruction.frequency_mhz == 0) continue;
      const bool has_stage = instruction.stage >= 0;
      const std::string of =
          has_stage ? fmt::format("stage {} {}", instruction.stage, Name(instruction.kind))
                    : rank.name;
      ClockShare& clock = clocks[{instruction.stage, of}];
      clock.of = of;
      clock.sum_mhz += instruction.frequency_mhz;
      ++clock.instructions;
    }
  }
  for (auto& [place, clock] : clocks) shown.clocks.push_back(std::move(clock));
  shown.waiting = 1 - busy_s / (ToSeconds(plan.time) * static_cast<double>(plan.pp_ranks.size()));
  shown.path = std::move(named.path);
  shown.plan = std::move(plan);
  return shown;
}

std::string FormatJson(const std::vector<Shown>& plans) {
  ordered_json list = ordered_json::array();
  for (const Shown& shown : plans) {
    ordered_json clocks = ordered_json::object();
    for (const ClockShare& clock : shown.clocks) clocks[clock.of] = clock.mean_mhz();
    list.push_back({{"file", shown.path},
                    {"target", shown.plan.target},
                    {"time_s", ToSeconds(shown.plan.time)},
                    {"slowdown", shown.slowdown()},
                    {"energy_j", shown.plan.energy_j},
                    {"saving", shown.saving()},
                    {"average_power_w", shown.average_power_w()},
                    {"lower_bound_j", shown.plan.lower_bound_j},
                    {"gap", shown.gap()},
                    {"switches", shown.plan.switches},
                    {"switches_per_gpu", shown.switches_per_gpu()},
                    {"waiting", shown.waiting},
                    {"mean_frequency_mhz", std::move(clocks)}});
  }
  return JsonText(ordered_json{{"plans", std::move(list)}}, 2) + "\n";
}

// The columns have numbers instead of names, because targets and paths are long, and a directory
// has about twelve plans. The lines above the table explain the numbers.
std::string FormatTable(const std::vector<Shown>& plans) {
  std::string text;
  std::vector<std::string> header{"plan"};
  for (const Shown& shown : plans) {
    header.push_back(fmt::format("{}", header.size()));
    text += Wrapped(fmt::format("{:>2}  {}: {}\n", header.back(), shown.path, shown.plan.target));
  }
  text += '\n';
  Table table(std::move(header));
  const auto add_row = [&](std::string name, auto&& cell) {
    std::vector<std::string> cells{std::move(name)};
    for (const Shown& shown : plans) cells.push_back(cell(shown));
    table.AddRow(std::move(cells));
  };
  add_row("time",
          [](const Shown& shown) { return FormatQuantity(ToSeconds(shown.plan.time), "s"); });
  add_row("slowdown", [](const Shown& shown) { return FormatPercent(shown.slowdown()); });
  add_row("energy", [](const Shown& shown) { return FormatQuantity(shown.plan.energy_j, "J"); });
  add_row("saving", [](const Shown& shown) { return FormatPercent(shown.saving()); });
  add_row("power", [](const Shown& shown) { return FormatQuantity(shown.average_power_w(), "W"); });
  add_row("gap", [](const Shown& shown) { return fmt::format("{:.3f} %", shown.gap() * 100); });
  add_row("switches",
          [](const Shown& shown) { return fmt::format("{:.1f}", shown.switches_per_gpu()); });
  add_row("switches a second", [](const Shown& shown) {
    return fmt::format("{:.1f}", shown.switches_per_gpu() / ToSeconds(shown.plan.time));
  });
  add_row("waiting", [](const Shown& shown) { return FormatPercent(shown.waiting); });

  // The groups of all plans, in the order of their first appearance.
  std::vector<std::string> names;
  for (const Shown& shown : plans) {
    for (const ClockShare& clock : shown.clocks) {
      if (std::ranges::find(names, clock.of) == names.end()) names.push_back(clock.of);
    }
  }
  for (const std::string& name : names) {
    add_row(name, [&](const Shown& shown) {
      const auto found = std::ranges::find(shown.clocks, name, &ClockShare::of);
      return found == shown.clocks.end() ? "" : fmt::format("{:.0f} MHz", found->mean_mhz());
    });
  }
  text += table.Format();
  const plan_file::PlanFile& first = plans.front().plan;
  const bool differ = std::ranges::any_of(plans, [&](const Shown& shown) {
    return shown.plan.baseline_time != first.baseline_time ||
           shown.plan.baseline_energy_j != first.baseline_energy_j;
  });
  if (differ) {
    text +=
        "\nThese plans are for different jobs or profiles: each slowdown and saving is relative to "
        "its own baseline.\n";
  }
  return text;
}

Result<void> RunShow(const Streams& streams, const ShowFlags& flags) {
  std::vector<Shown> plans;
  PERSEUS_ASSIGN_OR_RETURN(auto named, ReadPlans(flags.plans));
  for (NamedPlan& plan : named) plans.push_back(Summarize(std::move(plan)));
  return streams.Print(flags.as_json ? FormatJson(plans) : FormatTable(plans));
}

}  // namespace

Verb AddShowVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<ShowFlags>(program, "show", kShowAbout, kShowExamples);
  verb->footer(std::string("Example:\n") + kShowExamples);
  add("plan", flags->plans, "DIR|PLAN...", "Plans (JSON), or directories of perseus plan -o",
      ExistingPath())
      ->required();
  verb->add_flag("--json", flags->as_json, "Print JSON instead of the table");
  return {verb, [flags = flags](const Streams& streams) { return RunShow(streams, *flags); }};
}

}  // namespace perseus::cli
