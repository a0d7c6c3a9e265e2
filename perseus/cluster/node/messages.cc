#include "perseus/cluster/node/messages.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_file.h"

namespace perseus::node {
namespace {

using json_file::Throw;
using nlohmann::ordered_json;

// event -> plans -> plan; what a newer server adds may lie deeper.
constexpr int kMessagesJsonDepth = 16;
constexpr int kMostPipelines = 1'000'000;
constexpr std::size_t kMostPlansAhead = 10'000;

template <typename Json>
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ReadPlanId(const json_file::Node& node) {
  std::string id = node.Text();
  if (!IsPlanId(id)) Throw("{} {} is not a plan's id", node.path, Excerpt(id));
  return id;
}

int ReadPipeline(const json_file::Node& plans, const std::string& key) {
  const bool is_number = !key.empty() && key.size() <= 7 &&
                         std::all_of(key.begin(), key.end(),
                                     [](char letter) { return letter >= '0' && letter <= '9'; });
  const int pipeline = is_number ? std::stoi(key) : kMostPipelines + 1;
  if (pipeline > kMostPipelines) {
    Throw("{} has {}, which is no pipeline's number", plans.path, Excerpt(key));
  }
  return pipeline;
}

JobAssignment ReadAssignment(const json_file::Node& data) {
  JobAssignment assignment;
  assignment.job = data.Member("job").Text();
  assignment.key = data.Member("key").Text();
  assignment.version = data.Member("version").Whole(1, json_file::kLargestWhole, "a version");
  assignment.from_step =
      data.Member("from_step").Whole(0, json_file::kLargestWhole, "a step's number");
  const json_file::Node plans = data.Member("plans");
  if (!plans.value.is_object()) Throw("plans is not an object");
  for (const auto& item : plans.value.items()) {
    assignment.plans.emplace(ReadPipeline(plans, item.key()), ReadPlanId(plans.Member(item.key())));
  }
  if (data.Has("reason")) assignment.reason = data.Member("reason").Text();
  if (data.Has("files")) {
    const json_file::Node files = data.Member("files");
    if (!files.value.is_object()) Throw("files is not an object");
    for (const auto& file : files.value.items()) {
      if (!IsPlanId(file.key())) Throw("files has {}, which is no plan's id", Excerpt(file.key()));
      assignment.files.emplace(file.key(), Dump(file.value()));
    }
  }
  if (data.Has("upcoming")) {
    const json_file::Node upcoming = data.Member("upcoming");
    const std::size_t count = std::min(upcoming.ListSize(), kMostPlansAhead);
    for (std::size_t i = 0; i < count; ++i) assignment.upcoming.push_back(ReadPlanId(upcoming[i]));
  }
  return assignment;
}

}  // namespace

bool IsPlanId(std::string_view text) {
  constexpr std::size_t kLength = 18;
  return text.size() == kLength && text.starts_with("p-") &&
         std::all_of(text.begin() + 2, text.end(), [](char letter) {
           return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
         });
}

Result<NodeEvent> ParseNodeEvent(const http::Event& event) {
  if (event.name != "assignment" && event.name != "ended") return NodeEvent();
  return json_file::Read(event.data, "event " + event.name, kMessagesJsonDepth,
                         [&event](const json_file::Node& data) -> NodeEvent {
                           if (event.name == "assignment") return ReadAssignment(data);
                           return JobEnded{data.Member("job").Text()};
                         });
}

std::string JobOfAnswer(std::string_view body) {
  const auto job =
      json_file::Read(body, "answer", kMessagesJsonDepth, [](const json_file::Node& answer) {
        return answer.Has("job") ? answer.Member("job").Text() : std::string();
      });
  return job.value_or("");
}

std::set<std::string> NotAttachedOfAnswer(std::string_view body) {
  const auto jobs =
      json_file::Read(body, "answer", kMessagesJsonDepth, [](const json_file::Node& answer) {
        std::set<std::string> named;
        if (!answer.Has("not_attached")) return named;
        const json_file::Node list = answer.Member("not_attached");
        for (std::size_t i = 0; i < list.ListSize(); ++i) named.insert(list[i].Text());
        return named;
      });
  return jobs.value_or(std::set<std::string>());
}

bool IsOfInstance(const http::Response& problem) {
  const auto pointer = json_file::Read(
      problem.body, "answer", kMessagesJsonDepth, [](const json_file::Node& answer) {
        return answer.Has("pointer") ? answer.Member("pointer").Text() : std::string();
      });
  return pointer.value_or("") == "/instance";
}

bool IsOfNoJob(const http::Response& problem) {
  constexpr int kNotFound = 404;
  constexpr int kConflict = 409;
  if (problem.status != kNotFound && problem.status != kConflict) return false;
  // What stands between may answer so, too, but with a page.
  const auto is_problem =
      json_file::Read(problem.body, "answer", kMessagesJsonDepth,
                      [](const json_file::Node& answer) { return answer.Has("title"); });
  return is_problem.value_or(false) && !IsOfInstance(problem);
}

std::string FormatRanks(std::span<const protocol::RankHeader> ranks, bool restarted,
                        const std::string& instance) {
  ordered_json list = ordered_json::array();
  for (const protocol::RankHeader& rank : ranks) {
    list.push_back({{"dp_rank", rank.name.dp_rank},
                    {"pp_rank", rank.name.pp_rank},
                    {"tp_rank", rank.name.tp_rank},
                    {"gpu", rank.gpu}});
  }
  ordered_json body{{"ranks", std::move(list)}};
  if (restarted) body["restarted"] = true;
  if (!instance.empty()) body["instance"] = instance;
  return Dump(body);
}

std::string FormatReports(std::span<const JobReport> jobs) {
  ordered_json list = ordered_json::array();
  for (const JobReport& job : jobs) {
    ordered_json steps = ordered_json::array();
    for (const StepReport& step : job.steps) {
      ordered_json& row = steps.emplace_back(ordered_json{{"step", step.step},
                                                          {"dp_rank", step.pipeline},
                                                          {"time_s", step.time_s},
                                                          {"busy_s", step.busy_s}});
      if (step.energy_j) row["energy_j"] = *step.energy_j;
      row["version"] = step.version;
      row["ranks"] = step.ranks;
    }
    list.push_back({{"job", job.job},
                    {"acknowledged", job.acknowledged},
                    {"following", job.following},
                    {"since_step", job.since_step},
                    {"steps", std::move(steps)}});
  }
  return Dump(ordered_json{{"jobs", std::move(list)}});
}

}  // namespace perseus::node
