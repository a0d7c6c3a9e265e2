// Receives PostgreSQL notifications on its own connection and thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "perseus/base/file_descriptor.h"
#include "perseus/cluster/store/postgres_connection.h"
#include "perseus/cluster/store/records.h"

namespace perseus::store {

// The channel that all replicas listen on.
inline constexpr std::string_view kNoticeChannel = "perseus";

// Formats a notice: "assignment j-…", "node n7", "planning", "tokens".
std::string NoticeText(const Notice& notice);
// Parses a notice. If the text is unknown (from a newer program), returns kReadAgain.
Notice ParseNotice(std::string_view text);

class PostgresListener {
 public:
  // `connection` comes from ConnectListener. If the connection is lost, the listener connects
  // again. Then it passes on kReadAgain, because notices may have been lost.
  PostgresListener(PostgresAddress address, PostgresConnection connection,
                   std::function<void(const Notice&)> receive);
  // Waits for the running call of `receive` and for a running connection attempt.
  ~PostgresListener();
  PostgresListener(const PostgresListener&) = delete;
  PostgresListener& operator=(const PostgresListener&) = delete;

 private:
  void Run(PostgresConnection connection);
  // Passes on notices until the connection is lost or the listener stops.
  void ReceiveAll(PostgresConnection& connection);
  // Waits until `socket` (unless it is -1) is readable, at most `timeout_ms` (-1: without a limit).
  // Returns false if the listener has to stop.
  bool Wait(int socket, int timeout_ms);

  const PostgresAddress address_;
  const std::function<void(const Notice&)> receive_;
  const FileDescriptor stop_;  // An eventfd, written to once.
  std::thread thread_;
};

// Opens a connection that listens on kNoticeChannel.
Result<PostgresConnection> ConnectListener(const PostgresAddress& address);

}  // namespace perseus::store
