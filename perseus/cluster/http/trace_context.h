// Which request is which, over several programs: W3C Trace Context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/random.h"
#include "perseus/cluster/http/message.h"

namespace perseus::http {

// The trace's id (32 hexadecimal digits) of a `traceparent`, nothing for what is none to the
// letter.
std::optional<std::string> TraceOf(std::string_view traceparent);

// Ids of traces that begin here: unlike each other, not secret.
class TraceIds {
 public:
  explicit TraceIds(std::uint64_t seed) : random_{seed} {}
  std::string Next();

 private:
  SplitMix64 random_;
};

// A `traceparent` or `traceresponse` of that trace, with a span of its own.
std::string TraceField(std::string_view trace, TraceIds& ids);

// That it can be found in the server's log: its trace in `traceresponse`, and as `trace` in a
// problem of 5xx.
void AddTrace(Response& response, std::string_view trace, TraceIds& ids);

}  // namespace perseus::http
