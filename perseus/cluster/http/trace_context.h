// Trace ids, which identify a request across several programs (W3C Trace Context).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/random.h"
#include "perseus/cluster/http/message.h"

namespace perseus::http {

// The trace id (32 hexadecimal digits) of a `traceparent`. Nothing if the text is not exactly one.
std::optional<std::string> TraceOf(std::string_view traceparent);

// Makes new trace ids. They are unique, but not secret.
class TraceIds {
 public:
  explicit TraceIds(std::uint64_t seed) : random_{seed} {}
  std::string Next();

 private:
  SplitMix64 random_;
};

// A `traceparent` or `traceresponse` of this trace, with a new span.
std::string TraceField(std::string_view trace, TraceIds& ids);

// Adds the trace to a response: the field `traceresponse`, and for a problem of 5xx the member
// `trace`. So the request can be found in the server's log.
void AddTrace(Response& response, std::string_view trace, TraceIds& ids);

}  // namespace perseus::http
