// The result of an endpoint: a value, or a problem for the client.
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "perseus/base/json_file.h"
#include "perseus/base/result.h"
#include "perseus/cluster/http/message.h"

namespace perseus::server {

// The remedy for a problem without a more specific remedy.
inline constexpr const char* kSeeApi = "see GET /openapi.yaml for what the server accepts";

// Returns the problem for an error, with the status: kInput 400, kUnreachable 422, kSystem 503 (the
// database is unavailable, and nothing was written).
http::Problem ProblemOf(const Error& error);
// The same for an error that json_file throws while it reads a body.
http::Problem ProblemOfBody(Error error);

// The error of an Answer. The conversions are implicit, so that an endpoint can pass on the error
// of a Result.
struct Refusal : http::Problem {
  // NOLINTBEGIN(google-explicit-constructor)
  Refusal(http::Problem problem) : http::Problem(std::move(problem)) {}
  Refusal(const Error& error) : http::Problem(ProblemOf(error)) {}
  // NOLINTEND(google-explicit-constructor)
};
template <typename T>
using Answer = Result<T, Refusal>;

inline tl::unexpected<http::Problem> Refuse(int status, std::string title, std::string detail,
                                            std::string remedy = "", std::string pointer = "") {
  return tl::unexpected<http::Problem>(http::Problem{.status = status,
                                                     .title = std::move(title),
                                                     .detail = std::move(detail),
                                                     .pointer = std::move(pointer),
                                                     .remedy = std::move(remedy)});
}

// Returns the problem of `failed`. `pointer` is the wrong place in the request.
template <typename T>
tl::unexpected<http::Problem> Refuse(const Result<T>& failed, std::string pointer) {
  Error error = failed.error();
  error.where.pointer = std::move(pointer);
  return tl::unexpected<http::Problem>(ProblemOf(error));
}

// The largest number of values in a body. Objects with this many members need 70 MB of memory.
inline constexpr std::size_t kMaxBodyValues = 400'000;

// Reads a body with `read`, which throws an Error. Returns a problem with the place of the error.
template <typename Reader>
auto ReadBody(std::string_view body, int deepest, Reader read)
    -> Answer<decltype(read(std::declval<const json_file::Node&>()))> {
  try {
    const nlohmann::json root =
        json_file::Parse(body, {.deepest = deepest, .values = kMaxBodyValues, .remedy = kSeeApi});
    return read(json_file::Node{root, ""});
  } catch (Error& error) {
    return tl::unexpected<http::Problem>(ProblemOfBody(std::move(error)));
  }
}

http::Response JsonResponse(const nlohmann::ordered_json& value, int status = 200);

}  // namespace perseus::server
