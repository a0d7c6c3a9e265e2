#include "perseus/cluster/node/uplink.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_text.h"

namespace perseus::node {
namespace {

constexpr Nanoseconds kFirstPause = kSecond / 2;
constexpr Nanoseconds kLastPause = 5 * kSecond;
constexpr int kMostRetryAfter = 30;

// Returns the pause that an overloaded server requests. 0 for other answers.
Nanoseconds PauseOf(const http::Response& response) {
  if (response.status != 429 && response.status != 503) return 0;
  for (const auto& [name, value] : response.fields) {
    int seconds = 0;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), seconds);
    if (name != "retry-after" || read.ec != std::errc()) continue;
    return std::clamp(seconds, 0, kMostRetryAfter) * kSecond;
  }
  return 0;
}

}  // namespace

Result<http::Response> Uplink::Request(const http::Client::Outgoing& request, Nanoseconds now) {
  auto response = send_(request);
  if (response) {
    if (pause_ > 0) log_.info("the server can be reached again");
    pause_ = 0;
    pause_until_ = now + PauseOf(*response);
    return response;
  }
  if (pause_ == 0) {
    log_.warn("{}; ranks keep their assignment, and the request is repeated",
              response.error().Message());
  }
  pause_ = std::clamp(2 * pause_, kFirstPause, kLastPause);
  pause_until_ = now + pause_;
  return response;
}

void Uplink::WarnOnce(const std::string& about, const std::string& message) {
  if (!warned_.try_emplace(about, warnings_).second) return;
  warned_in_order_.emplace(warnings_++, about);
  if (warned_.size() > kMostWarned) Recovered(std::string(warned_in_order_.begin()->second));
  log_.warn("{}", OneLine(message));
}

void Uplink::Recovered(const std::string& about) {
  const auto found = warned_.find(about);
  if (found == warned_.end()) return;
  warned_in_order_.erase(found->second);
  warned_.erase(found);
}

bool IsSuccess(const http::Response& response) { return response.status / 100 == 2; }

std::string TextOf(const http::Response& answer, const char* name) {
  const auto json = ParseJson(answer.body);
  const bool has = json.is_object() && json.contains(name) && json[name].is_string();
  return has ? json[name].get<std::string>() : std::string();
}

std::set<std::string> NotAttachedOf(const http::Response& answer) {
  const auto json = ParseJson(answer.body);
  std::set<std::string> jobs;
  if (!json.is_object() || !json.contains("not_attached")) return jobs;
  for (const auto& job : json["not_attached"]) {
    if (job.is_string()) jobs.insert(job);
  }
  return jobs;
}

std::map<std::string, std::string> RefusedOf(const http::Response& answer) {
  const auto json = ParseJson(answer.body);
  std::map<std::string, std::string> refused;
  if (!json.is_object() || !json.contains("refused")) return refused;
  for (const auto& [job, why] : json["refused"].items()) {
    if (why.is_string()) refused.emplace(job, why);
  }
  return refused;
}

bool Takes(const http::Response& answer, std::string_view key) {
  const auto json = ParseJson(answer.body);
  if (!json.is_object() || !json.contains("takes")) return false;
  return std::ranges::find(json["takes"], key) != json["takes"].end();
}

bool IsNameConflict(const http::Response& problem) {
  return TextOf(problem, "pointer") == "/instance";
}

bool IsOfAnotherUser(const http::Response& problem) {
  return TextOf(problem, "pointer") == "/users";
}

bool IsUnknownJob(const http::Response& problem) {
  // A proxy may answer with the same status, but its body is a page.
  return (problem.status == 404 || problem.status == 409) && !TextOf(problem, "title").empty() &&
         !IsNameConflict(problem);
}

std::string ProblemText(const http::Response& response) {
  const auto text = [&response](const char* key) {
    const std::string value = TextOf(response, key);
    return IsPrintable(value) ? value : Excerpt(value);
  };
  std::string shown = fmt::format("{}", response.status);
  if (const std::string detail = text("detail"); !detail.empty()) shown += ": " + detail;
  if (const std::string remedy = text("remedy"); !remedy.empty()) {
    shown += fmt::format(" ({})", remedy);
  }
  return shown;
}

}  // namespace perseus::node
