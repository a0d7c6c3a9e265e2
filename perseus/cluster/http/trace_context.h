// The trace id of a request, which identifies it in the log of the server and in the audit trail. A
// caller may choose the id (W3C Trace Context).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "perseus/cluster/http/message.h"

namespace perseus::http {

// The trace id in a `traceparent`. Nothing if the text is not exactly one.
std::optional<std::string> ParseTraceParent(std::string_view text);

// Adds the trace id to a response: the field `traceresponse`, and for a problem of 5xx the member
// `trace`. So the request can be found in the server's log.
void AddTrace(Response& response, std::string_view trace);

}  // namespace perseus::http
