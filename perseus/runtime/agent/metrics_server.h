// Serves GET /metrics over HTTP, for Prometheus.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "perseus/base/result.h"

namespace perseus::agent {

class MetricsServer {
 public:
  // Listens on `address` ("127.0.0.1:9836", "[::1]:9836"; port 0: any), and answers on the loop's
  // thread with what `metrics` returns. Fails with kInput if `address` is not an address, and with
  // kSystem if it is in use.
  static Result<MetricsServer> Listen(boost::asio::io_context& loop, const std::string& address,
                                      std::function<std::string()> metrics);
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
