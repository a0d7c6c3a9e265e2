// The text of responses.
#pragma once

#include <string>

#include "perseus/cluster/http/message.h"

namespace perseus::http {

enum class Afterwards { kKeep, kClose };

// Returns everything before the body: the status line, the fields and an empty line.
std::string ResponseHead(const Response& response, Afterwards afterwards);
// The same for an event stream, which ends with its connection.
std::string StreamHead();
bool HasBody(int status);

}  // namespace perseus::http
