// Parses the target of a request: "/v1/jobs/a%20b?limit=5".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/http/message.h"

namespace perseus::http {

// Decodes "%XX". Returns nullopt for a bad escape, for text that is not UTF-8 (databases refuse
// such text), and for NUL bytes.
std::optional<std::string> PercentDecoded(std::string_view text);

struct Target {
  std::string encoded_path;  // Such as "/v1/jobs/a%20b".
  std::string path;          // The decoded path. It has no control characters.
  Fields query;
  std::optional<std::string> repeated;  // A name that occurs twice in the query.
};
// Also accepts "http://host/path" in place of "/path". An error message completes a sentence that
// begins with "The target of the request ".
Result<Target> ParseTarget(std::string_view target);

// Splits "/v1/jobs/a%2Fb" into "v1", "jobs", "a/b". An escaped slash is an ordinary character.
// Returns nullopt if a segment cannot be decoded.
std::optional<std::vector<std::string>> PathSegments(std::string_view encoded_path);

}  // namespace perseus::http
