#include "perseus/cluster/server/identity/answer.h"
#include "perseus/base/json_text.h"

namespace perseus::server {
namespace {

constexpr const char* kRequestPossible = "request a value that is possible";

// Makes a problem. All problems of one kind have the same title.
http::Problem ProblemWith(const Error& error, int status, std::string title, const char* remedy) {
  return {.status = status,
          .title = std::move(title),
          .detail = error.Cause(),
          .pointer = error.where.pointer,
          .remedy = error.remedy.empty() ? remedy : error.remedy};
}

}  // namespace

http::Problem ProblemOf(const Error& error) {
  switch (error.kind) {
    case ErrorKind::kInput:
      return ProblemWith(error, 400, "The request is wrong", kSeeApi);
    case ErrorKind::kUnreachable:
      // The message says which values are possible.
      return ProblemWith(error, 422, "The request is not possible", kRequestPossible);
    case ErrorKind::kFile:
    case ErrorKind::kSystem:
      break;
  }
  return {.status = 503,
          .title = "The server cannot do this now",
          .detail = error.Message(),
          .pointer = "",
          .remedy = "try again in a few seconds; nothing has changed"};
}

http::Problem ProblemOfBody(Error error) {
  error.where.file = "the body";
  return ProblemWith(error, 400, "The request's body is wrong", kSeeApi);
}

http::Response JsonResponse(const nlohmann::ordered_json& value, int status) {
  http::Response response;
  response.status = status;
  response.body = JsonText(value);
  response.body += '\n';
  return response;
}

}  // namespace perseus::server
