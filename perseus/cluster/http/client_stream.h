// The requests that a client sends on the connection of its event stream (message.h,
// kEventsAndRequests), and their answers. One thread reads the connection, another one sends.
//
// Thread safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/cluster/http/client_connection.h"
#include "perseus/cluster/http/message.h"
#include "perseus/cluster/http/parser.h"
#include "perseus/cluster/http/server_url.h"

namespace perseus::http {

class ClientStream {
 public:
  explicit ClientStream(std::size_t longest_body) : longest_body_(longest_body) {}

  // For the thread that reads:

  // From now on, the connection takes requests. It has to live until End.
  void Begin(ClientConnection& connection, const ServerUrl& server);
  // A request that waits for its answer fails.
  void End();
  // Takes received bytes. Keeps answers, and returns the bytes of events. Fails (kSystem) if the
  // bytes are neither.
  Result<std::string> Put(std::string_view bytes);
  // A request was not written, or had no answer in time. End the connection: the next answer would
  // belong to this request.
  bool IsBroken() const;

  // For another thread, one request at a time:

  // `text_of` returns the whole request for a server. Nothing if no connection takes requests, and
  // nothing was sent.
  using TextOf = std::function<Result<std::string>(const ServerUrl&)>;
  std::optional<Result<Response>> Send(const TextOf& text_of, std::chrono::milliseconds timeout);

 private:
  // Returns how many of the bytes belong to the current part.
  std::size_t TakeEvent(std::string_view bytes);
  Result<std::size_t> TakeAnswer(std::string_view bytes);

  const std::size_t longest_body_;
  // Of the thread that reads:
  std::string rest_;                        // Received bytes that cannot be taken without more.
  bool is_event_ = false;                   // Within an event.
  char last_ = '\0';                        // Of the event. An empty line ends it.
  std::unique_ptr<ResponseParser> answer_;  // Set within an answer.

  mutable std::mutex mutex_;  // Guards the members below.
  std::condition_variable changed_;
  ClientConnection* connection_ = nullptr;
  ServerUrl server_;
  bool is_broken_ = false;
  bool is_waiting_ = false;
  std::optional<Response> received_;
};

}  // namespace perseus::http
