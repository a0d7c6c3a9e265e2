// The server side of an event stream.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "perseus/cluster/http/server_state.h"

namespace perseus::http {

// The object exists while one of its operations waits, or while another object has a pointer to it.
class EventStream : public Stream, public std::enable_shared_from_this<EventStream> {
 public:
  explicit EventStream(std::shared_ptr<Connection> connection);
  ~EventStream() override;

  void Start();  // Sends the status line and the fields.
  void Send(std::shared_ptr<const std::string> text) override;
  bool IsOpen() const override { return is_open_; }
  void Close() override;
  void OnClose(std::function<void()> closed) override;

 private:
  enum class Reason { kGone, kSlow };

  void SchedulePump();
  void Pump();
  // Writes what can be written now. False if the stream was dropped.
  bool WriteSome();
  void Advance(std::size_t bytes);
  void Watch();
  void Beat();
  void Drop(Reason reason);
  void Finish();
  void NotifyClosed();

  std::shared_ptr<ServerState> state_;
  std::shared_ptr<Connection> connection_;  // Null after the connection was closed.
  asio::steady_timer beat_;
  std::vector<std::shared_ptr<const std::string>> unwritten_;
  std::size_t first_taken_ = 0;  // Bytes of the first text that are already written.
  std::size_t unwritten_bytes_ = 0;
  bool is_pumping_ = false;  // A write is posted, or waits until the socket is writable.
  bool took_some_ = true;    // Whether the client received something since the last heartbeat.
  bool is_open_ = true;
  std::function<void()> closed_;
};

}  // namespace perseus::http
