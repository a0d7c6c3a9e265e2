#include "perseus/cluster/node/uplink.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "perseus/base/excerpt.h"

namespace perseus::node {
namespace {

constexpr Nanoseconds kFirstPause = 500'000'000;
constexpr Nanoseconds kLastPause = 5'000'000'000;

}  // namespace

Result<http::Response> Uplink::Request(const http::Client::Outgoing& request, Nanoseconds now) {
  auto response = send_(request);
  if (response) {
    if (pause_ > 0) log_.info("the server can be reached again");
    pause_ = pause_until_ = 0;
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
  if (warned_.insert(about).second) log_.warn("{}", message);
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
