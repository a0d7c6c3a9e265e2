// What an endpoint answers with: a value, or a problem for the client.
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

template <typename T>
using Answer = tl::expected<T, http::Problem>;

inline tl::unexpected<http::Problem> Refuse(int status, std::string title, std::string detail,
                                            std::string remedy = "", std::string pointer = "") {
  return tl::unexpected<http::Problem>(http::Problem{.status = status,
                                                     .title = std::move(title),
                                                     .detail = std::move(detail),
                                                     .pointer = std::move(pointer),
                                                     .remedy = std::move(remedy)});
}

// kInput: the client's mistake (400). kUnreachable: nothing can meet what it asks (422). kSystem:
// the database is away (503), and nothing was written. What our messages say at their end, in
// parentheses, is the remedy.
http::Problem ProblemOf(const Error& error, std::string pointer = "");
template <typename T>
tl::unexpected<http::Problem> Refuse(const Result<T>& failed, std::string pointer = "") {
  return tl::unexpected<http::Problem>(ProblemOf(failed.error(), std::move(pointer)));
}

// Where a body is wrong.
http::Problem ProblemOf(const json_file::Failure& failure);

// Of a body: with as many members of objects, the costliest of values, it takes 70 MB.
inline constexpr std::size_t kMostValues = 400'000;

// What `read` makes of a body, or where it is wrong. `read` throws json_file::Failure.
template <typename Reader>
auto ReadBody(std::string_view body, int deepest, Reader read)
    -> Answer<decltype(read(std::declval<const json_file::Node&>()))> {
  try {
    const nlohmann::json root = json_file::Parse(body, {.deepest = deepest, .values = kMostValues});
    return read(json_file::Node{root, ""});
  } catch (const json_file::Failure& failure) {
    return tl::unexpected(ProblemOf(failure));
  }
}

// With a status of 200 or 201.
http::Response JsonResponse(const nlohmann::ordered_json& value, int status = 200);

}  // namespace perseus::server
