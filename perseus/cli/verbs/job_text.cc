#include "perseus/cli/verbs/job_text.h"

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cluster/job_planning/job_spec.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

std::string FormatNodes(const ordered_json& nodes) {
  Table table({"node", "ranks", "run", "no lease", "state", "received", "follows", "since step",
               "last step", "last report"});
  for (const ordered_json& node : nodes) {
    table.AddRow({node.at("node"), std::to_string(node.at("ranks").size()),
                  NumberText(node, "running", "{:.0f}"),
                  NumberText(node, "without_lease", "{:.0f}"), node.at("state"),
                  fmt::format("{}", node.at("acknowledged").get<std::int64_t>()),
                  fmt::format("{}", node.at("following").get<std::int64_t>()),
                  fmt::format("{}", node.at("since_step").get<std::int64_t>()),
                  NumberText(node, "last_step_s_ago", "{:.1f} s ago"),
                  fmt::format("{:.1f} s ago", node.at("seen_s_ago").get<double>())});
  }
  return table.Format();
}

// Formats whether the ranks run, and what needs a person. An older server does not know it.
std::string FormatTraining(const ordered_json& job) {
  std::string text;
  if (const auto training = job.find("training");
      training != job.end() && training->at("state") != "idle") {
    text = "training: " + training->at("state").get<std::string>();
    if (training->contains("ended")) {
      text += " at " + training->at("ended").get<std::string>();
    } else {
      text += fmt::format(", {} of {} run", training->at("running").get<int>(),
                          Counted(training->at("ranks").get<int>(), "rank"));
    }
    if (const int without = training->at("without_lease").get<int>(); without > 0) {
      text += fmt::format(", {} without a lease", without);
    }
    if (training->contains("last_step_s_ago")) {
      text += fmt::format(", last step {} ended {} s ago", job.at("last_step").get<std::int64_t>(),
                          NumberText(*training, "last_step_s_ago", "{:.1f}"));
    }
    text += "\n";
  }
  for (const ordered_json& need : job.value("needs", ordered_json::array())) {
    text += "needs a person: " + need.get<std::string>() + "\n";
  }
  return text;
}

// Formats the plan of each pipeline. Neighboring pipelines with the same plan share a row, because
// most pipelines of a large job have the same plan.
std::string FormatAssignment(const ordered_json& assignment) {
  const auto& baseline = assignment.at("baseline");
  std::string text = fmt::format(
      "assignment {}, from step {}: {} ({})\n", assignment.at("version").get<std::int64_t>(),
      assignment.at("from_step").get<std::int64_t>(), assignment.at("target").get<std::string>(),
      assignment.at("reason").get<std::string>());
  Table table({"dp_rank", "plan", "time", "energy", "saving"});
  const double baseline_j = baseline.at("energy_j");
  const ordered_json& shares = assignment.at("pipelines");
  for (std::size_t first = 0; first < shares.size();) {
    std::size_t last = first;
    while (last + 1 < shares.size() && shares[last + 1] == shares[first]) ++last;
    const ordered_json& share = shares[first];
    const double energy_j = share.at("energy_j");
    table.AddRow({first == last ? std::to_string(first) : fmt::format("{}-{}", first, last),
                  share.at("plan"), FormatQuantity(share.at("time_s").get<double>(), "s"),
                  FormatQuantity(energy_j, "J"), FormatPercent(1 - energy_j / baseline_j)});
    first = last + 1;
  }
  if (shares.empty()) return text + "no plan is in force: all ranks run at the default clocks\n";
  return text + table.Format();
}

// Says whether measurements contradict the plan, and what to do.
std::string FormatGuard(const ordered_json& job) {
  const auto guard = job.find("guard");
  if (guard == job.end()) return "";
  const std::string state = guard->at("state");
  const auto percent = [&guard](const char* name) {
    return FormatPercent(guard->at(name).get<double>() - 1);
  };
  const std::string why =
      guard->contains("why") ? " (" + guard->at("why").get<std::string>() + ")" : std::string();
  const std::string seen = fmt::format("since {}: steps took {} longer than planned",
                                       guard->at("since").get<std::string>(), percent("with_plan"));
  if (state == "trial") {
    return fmt::format("trial of the default clocks {}{}\n", seen, why);
  }
  const std::string compared =
      fmt::format("{}, and {} longer at the default clocks{}", seen, percent("without_plan"), why);
  if (state == "cleared") return fmt::format("plan tried and kept {}\n", compared);
  return fmt::format(
      "plan taken back {}\n"
      "to use a plan again: send a new profile (perseus tune), or set the target again (perseus "
      "job target)\n",
      compared);
}

