// An HTTP request and its answer, as the rest of the program sees them: no sockets, no Beast.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perseus::http {

// Names of header fields are lower case.
using Fields = std::map<std::string, std::string, std::less<>>;

struct Request {
  std::string method;                                     // "GET"
  std::string path;                                       // "/v1/jobs/j-1", percent-decoded.
  std::map<std::string, std::string, std::less<>> query;  // Decoded.
  Fields fields;
  std::string body;
  std::string peer;         // "127.0.0.1"
  std::string certificate;  // Common name of the client's, if it showed one that is trusted.
  std::string trace;        // 32 hexadecimal digits: of `traceparent`, or made here.

  std::string_view Field(std::string_view name) const;  // Empty if absent.
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> fields = {};
};

// RFC 9457. `pointer` names the part of the request that is wrong (RFC 6901: "/schedule/kind"; of a
// query: "?limit"), `remedy` what to do.
struct Problem {
  int status = 400;
  std::string title = {};   // The same for each kind of problem: "This is not a job".
  std::string detail = {};  // Of this one.
  std::string pointer = {};
  std::string remedy = {};
};
inline constexpr const char* kProblemType = "application/problem+json";
// Of that type: type "about:blank", title, status, detail, and pointer and remedy where there are;
// 401 says how to say who one is.
Response ProblemResponse(const Problem& problem);

// One of an event stream.
struct Event {
  std::string name = {};
  std::string id = {};    // No newlines.
  std::string data = {};  // May have newlines.
};
std::string FormatEvent(const Event& event);

}  // namespace perseus::http
