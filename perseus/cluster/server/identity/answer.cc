#include "perseus/cluster/server/identity/answer.h"
#include "perseus/base/json_text.h"

namespace perseus::server {
namespace {

constexpr const char* kUsualRemedy = "see GET /openapi.yaml for what the server accepts";
constexpr const char* kRequestPossible = "request a value that is possible";
constexpr std::string_view kTheFile = ": the file ";

http::Problem Split(int status, std::string title, std::string message, std::string pointer,
                    const char* usual_remedy = kUsualRemedy) {
  http::Problem problem{.status = status,
                        .title = std::move(title),
                        .detail = std::move(message),
                        .pointer = std::move(pointer),
                        .remedy = usual_remedy};
  std::string& text = problem.detail;
  if (!text.ends_with(')')) return problem;
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(') --depth;
    if (depth > 0) continue;
    // Splits "the price is wrong (correct it)", but not "f(x)".
    if (i < 2 || text[i - 1] != ' ' || i + 2 == text.size()) return problem;
    problem.remedy = text.substr(i + 1, text.size() - i - 2);
    text.resize(i - 1);
    return problem;
  }
  return problem;
}

}  // namespace

http::Problem ProblemOf(const Error& error, std::string pointer) {
  switch (error.kind) {
    case ErrorKind::kInput:
      return Split(400, "The request is wrong", error.message, std::move(pointer));
    case ErrorKind::kUnreachable:
      // The message says which values are possible.
      return Split(422, "The request is not possible", error.message, std::move(pointer),
                   kRequestPossible);
    case ErrorKind::kFile:
    case ErrorKind::kSystem:
      break;
  }
  return {.status = 503,
          .title = "The server cannot do this now",
          .detail = error.message,
          .pointer = "",
          .remedy = "try again in a few seconds; nothing has changed"};
}

http::Problem ProblemOf(const json_file::Failure& failure) {
  std::string_view message = failure.message;
  std::string detail = "the body";
  if (message.starts_with(kTheFile)) {
    detail += ' ';
    message.remove_prefix(kTheFile.size());
  }
  detail += message;
  http::Problem problem =
      Split(400, "The request's body is wrong", std::move(detail), failure.pointer);
  // That document describes files and not bodies.
  if (problem.remedy.starts_with("see docs/formats.md")) problem.remedy = kUsualRemedy;
  return problem;
}

http::Response JsonResponse(const nlohmann::ordered_json& value, int status) {
  http::Response response;
  response.status = status;
  response.body = JsonText(value);
  response.body += '\n';
  return response;
}

}  // namespace perseus::server
