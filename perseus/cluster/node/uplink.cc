#include "perseus/cluster/node/uplink.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "perseus/base/excerpt.h"

namespace perseus::node {
namespace {

constexpr Nanoseconds kFirstPause = 500'000'000;
constexpr Nanoseconds kLastPause = 5'000'000'000;
constexpr Nanoseconds kSecondOfPause = 1'000'000'000;
constexpr int kMostRetryAfter = 30;

// What an overloaded server asks for. 0 for other answers.
Nanoseconds PauseOf(const http::Response& response) {
  if (response.status != 429 && response.status != 503) return 0;
  for (const auto& [name, value] : response.fields) {
    int seconds = 0;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), seconds);
    if (name != "retry-after" || read.ec != std::errc()) continue;
    return std::clamp(seconds, 0, kMostRetryAfter) * kSecondOfPause;
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
              response.error().message);
  }
  pause_ = std::clamp(2 * pause_, kFirstPause, kLastPause);
  pause_until_ = now + pause_;
  return response;
}

void Uplink::WarnOnce(const std::string& about, const std::string& message) {
  if (warned_.insert(about).second) log_.warn("{}", OneLine(message));
}

bool IsSuccess(const http::Response& response) {
  constexpr int kFirst = 200;
  constexpr int kLast = 299;
  return response.status >= kFirst && response.status <= kLast;
}

std::string ProblemText(const http::Response& response) {
  const auto problem = nlohmann::json::parse(response.body, nullptr, false);
  const auto text = [&problem](const char* key) {
    const bool has = problem.is_object() && problem.contains(key) && problem[key].is_string();
    const std::string value = has ? problem[key].get<std::string>() : std::string();
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
