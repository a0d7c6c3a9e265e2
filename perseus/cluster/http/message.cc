#include "perseus/cluster/http/message.h"
#include "perseus/base/json_text.h"

#include <nlohmann/json.hpp>

namespace perseus::http {
std::string_view ValueOf(const Fields& fields, std::string_view name) {
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
  response.body = JsonText(document) + "\n";
  return response;
}

}  // namespace perseus::http
