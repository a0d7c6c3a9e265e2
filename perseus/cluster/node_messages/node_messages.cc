#include "perseus/cluster/node_messages/node_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/limits.h"

namespace perseus::protocol {
namespace {

using json_file::Node;
using json_file::Throw;
using json_file::ThrowAt;
using nlohmann::ordered_json;

// An event has a depth of 3: event, plans, plan. The additions of a newer server may be deeper.
constexpr int kDeepestEvent = 16;
constexpr std::size_t kMostUpcomingPlans = 10'000;
constexpr int kMostRanksOfNode = 4096;
constexpr std::size_t kLongestGpu = 128;
constexpr std::size_t kMostJobsOfReport = 10'000;
// A shorter time has no meaning, because two steps seem to end at the same moment.
constexpr double kLeastSecondsOfStep = 1e-6;

// ---- Attachment ----

ordered_json RanksJson(std::span<const AttachedRank> ranks) {
  auto list = ordered_json::array();
  for (const AttachedRank& rank : ranks) {
    ordered_json& row = list.emplace_back(ordered_json{{"dp_rank", rank.name.dp_rank},
                                                       {"pp_rank", rank.name.pp_rank},
                                                       {"tp_rank", rank.name.tp_rank}});
    if (!rank.gpu.empty()) row["gpu"] = rank.gpu;
  }
  return list;
}

AttachedRank ReadAttachedRank(const Node& node, const HighestRanks& highest) {
  node.RequireObject({"dp_rank", "pp_rank", "tp_rank", "gpu"});
  AttachedRank rank{.name = ReadRankId(node, highest)};
  if (!node.Has("gpu")) return rank;
  const Node gpu = node.Member("gpu");
  rank.gpu = gpu.Text();
  if (rank.gpu.size() > kLongestGpu) {
    ThrowAt(gpu.path, "has {} characters (expected at most {})", rank.gpu.size(), kLongestGpu);
  }
  return rank;
}

std::vector<AttachedRank> ReadRanks(const Node& list, const HighestRanks& highest) {
  std::vector<AttachedRank> ranks;
  std::set<RankId> names;
  for (std::size_t i = 0; i < list.ListSize(); ++i) {
    ranks.push_back(ReadAttachedRank(list[i], highest));
    if (!names.insert(ranks.back().name).second) {
      ThrowAt(list[i].path, "appears twice (name each rank once)");
    }
  }
  return ranks;
}

// ---- Reports ----

StepReport ReadStepReport(const Node& node) {
  node.RequireObject({"step", "dp_rank", "time_s", "busy_s", "energy_j", "version", "ranks",
                      "limited", "without_clocks"});
  StepReport step;
  step.step = node.Member("step").Whole(0, json_file::kLargestWhole, "a step");
  step.dp_rank = node.Member("dp_rank").Count(0, kMostPipelines - 1, "a dp_rank, from 0");
  step.busy_s = node.Member("busy_s").Number(0, kLongestSeconds, "seconds");
  if (node.Has("time_s")) {
    step.time_s = node.Member("time_s").Number(0, kLongestSeconds, "seconds");
  }
  if (step.time_s < kLeastSecondsOfStep) step.time_s = 0;
  if (node.Has("energy_j")) {
    step.energy_j = node.Member("energy_j").Number(0, kMostJoules, "joules");
  }
  if (node.Has("version")) {
    step.version = node.Member("version").Whole(0, json_file::kLargestWhole, "a version");
  }
  step.ranks = node.Member("ranks").Count(1, kMostPipelines - 1, "a number of ranks");
  for (const auto& [key, count] :
       {std::pair{"limited", &step.limited}, {"without_clocks", &step.without_clocks}}) {
    if (node.Has(key)) *count = node.Member(key).Count(0, step.ranks, "a number of these ranks");
  }
  return step;
}

JobReport ReadJobReport(const Node& node) {
  node.RequireObject({"job", "acknowledged", "following", "since_step", kRunningKey, "steps"});
  JobReport report;
  report.job = node.Member("job").Text();
  const auto read = [&node](std::string_view key, std::int64_t least, std::int64_t fallback) {
    return node.Has(key) ? node.Member(key).Whole(least, json_file::kLargestWhole, "a whole number")
                         : fallback;
  };
  report.acknowledged = read("acknowledged", 0, report.acknowledged);
  report.following = read("following", 0, report.following);
  report.since_step = read("since_step", -1, report.since_step);
  if (node.Has(kRunningKey)) {
    report.running = node.Member(kRunningKey).Count(0, kMostRanksOfNode, "a number of ranks");
  }
  if (node.Has("steps")) report.steps = ReadSteps(node.Member("steps"));
  return report;
}

// ---- Events ----

std::string ReadPlanId(const Node& node) {
  std::string id = node.Text();
  if (!IsPlanId(id)) Throw("{} {} is not a plan's id", node.path, Excerpt(id));
  return id;
}

AssignmentEvent ReadAssignmentEvent(const Node& data) {
  AssignmentEvent event;
  event.job = data.Member("job").Text();
  event.key = data.Member("key").Text();
  event.version = data.Member("version").Whole(1, json_file::kLargestWhole, "a version");
  event.from_step = data.Member("from_step").Whole(0, json_file::kLargestWhole, "a step");
  const Node plans = data.Member("plans");
  if (!plans.value.is_object()) Throw("plans is not an object");
  for (const auto& item : plans.value.items()) {
    event.plans.emplace(ReadDpRankKey(plans, item.key()), ReadPlanId(plans.Member(item.key())));
  }
  if (data.Has("target")) event.target = data.Member("target").Text();
  if (data.Has("reason")) event.reason = data.Member("reason").Text();
  if (data.Has("files")) {
    const Node files = data.Member("files");
    if (!files.value.is_object()) Throw("files is not an object");
    for (const auto& file : files.value.items()) {
      if (!IsPlanId(file.key()))
        Throw("files has {}, which is not a plan's id", Excerpt(file.key()));
      event.files.emplace(file.key(), JsonText(file.value()));
    }
  }
  if (data.Has("upcoming")) {
    const Node upcoming = data.Member("upcoming");
    const std::size_t count = std::min(upcoming.ListSize(), kMostUpcomingPlans);
    for (std::size_t i = 0; i < count; ++i) event.upcoming.push_back(ReadPlanId(upcoming[i]));
  }
  return event;
}

EndedEvent ReadEndedEvent(const Node& data) {
  EndedEvent event{.job = data.Member("job").Text()};
  if (data.Has("key")) event.key = data.Member("key").Text();
  return event;
}

}  // namespace

// ---- Attachment ----

std::string FormatRanks(std::span<const AttachedRank> ranks) { return JsonText(RanksJson(ranks)); }

Result<std::vector<AttachedRank>> ParseRanks(std::string_view text) {
  return json_file::Read(text, "the ranks of a node", kDeepestAttachment,
                         [](const Node& list) { return ReadRanks(list, {}); });
}

std::string FormatAttachment(const Attachment& attachment) {
  ordered_json body{{"ranks", RanksJson(attachment.ranks)}};
  if (attachment.restarted) body["restarted"] = true;
  if (!attachment.instance.empty()) body["instance"] = attachment.instance;
  if (!attachment.users.empty()) body["users"] = attachment.users;
  return JsonText(body);
}

std::vector<std::string> ReadUsers(const Node& list) {
  constexpr std::size_t kMostNames = 2;
  if (list.ListSize() > kMostNames) {
    ThrowAt(list.path, "has more than {} names (expected the name and the id)", kMostNames);
  }
  std::vector<std::string> users;
  for (std::size_t i = 0; i < list.ListSize(); ++i) users.push_back(list[i].Text());
  return users;
}

Attachment ReadAttachment(const Node& body, const HighestRanks& highest) {
  body.RequireObject({"ranks", "restarted", "instance", "users"});
  const Node list = body.Member("ranks");
  if (list.ListSize() == 0 || list.ListSize() > std::size_t{kMostRanksOfNode}) {
    ThrowAt(list.path, "has {} ranks (expected 1 to {})", list.ListSize(), kMostRanksOfNode);
  }
  return {
      .ranks = ReadRanks(list, highest),
      .restarted = body.Has("restarted") && body.Member("restarted").Flag(),
      .instance = body.Has("instance") ? body.Member("instance").Text() : "",
      .users = body.Has("users") ? ReadUsers(body.Member("users")) : std::vector<std::string>()};
}

// ---- Reports ----

ordered_json StepsJson(std::span<const StepReport> steps) {
  auto list = ordered_json::array();
  for (const StepReport& step : steps) {
    ordered_json& row = list.emplace_back(ordered_json{{"step", step.step},
                                                       {"dp_rank", step.dp_rank},
                                                       {"time_s", step.time_s},
                                                       {"busy_s", step.busy_s}});
    if (step.energy_j) row["energy_j"] = *step.energy_j;
    row["version"] = step.version;
    row["ranks"] = step.ranks;
    if (step.limited > 0) row["limited"] = step.limited;
    if (step.without_clocks > 0) row["without_clocks"] = step.without_clocks;
  }
  return list;
}

std::vector<StepReport> ReadSteps(const Node& list) {
  std::vector<StepReport> steps;
  const std::size_t count = list.ListSize();
  steps.reserve(count);
  for (std::size_t i = 0; i < count; ++i) steps.push_back(ReadStepReport(list[i]));
  return steps;
}

std::string FormatReports(std::span<const JobReport> jobs) {
  auto list = ordered_json::array();
  for (const JobReport& job : jobs) {
    ordered_json& row = list.emplace_back(ordered_json{{"job", job.job},
                                                       {"acknowledged", job.acknowledged},
                                                       {"following", job.following},
                                                       {"since_step", job.since_step}});
    if (job.running) row[kRunningKey] = *job.running;
    row["steps"] = StepsJson(job.steps);
  }
  return JsonText(ordered_json{{"jobs", std::move(list)}});
}

Reports ReadReports(const Node& body) {
  body.RequireObject({"jobs"});
  const Node jobs = body.Member("jobs");
  if (jobs.ListSize() > kMostJobsOfReport) {
    ThrowAt(jobs.path, "has more than {} jobs (send them in parts)", kMostJobsOfReport);
  }
  Reports reports;
  std::optional<Error> first;
  for (std::size_t i = 0; i < jobs.ListSize(); ++i) {
    try {
      reports.jobs.push_back(ReadJobReport(jobs[i]));
    } catch (const Error& error) {
      if (!first) first = error;
      reports.refused.emplace(jobs[i].Member("job").Text(), error.what);
    }
  }
  if (first && reports.jobs.empty()) throw *first;
  return reports;
}

Result<void> CheckStep(const StepReport& step) {
  const auto read = json_file::Read(JsonText(StepsJson({&step, 1})), "the record of the step",
                                    kDeepestReports, ReadSteps);
  if (!read) return Fail(read);
  return {};
}

// ---- Events ----

bool IsPlanId(std::string_view text) {
  constexpr std::size_t kLength = 18;
  return text.size() == kLength && text.starts_with("p-") &&
         text.find_first_not_of("0123456789abcdef", 2) == std::string_view::npos;
}

Result<ServerEvent> ParseEvent(std::string_view name, std::string_view data) {
  if (name != kAssignmentEvent && name != kEndedEvent) return ServerEvent();
  return json_file::Read(data, fmt::format("event {}", name), kDeepestEvent,
                         [name](const Node& node) -> ServerEvent {
                           if (name == kAssignmentEvent) return ReadAssignmentEvent(node);
                           return ReadEndedEvent(node);
                         });
}

std::string FormatEvent(const EndedEvent& event) {
  ordered_json json{{"job", event.job}};
  if (!event.key.empty()) json["key"] = event.key;
  return JsonText(json);
}

std::vector<SharedText> FormatEvent(const AssignmentEvent& event,
                                    std::span<const std::pair<std::string, SharedText>> files) {
  auto plans = ordered_json::object();
  for (const auto& [dp_rank, plan] : event.plans) plans[fmt::to_string(dp_rank)] = plan;
  ordered_json json{{"job", event.job},          {"key", event.key},
                    {"version", event.version},  {"from_step", event.from_step},
                    {"plans", std::move(plans)}, {"upcoming", event.upcoming},
                    {"target", event.target},    {"reason", event.reason}};
  std::string text = JsonText(json);
  text.pop_back();
  text += ",\"files\":{";
  std::vector<SharedText> parts;
  std::string_view separator = "";
  for (const auto& [id, file] : files) {
    text += fmt::format("{}\"{}\":", separator, id);
    parts.push_back(std::make_shared<const std::string>(std::exchange(text, "")));
    parts.push_back(file);
    separator = ",";
  }
  parts.push_back(std::make_shared<const std::string>(text + "}}"));
  return parts;
}

}  // namespace perseus::protocol
