// Hears what PostgreSQL's NOTIFY says, on a connection and a thread of its own.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "perseus/cluster/store/postgres_connection.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {

// The channel that all replicas listen on.
inline constexpr std::string_view kNoticeChannel = "perseus";

// "assignment j-…", "node n7", "planning", "tokens".
std::string NoticeText(const Notice& notice);
// What is not understood, a newer program's, is kLookAgain.
Notice ParseNotice(std::string_view text);

class PostgresListener {
 public:
  // `connection` comes from ConnectListener. When it is lost, the listener connects again, and says
  // kLookAgain for what it may have missed.
  PostgresListener(PostgresAddress address, PostgresConnection connection,
                   std::function<void(const Notice&)> heard);
  // Waits for the notice that is being heard, and for a connection that is being made.
  ~PostgresListener();
  PostgresListener(const PostgresListener&) = delete;
  PostgresListener& operator=(const PostgresListener&) = delete;

 private:
  void Run(PostgresConnection connection);
  // Until the connection is lost or the listener is to stop.
  void HearAll(PostgresConnection& connection);
  // Waits until `socket` (if not -1) has something, for `timeout_ms` at most (-1: for ever).
  // Whether to go on.
  bool Wait(int socket, int timeout_ms);

  const PostgresAddress address_;
  const std::function<void(const Notice&)> heard_;
  const int stop_;  // An eventfd, written to once.
  std::thread thread_;
};

// A connection that listens.
Result<PostgresConnection> ConnectListener(const PostgresAddress& address);

}  // namespace perseus::store
