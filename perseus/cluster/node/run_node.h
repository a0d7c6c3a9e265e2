// Runs the node daemon: one thread reads events from the server, and another thread does everything
// else.
#pragma once

#include <spdlog/logger.h>

#include <functional>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/cluster/http/client.h"
#include "perseus/cluster/node/node.h"

namespace perseus::node {

// Runs until `should_end` returns true. Assignments stay in the job directories. Fails (kInput) if
// the address of the server or a file that `server` names is not valid. Does not fail if the server
// is unreachable.
Result<void> RunNode(NodeOptions options, const http::ClientOptions& server,
                     const std::function<bool()>& should_end, Clock& clock, spdlog::logger& log);

}  // namespace perseus::node
