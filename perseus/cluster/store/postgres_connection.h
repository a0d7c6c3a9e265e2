// A connection to a PostgreSQL server.
//
// Not thread safe.
#pragma once

#include <libpq-fe.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "perseus/cluster/store/database.h"

namespace perseus::store {

// The address of a server.
struct PostgresAddress {
  std::string url;   // The URL from the user. It may contain a password, so never show it.
  std::string name;  // For messages: "postgresql://host:port/database".
};

// Fails (kInput) if libpq cannot read the address, or would read it differently than a user
// expects.
Result<PostgresAddress> ParsePostgresAddress(const std::string& url);

class PostgresConnection {
 public:
  static Result<PostgresConnection> Open(const PostgresAddress& address);

  // Prepares the statement on first use, and runs it.
  Result<Rows> Run(std::string_view sql, Parameters parameters);

  // Whether a Run() found that the connection is lost.
  bool IsLost() const { return is_lost_; }
  // Whether the last Run() failed because of a conflict with another transaction.
  bool WasInConflict() const;
  // Whether the connection is outside a transaction and can start another one.
  bool IsIdle() const;

  // The libpq connection, for PostgresListener.
  PGconn* handle() { return connection_.get(); }

 private:
  struct Finish {
    void operator()(PGconn* connection) const { ::PQfinish(connection); }
  };
  struct Clear {
    void operator()(PGresult* result) const { ::PQclear(result); }
  };
  using Answer = std::unique_ptr<PGresult, Clear>;

  PostgresConnection(PGconn* connection, std::string name)
      : connection_(connection), name_(std::move(name)) {}
  Result<std::string> Prepare(std::string_view sql, Parameters parameters);
  tl::unexpected<Error> Failure(const PGresult* result);

  std::unique_ptr<PGconn, Finish> connection_;
  std::string name_;
  // The names of prepared statements by their text. There are few.
  std::map<std::string, std::string, std::less<>> statements_;
  std::string state_;  // SQLSTATE of the last Run(), if it failed.
  bool is_lost_ = false;
};

}  // namespace perseus::store
