#include "perseus/server/answer.h"

namespace perseus {

std::string JsonPointer(std::string_view place) {
  std::string pointer;
  if (!place.empty()) pointer += '/';
  for (const char c : place) {
    if (c == ']') continue;
    if (c == '.' || c == '[') {
      pointer += '/';
    } else {
      pointer += c;
    }
  }
  return pointer;
}

http::Response JsonResponse(const nlohmann::ordered_json& value, int status) {
  http::Response response;
  response.status = status;
  response.body = value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  response.body += '\n';
  return response;
}

}  // namespace perseus
