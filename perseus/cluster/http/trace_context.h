// Trace ids, which identify a request across several programs (W3C Trace Context).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/random.h"
#include "perseus/cluster/http/message.h"

namespace perseus::http {

// What a `traceparent` says.
struct TraceParent {
  std::string trace;        // 32 hexadecimal digits.
  std::string span;         // 16 hexadecimal digits: the span of the caller.
  bool is_sampled = false;  // Whether the caller records its span.
  friend bool operator==(const TraceParent&, const TraceParent&) = default;
};
// Nothing if the text is not exactly one.
std::optional<TraceParent> ParseTraceParent(std::string_view text);
std::string FormatTraceParent(const TraceParent& parent);

// Makes new trace ids. They are unique, but not secret.
class TraceIds {
 public:
  explicit TraceIds(std::uint64_t seed) : random_{seed} {}
  std::string Next();
  std::string NextSpan();

 private:
  SplitMix64 random_;
};

// Adds the trace to a response: the field `traceresponse`, and for a problem of 5xx the member
// `trace`. So the request can be found in the server's log.
void AddTrace(Response& response, std::string_view trace, std::string_view span);

}  // namespace perseus::http
