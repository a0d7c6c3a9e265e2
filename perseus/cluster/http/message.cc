#include "perseus/cluster/http/message.h"

#include <nlohmann/json.hpp>

namespace perseus::http {
namespace {

std::string WithoutLineBreaks(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return line;
}

}  // namespace

std::string_view Request::Field(std::string_view name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string_view() : found->second;
}

Response ProblemResponse(const Problem& problem) {
  nlohmann::ordered_json document = {{"type", "about:blank"},
                                     {"title", problem.title},
                                     {"status", problem.status},
                                     {"detail", problem.detail}};
  if (!problem.pointer.empty()) document["pointer"] = problem.pointer;
  if (!problem.remedy.empty()) document["remedy"] = problem.remedy;
  Response response;
  response.status = problem.status;
  response.content_type = kProblemType;
  if (problem.status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  if (problem.retry_after_s > 0) {
    response.fields.emplace_back("Retry-After", std::to_string(problem.retry_after_s));
  }
  // Details quote input of clients, which may not be UTF-8.
  response.body =
      document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  return response;
}

std::string FormatEvent(const Event& event) {
  std::string text;
  if (!event.name.empty()) text += "event: " + WithoutLineBreaks(event.name) + "\n";
  if (!event.id.empty()) text += "id: " + WithoutLineBreaks(event.id) + "\n";
  std::string_view rest = event.data;
  while (true) {
    const std::size_t end = rest.find_first_of("\r\n");
    text += "data: ";
    text += rest.substr(0, end);
    text += '\n';
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + (rest.substr(end, 2) == "\r\n" ? 2 : 1));
  }
  return text + "\n";
}

}  // namespace perseus::http
