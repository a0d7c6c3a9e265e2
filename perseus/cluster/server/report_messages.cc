#include "perseus/cluster/server/report_messages.h"

#include <algorithm>
#include <array>

namespace perseus::server {
namespace {

using json_file::Node;
using nlohmann::ordered_json;

constexpr int kReportMessagesJsonDepth = 6;
constexpr std::int64_t kReportMessagesMostSteps = std::int64_t{1} << 53;
constexpr double kReportMessagesMostSeconds = 1e6;
// Of a step: of less, as where two end at once, nothing is known.
constexpr double kLeastSeconds = 1e-6;
constexpr double kReportMessagesMostJoules = 1e12;
constexpr std::size_t kMostReports = 10'000;
// Of one text: each takes 200 bytes at most, and names 400.
constexpr std::size_t kStepsInAText = 30;

ReportedStep ReadStep(const Node& node) {
  constexpr std::array<std::string_view, 7> kKeys{"step",     "dp_rank", "time_s", "busy_s",
                                                  "energy_j", "version", "ranks"};
  node.RequireObject(kKeys);
  ReportedStep step;
  step.step = node.Member("step").Whole(0, kReportMessagesMostSteps, "a step's number");
  step.pipeline = node.Member("dp_rank").Count(0, 999'999, "a pipeline, from 0");
  step.busy_s = node.Member("busy_s").Number(0, kReportMessagesMostSeconds, "seconds");
  if (node.Has("time_s"))
    step.time_s = node.Member("time_s").Number(0, kReportMessagesMostSeconds, "seconds");
  if (step.time_s < kLeastSeconds) step.time_s = 0;
  if (node.Has("energy_j")) {
    step.energy_j = node.Member("energy_j").Number(0, kReportMessagesMostJoules, "joules");
  }
  if (node.Has("version"))
    step.version = node.Member("version").Whole(0, kReportMessagesMostSteps, "a version");
  step.ranks = node.Member("ranks").Count(1, 999'999, "how many ranks it is of");
  return step;
}

NodeJobReport ReadReport(const Node& node) {
  constexpr std::array<std::string_view, 5> kKeys{"job", "acknowledged", "following", "since_step",
                                                  "steps"};
  node.RequireObject(kKeys);
  NodeJobReport report;
  report.job = node.Member("job").Text();
  const auto whole = [&](std::string_view key, std::int64_t least, std::int64_t& value) {
    if (node.Has(key))
      value = node.Member(key).Whole(least, kReportMessagesMostSteps, "a whole number");
  };
  whole("acknowledged", 0, report.acknowledged);
  whole("following", 0, report.following);
  whole("since_step", -1, report.since_step);
  if (node.Has("steps")) {
    const Node steps = node.Member("steps");
    for (std::size_t i = 0; i < steps.ListSize(); ++i) report.steps.push_back(ReadStep(steps[i]));
  }
  return report;
}

ordered_json StepJson(const ReportedStep& step) {
  ordered_json json{{"step", step.step},     {"dp_rank", step.pipeline}, {"time_s", step.time_s},
                    {"busy_s", step.busy_s}, {"version", step.version},  {"ranks", step.ranks}};
  if (step.energy_j) json["energy_j"] = *step.energy_j;
  return json;
}

}  // namespace

Answer<std::vector<NodeJobReport>> ReadReports(std::string_view body) {
  return ReadBody(body, kReportMessagesJsonDepth, [](const Node& node) {
    constexpr std::array<std::string_view, 1> kKeys{"jobs"};
    node.RequireObject(kKeys);
    const Node jobs = node.Member("jobs");
    if (jobs.ListSize() > kMostReports) {
      json_file::ThrowAt(jobs.path, "has more than {} jobs (send them in parts)", kMostReports);
    }
    std::vector<NodeJobReport> reports;
    for (std::size_t i = 0; i < jobs.ListSize(); ++i) reports.push_back(ReadReport(jobs[i]));
    return reports;
  });
}

std::vector<std::string> FormatReplicaMessage(const ReplicaMessage& heard) {
  ordered_json json{{"replica", heard.replica}, {"job", heard.job}, {"node", heard.node}};
  if (heard.restarted) json["restarted"] = true;
  if (heard.forgotten) json["forgotten"] = *heard.forgotten;
  if (heard.steps.empty()) return {json.dump()};
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < heard.steps.size(); begin += kStepsInAText) {
    const std::size_t end = std::min(begin + kStepsInAText, heard.steps.size());
    auto steps = ordered_json::array();
    for (std::size_t i = begin; i < end; ++i) steps.push_back(StepJson(heard.steps[i]));
    json["steps"] = std::move(steps);
    texts.push_back(json.dump());
  }
  return texts;
}

Result<ReplicaMessage> ParseReplicaMessage(std::string_view text) {
  return json_file::Read(
      text, "another replica's message", kReportMessagesJsonDepth, [](const Node& node) {
        ReplicaMessage heard;
        heard.replica = node.Member("replica").Text();
        heard.job = node.Member("job").Text();
        heard.node = node.Member("node").Text();
        heard.restarted = node.Has("restarted") && node.Member("restarted").Flag();
        if (node.Has("forgotten")) {
          heard.forgotten = node.Member("forgotten").Count(0, 999'999, "a pipeline, from 0");
        }
        if (!node.Has("steps")) return heard;
        const Node steps = node.Member("steps");
        for (std::size_t i = 0; i < steps.ListSize(); ++i)
          heard.steps.push_back(ReadStep(steps[i]));
        return heard;
      });
}

}  // namespace perseus::server
