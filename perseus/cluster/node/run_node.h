// Runs the node daemon: one thread reads events from the server, the other does everything else.
#pragma once

#include <spdlog/logger.h>

#include <functional>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/cluster/http/client.h"
#include "perseus/cluster/node/node.h"

namespace perseus::node {

// Runs until `should_end` is true. Assignments stay as they are. Fails (kInput) if the address of
// the server or a file of `server` is not valid; does not fail if the server is away.
Result<void> RunNode(NodeOptions options, const http::ClientOptions& server,
                     const std::function<bool()>& should_end, Clock& clock, spdlog::logger& log);

}  // namespace perseus::node