// Formats the promise of the active plan and the measurements of the nodes. Returns an empty text
// before the first steps.
std::string FormatPromise(const ordered_json& job) {
  const auto measured = job.find("measured");
  if (measured == job.end() || !measured->contains("promise")) return "";
  const ordered_json& promise = (*measured)["promise"];
  const auto compared = [&promise](const char* what, const char* unit) {
    const std::string promised = std::string("promised_") + unit;
    const std::string seen = std::string("measured_") + unit;
    if (!promise.contains(promised) || !promise.contains(seen)) return std::string();
    const double planned = promise[promised];
    const double real = promise[seen];
    return fmt::format("{} of a step: promised {} {}, measured {} {} ({})\n", what,
                       FormatQuantity(planned), unit == std::string_view("s") ? "s" : "J",
                       FormatQuantity(real), unit == std::string_view("s") ? "s" : "J",
                       FormatChange(real / planned - 1));
  };
  std::string text = compared("time", "s") + compared("energy", "j");
  if (promise.contains("problem")) text += "note: " + promise["problem"].get<std::string>() + "\n";
  return text;
}

// Returns a slowdown (T'/T) in percent: "25.00 %" for 1.25.
std::string Longer(const ordered_json& straggler, const char* key) {
  return FormatPercent(straggler.at(key).get<double>() - 1);
}

}  // namespace

std::string NumberText(const ordered_json& json, const char* key, const char* format) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return "";
  return fmt::format(fmt::runtime(format), found->get<double>());
}

std::string TargetText(const ordered_json& target) {
  const auto known = job_planning::ParseJobTarget(JsonText(target), 1);
  // A newer server may have other targets.
  return known ? plan::Describe(known->target) : target.at("kind").get<std::string>();
}

std::string FormatStragglers(const ordered_json& stragglers) {
  std::string text;
  for (const ordered_json& straggler : stragglers) {
    text += fmt::format("straggler: dp_rank {} takes {} longer, {} ({})",
                        straggler.at("dp_rank").get<int>(), Longer(straggler, "slowdown"),
                        straggler.at("state").get<std::string>(),
                        straggler.at("source").get<std::string>());
    if (straggler.contains("expires")) text += ", until " + straggler["expires"].get<std::string>();
    if (straggler.contains("measured")) {
      text += fmt::format(", measured {}", Longer(straggler, "measured"));
    }
    if (straggler.contains("reinstated")) {
      text += "; it counts again " + straggler["reinstated"].get<std::string>();
    }
    if (straggler.contains("warning")) text += "; " + straggler["warning"].get<std::string>();
    text += "\n";
  }
  return text;
}

std::string FormatPastStragglers(const ordered_json& past) {
  if (past.empty()) return "no straggler is over yet\n";
  Table table({"dp_rank", "source", "slowdown", "from", "until", "measured", "why"});
  for (const ordered_json& straggler : past) {
    table.AddRow({std::to_string(straggler.at("dp_rank").get<int>()), straggler.at("source"),
                  Longer(straggler, "slowdown"), straggler.at("starts"), straggler.at("ended"),
                  straggler.contains("measured") ? Longer(straggler, "measured") : "",
                  straggler.at("why")});
  }
  return table.Format();
}

std::string FormatJob(const ordered_json& job) {
  std::string text = fmt::format(
      "{} ({}): {}\n{} x {} x {}, {}, {}\n", job.at("key").get<std::string>(),
      job.at("id").get<std::string>(), job.at("status").get<std::string>(),
      Counted(job.at("pipelines").get<int>(), "pipeline"),
      Counted(job.at("pp_ranks").get<int>(), "pp_rank"),
      Counted(job.at("tensor_parallel").get<int>(), "GPU"), job.at("schedule").get<std::string>(),
      Counted(job.at("microbatches").get<int>(), "microbatch"));
  const ordered_json& target = job.at("target");
  text += fmt::format("target: {}", TargetText(target));
  if (target.contains("expires")) {
    text += fmt::format(" until {}, then {}", target["expires"].get<std::string>(),
                        TargetText(target.at("then")));
  }
  text += "\n";
  text += FormatTraining(job);
  if (job.contains("problem")) text += "problem: " + job["problem"].get<std::string>() + "\n";
  if (job.at("detect_stragglers") == false) text += "stragglers are not detected, only reported\n";
  if (job.at("profile_version") == 0) text += "no profile yet (perseus tune, or --profile)\n";
  if (job.contains("assignment")) {
    text += "\n" + FormatAssignment(job["assignment"]);
  } else if (job.at("status") == "waiting" && job.at("profile_version") != 0) {
    text += "the server computes the plan\n";
  }
  text += FormatPromise(job) + FormatGuard(job);
  if (const auto stragglers = FormatStragglers(job.at("stragglers")); !stragglers.empty()) {
    text += "\n" + stragglers;
  }
  const ordered_json& nodes = job.at("nodes");
  if (!nodes.empty()) return text + "\n" + FormatNodes(nodes);
  const ordered_json training = job.value("training", ordered_json::object());
  const bool has_ended = job.at("status") == "ended" || training.value("state", "") == "ended";
  return text + (has_ended
                     ? "\nno nodes\n"
                     : "\nno nodes yet (they attach when ranks run, see perseus node --help)\n");
}

}  // namespace perseus::cli
