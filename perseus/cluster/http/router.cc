#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "perseus/cluster/http/server.h"
#include "perseus/cluster/http/target.h"

namespace perseus::http {
namespace {

bool IsParameter(std::string_view segment) {
  return segment.size() > 2 && segment.front() == '{' && segment.back() == '}';
}

std::optional<Fields> Matched(const std::vector<std::string>& pattern,
                              const std::vector<std::string>& path) {
  if (pattern.size() != path.size()) return std::nullopt;
  Fields parameters;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (!IsParameter(pattern[i])) {
      if (pattern[i] != path[i]) return std::nullopt;
    } else if (path[i].empty()) {
      return std::nullopt;
    } else {
      parameters.emplace(pattern[i].substr(1, pattern[i].size() - 2), path[i]);
    }
  }
  return parameters;
}

}  // namespace

void Router::Add(std::string method, std::string pattern, Handler handler, Takes takes) {
  std::vector<std::string> segments = PathSegments(pattern).value_or(std::vector<std::string>());
  routes_.push_back({std::move(method), std::move(pattern), std::move(segments), std::move(handler),
                     std::move(takes)});
}

Router::Match Router::Find(std::string_view method, std::string_view encoded_path) const {
  Match match;
  const auto path = PathSegments(encoded_path);
  if (!path) return match;
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  std::set<std::string> methods;
  for (const Route& route : routes_) {
    auto parameters = Matched(route.segments, *path);
    if (!parameters) continue;
    methods.insert(route.method);
    if (route.method == "GET") methods.insert("HEAD");
    if (match.pattern.empty()) match.pattern = route.pattern;
    if (match.handler == nullptr && route.method == wanted) {
      match.handler = &route.handler;
      match.takes = &route.takes;
      match.pattern = route.pattern;
      match.path = *std::move(parameters);
    }
  }
  match.allow = fmt::format("{}", fmt::join(methods, ", "));
  return match;
}

std::vector<std::string> Router::Routes() const {
  std::vector<std::string> routes;
  for (const Route& route : routes_) routes.push_back(route.method + " " + route.pattern);
  std::sort(routes.begin(), routes.end());
  return routes;
}

}  // namespace perseus::http
