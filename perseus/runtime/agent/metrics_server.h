// Serves GET /metrics over HTTP, for Prometheus.
//
// The agent's thread builds the text. Building takes a millisecond or two for 16 GPUs, and any
// process on the node may ask. So all answers within kReuse have the same text.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"

namespace perseus::agent {

class MetricsServer {
 public:
  static constexpr Nanoseconds kReuse = 250 * kMillisecond;

  // Listens on `address` ("127.0.0.1:9836", "[::1]:9836"; port 0: any free port). Answers on the
  // loop's thread with the result of `metrics`. Fails with kInput if `address` is not an address,
  // and with kSystem if `address` is in use.
  static Result<MetricsServer> Listen(boost::asio::io_context& loop, const std::string& address,
                                      std::function<std::string()> metrics,
                                      std::shared_ptr<Clock> clock = std::make_shared<RealClock>());
  MetricsServer(MetricsServer&&) noexcept;
  MetricsServer& operator=(MetricsServer&&) noexcept;
  ~MetricsServer();

  int port() const;

 private:
  class Listener;
  explicit MetricsServer(std::shared_ptr<Listener> listener);
  std::shared_ptr<Listener> listener_;
};

}  // namespace perseus::agent
