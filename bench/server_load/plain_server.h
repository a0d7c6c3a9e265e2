// The baseline for measurements of the server. One thread writes the same bytes over the same
// number of connections, and does nothing else.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace perseus::load {

// Answers every request with `answer`. A GET request opens a stream. Broadcast writes to all
// streams.
class PlainServer {
 public:
  explicit PlainServer(std::string answer);
  ~PlainServer();
  PlainServer(const PlainServer&) = delete;
  PlainServer& operator=(const PlainServer&) = delete;

  boost::asio::ip::tcp::endpoint endpoint() const { return acceptor_.local_endpoint(); }
  void Broadcast(std::string event);  // Any thread may call it.

 private:
  boost::asio::awaitable<void> Accept();
  boost::asio::awaitable<void> Serve(std::shared_ptr<boost::asio::ip::tcp::socket> socket);

  const std::string answer_;
  boost::asio::io_context loop_{1};
  boost::asio::ip::tcp::acceptor acceptor_;
  std::vector<std::shared_ptr<boost::asio::ip::tcp::socket>> streams_;
  std::thread thread_;
};

}  // namespace perseus::load
