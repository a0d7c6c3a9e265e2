// `perseus node` as it runs: one thread reads the server's events, the other does everything else.
#pragma once

#include <spdlog/logger.h>

#include <functional>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/cluster/http/client.h"
#include "perseus/cluster/node/node.h"

namespace perseus::node {

// Until `should_end` (any thread) says so. Assignment stay as they are. Fails (kInput) for a
// server's address or files that are none; never because the server is away.
Result<void> RunNode(NodeOptions options, const http::ClientOptions& server,
                     const std::function<bool()>& should_end, Clock& clock, spdlog::logger& log);

}  // namespace perseus::node
