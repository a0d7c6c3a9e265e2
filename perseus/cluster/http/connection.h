// Serves one connection: reads requests and writes answers, one after another.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>

#include "perseus/cluster/http/server_state.h"

namespace perseus::http {

// Returns when the connection is closed or has become an event stream. Never throws.
asio::awaitable<void> Serve(std::shared_ptr<Connection> connection);

// Answers 503 and closes the connection.
asio::awaitable<void> Refuse(std::shared_ptr<Connection> connection);

}  // namespace perseus::http
