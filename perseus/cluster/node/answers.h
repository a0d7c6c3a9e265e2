// What the node reads in the server's answers.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "perseus/cluster/http/message.h"

namespace perseus::node {

// The job's id in the answer to an attachment. Empty if the answer does not name it.
std::string JobOfAnswer(std::string_view body);

// The jobs in the answer to reports of which this node has no ranks, according to the server. They
// may have ended. Each is named as in the report.
std::set<std::string> NotAttachedOfAnswer(std::string_view body);

// Whether a problem says that another process has this node's name.
bool IsOfInstance(const http::Response& problem);
// Whether a problem says that no such job runs.
bool IsOfNoJob(const http::Response& problem);

}  // namespace perseus::node
