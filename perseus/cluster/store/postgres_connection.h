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

// Where a server is.
struct PostgresAddress {
  std::string url;   // As given; may hold a password, so nothing shows it.
  std::string name;  // "postgresql://host:port/database", for messages.
};

// Refuses (kInput) what libpq cannot read, and what it reads otherwise than was meant.
Result<PostgresAddress> ParsePostgresAddress(const std::string& url);

class PostgresConnection {
 public:
  static Result<PostgresConnection> Open(const PostgresAddress& address);

  // Prepares the statement, if it was not yet, and runs it.
  Result<Rows> Run(std::string_view sql, Parameters parameters);

  // Whether it is gone, as a Run() found out.
  bool IsLost() const { return is_lost_; }
  // Whether the last Run() failed because another transaction was in the way.
  bool WasInConflict() const;
  // Whether it is outside a transaction and good for another.
  bool IsIdle() const;

  // For whoever waits for notifications.
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
  std::map<std::string, std::string, std::less<>> statements_;  // Names by text; there are few.
  std::string state_;  // SQLSTATE of the last Run(), if it failed.
  bool is_lost_ = false;
};

}  // namespace perseus::store
