#include "perseus/runtime/agent/metrics_server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "perseus/base/host_port.h"

namespace perseus::agent {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;

constexpr std::size_t kMostSessions = 128;
constexpr std::size_t kLongestRequest = 8 * 1024;
constexpr std::chrono::seconds kTimeout{10};
// The wait before the next accept() after an error. If no descriptors are left, the pending
// connection would make accept() fail again at once.
constexpr std::chrono::milliseconds kPauseAfterError{200};

// The text of the last answer. If the text is too old, it is built again.
class MetricsText {
 public:
  MetricsText(std::function<std::string()> make, std::shared_ptr<Clock> clock)
      : make_(std::move(make)), clock_(std::move(clock)) {}

  const std::string& Get() {
    const Nanoseconds now = clock_->Now();
    if (!made_at_ || now - *made_at_ >= MetricsServer::kReuse) {
      text_ = make_();
      made_at_ = now;
    }
    return text_;
  }

 private:
  const std::function<std::string()> make_;
  const std::shared_ptr<Clock> clock_;
  std::string text_;
  std::optional<Nanoseconds> made_at_;
};

// One request and its answer. After the answer, the connection is closed.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, std::shared_ptr<MetricsText> metrics)
      : stream_(std::move(socket)), metrics_(std::move(metrics)) {
    parser_.body_limit(0);
    parser_.header_limit(kLongestRequest);
  }

  void Close() { stream_.close(); }

  void Run() {
    stream_.expires_after(kTimeout);
    http::async_read(stream_, buffer_, parser_,
                     [self = shared_from_this()](beast::error_code error, std::size_t) {
                       if (!error) self->Answer();
                     });
  }

 private:
  void Answer() {
    const auto& request = parser_.get();
    response_.version(request.version());
    response_.keep_alive(false);
    response_.set(http::field::content_type, "text/plain; charset=utf-8");
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      response_.result(http::status::method_not_allowed);
      response_.set(http::field::allow, "GET, HEAD");
      response_.body() = "only GET\n";
    } else if (request.target() != "/metrics") {
      response_.result(http::status::not_found);
      response_.body() = "see /metrics\n";
    } else {
      response_.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
      response_.body() = metrics_->Get();
    }
    response_.prepare_payload();
    if (request.method() == http::verb::head) response_.body().clear();
    stream_.expires_after(kTimeout);
    http::async_write(stream_, response_,
                      [self = shared_from_this()](beast::error_code, std::size_t) {
                        beast::error_code ignored;
                        self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
                      });
  }

  beast::tcp_stream stream_;
  const std::shared_ptr<MetricsText> metrics_;
  beast::flat_buffer buffer_{kLongestRequest};
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
};

Result<tcp::endpoint> ParseAddress(const std::string& address) {
  const auto at = ParseHostPort(address);
  boost::system::error_code error;
  const auto ip = boost::asio::ip::make_address(at ? at->host : "", error);
  if (!at || error) {
    return Fail(
        "{} is not an address to serve metrics on (expected IP:PORT, such as 127.0.0.1:9836)",
        address);
  }
  return tcp::endpoint(ip, at->port);
}

}  // namespace

class MetricsServer::Listener : public std::enable_shared_from_this<Listener> {
 public:
  Listener(boost::asio::io_context& loop, std::shared_ptr<MetricsText> metrics)
      : acceptor_(loop), pause_(loop), metrics_(std::move(metrics)) {}

  boost::system::error_code Open(const tcp::endpoint& endpoint) {
    boost::system::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    return error;
  }

  void Accept() {
    acceptor_.async_accept(
        [self = shared_from_this()](boost::system::error_code error, tcp::socket socket) {
          if (error == boost::asio::error::operation_aborted) return;
          if (error) return self->AcceptLater();
          self->Serve(std::move(socket));
          self->Accept();
        });
  }

  void Close() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
  }
  int port() const { return acceptor_.local_endpoint().port(); }

 private:
  void AcceptLater() {
    pause_.expires_after(kPauseAfterError);
    pause_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error && self->acceptor_.is_open()) self->Accept();
    });
  }

  // If there are too many connections, the oldest connection is closed. Prometheus sends its
  // request at once, so its connection ends before it becomes the oldest. A silent connection
  // becomes the oldest.
  void Serve(tcp::socket socket) {
    std::erase_if(sessions_, [](const auto& session) { return session.expired(); });
    if (sessions_.size() >= kMostSessions) {
      if (const auto oldest = sessions_.front().lock()) oldest->Close();
      sessions_.pop_front();
    }
    const auto session = std::make_shared<Session>(std::move(socket), metrics_);
    sessions_.push_back(session);
    session->Run();
  }

  tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  const std::shared_ptr<MetricsText> metrics_;
  std::deque<std::weak_ptr<Session>> sessions_;  // The oldest first. A session ends by itself.
};

Result<MetricsServer> MetricsServer::Listen(boost::asio::io_context& loop,
                                            const std::string& address,
                                            std::function<std::string()> metrics,
                                            std::shared_ptr<Clock> clock) {
  PERSEUS_ASSIGN_OR_RETURN(const auto endpoint, ParseAddress(address));
  auto listener = std::make_shared<Listener>(
      loop, std::make_shared<MetricsText>(std::move(metrics), std::move(clock)));
  if (const auto error = listener->Open(endpoint)) {
    return FailAs(ErrorKind::kSystem, "cannot serve metrics on {}: {} (choose another address)",
                  address, error.message());
  }
  listener->Accept();
  return MetricsServer(std::move(listener));
}

MetricsServer::MetricsServer(std::shared_ptr<Listener> listener) : listener_(std::move(listener)) {}
MetricsServer::MetricsServer(MetricsServer&&) noexcept = default;
MetricsServer& MetricsServer::operator=(MetricsServer&&) noexcept = default;
MetricsServer::~MetricsServer() {
  if (listener_) listener_->Close();
}
int MetricsServer::port() const { return listener_->port(); }

}  // namespace perseus::agent
