// An HTTP request and its response. This header needs neither sockets nor Boost.Beast, so that
// every part of the program can include it.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perseus::http {

// Names of header fields are lower case.
using Fields = std::map<std::string, std::string, std::less<>>;
std::string_view ValueOf(const Fields& fields, std::string_view name);  // Empty if absent.

struct Request {
  std::string method;  // Such as "GET".
  std::string path;    // The percent-decoded path, such as "/v1/jobs/j-1".
  Fields query;        // The decoded fields of the query.
  Fields fields;       // The values of a repeated field are joined by ", ".
  std::set<std::string, std::less<>> repeated = {};  // The names of the repeated fields.
  std::string body;
  std::string peer;  // The client's address, such as "127.0.0.1". For a Unix socket: "unix".
  bool is_over_unix_socket = false;
  // The user of the client, if the server finds it (ServerOptions) and the request has no field
  // Authorization.
  std::optional<uid_t> user = {};
  std::string certificate;    // The common name in the client's trusted certificate, if it has one.
  std::string trace;          // The trace id: 32 hexadecimal digits, from `traceparent` or new.
  std::string identity = {};  // Who sent the request. The handler sets this value, for the log.

  std::string_view Field(std::string_view name) const { return ValueOf(fields, name); }
  std::string_view Query(std::string_view name) const { return ValueOf(query, name); }
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> fields = {};
};

// A problem document (RFC 9457). `pointer` names the wrong part of the request (RFC 6901:
// "/schedule/kind"; for a query field "?limit"). `remedy` says what to do.
struct Problem {
  int status = 400;
  std::string title = {};   // The same for each kind of problem: "This is not a job".
  std::string detail = {};  // What is wrong with this request.
  std::string pointer = {};
  std::string remedy = {};
  int retry_after_s = 0;  // When to retry. 0: a retry does not help, or the time is unknown.
};
inline constexpr const char* kProblemType = "application/problem+json";
// Returns a response with type "about:blank", title, status and detail, and with pointer and remedy
// if they are not empty. A 401 response has a WWW-Authenticate field. If `retry_after_s` is not 0,
// the response has a Retry-After field.
Response ProblemResponse(const Problem& problem);

// An event of an event stream.
struct Event {
  std::string name = {};
  std::string id = {};
  std::string data = {};  // May have newlines.
};

}  // namespace perseus::http
