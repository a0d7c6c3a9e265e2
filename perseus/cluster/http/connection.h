// What happens on one connection: requests in, answers out, one after another.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>

#include "perseus/cluster/http/server_state.h"

namespace perseus::http {

// Until it is closed, or has become an event stream. Never throws.
asio::awaitable<void> Serve(std::shared_ptr<Connection> connection);

// Says 503 and closes.
asio::awaitable<void> Refuse(std::shared_ptr<Connection> connection);

}  // namespace perseus::http
