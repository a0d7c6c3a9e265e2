// Reads the parts of the server's answers that the node needs.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "perseus/cluster/http/message.h"

namespace perseus::node {

// The id of the job in the answer to an attachment. Empty if the answer does not contain it.
std::string JobOfAnswer(std::string_view body);

// The jobs of a report whose ranks on this node the server does not know, from its answer. They may
// have ended. Each name is the one in the report.
std::set<std::string> NotAttachedOfAnswer(std::string_view body);

// Whether the problem is that another process has this node's name.
bool IsNameConflict(const http::Response& problem);
// Whether the problem is that no such job runs.
bool IsUnknownJob(const http::Response& problem);

}  // namespace perseus::node
