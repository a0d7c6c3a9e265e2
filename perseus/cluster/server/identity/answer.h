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

// The status of an error: kInput 400, kUnreachable 422, kSystem 503 (the database is unavailable,
// and nothing was written). The remedy is the part in parentheses at the end of the message.
http::Problem ProblemOf(const Error& error, std::string pointer = "");

// The error of an Answer. Implicit, so that an endpoint can pass on the error of a Result.
struct Refusal : http::Problem {
  // NOLINTBEGIN(google-explicit-constructor)
  Refusal(http::Problem problem) : http::Problem(std::move(problem)) {}
  Refusal(const Error& error) : http::Problem(ProblemOf(error)) {}
  // NOLINTEND(google-explicit-constructor)
};
template <typename T>
using Answer = tl::expected<T, Refusal>;

// Passes on the problem of another answer (PERSEUS_ASSIGN_OR_RETURN).
using perseus::Fail;
template <typename T>
tl::unexpected<Refusal> Fail(const Answer<T>& failed) {
  return tl::unexpected<Refusal>(failed.error());
}

inline tl::unexpected<http::Problem> Refuse(int status, std::string title, std::string detail,
                                            std::string remedy = "", std::string pointer = "") {
  return tl::unexpected<http::Problem>(http::Problem{.status = status,
                                                     .title = std::move(title),
                                                     .detail = std::move(detail),
                                                     .pointer = std::move(pointer),
                                                     .remedy = std::move(remedy)});
}

// With the place in the request that is wrong.
template <typename T>
tl::unexpected<http::Problem> Refuse(const Result<T>& failed, std::string pointer) {
  return tl::unexpected<http::Problem>(ProblemOf(failed.error(), std::move(pointer)));
}

// A problem with the place in the body that is wrong.
http::Problem ProblemOf(const json_file::Failure& failure);

// The largest number of values in a body. This many members of objects need 70 MB of memory.
inline constexpr std::size_t kMaxBodyValues = 400'000;

// Reads a body with `read`, which throws json_file::Failure. Returns a problem with the place of
// the failure.
template <typename Reader>
auto ReadBody(std::string_view body, int deepest, Reader read)
    -> Answer<decltype(read(std::declval<const json_file::Node&>()))> {
  try {
    const nlohmann::json root =
        json_file::Parse(body, {.deepest = deepest, .values = kMaxBodyValues});
    return read(json_file::Node{root, ""});
  } catch (const json_file::Failure& failure) {
    return tl::unexpected(ProblemOf(failure));
  }
}

http::Response JsonResponse(const nlohmann::ordered_json& value, int status = 200);

}  // namespace perseus::server
