// A PostgreSQL server of a test's own: in a temporary directory, reached by a socket there, so that
// tests run side by side and nothing of the machine's own server is touched. Gone with the object,
// and with the process however that ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace perseus {

class PostgresServer {
 public:
  // Why there cannot be one here; empty if there can.
  static std::string WhyNot();

  // On another machine, as far as the network goes (tests/control_plane/network.h): the server runs
  // there, and is reached by its address.
  struct Machine {
    std::vector<std::string> in_front;  // Of a command that is to run there.
    std::string address;
  };
  // Starts it. Takes about 2 s. Throws std::runtime_error.
  explicit PostgresServer(std::optional<Machine> machine = {});
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  void Start();  // Once it answers, this returns.
  void Stop();   // As in a crash: connections are cut, and it recovers when it is started.
  void Restart();

  // Of a database that is always there, and of a new one.
  std::string address() const { return AddressOf("postgres"); }
  std::string MakeDatabase();

 private:
  std::string AddressOf(const std::string& database) const;
  // `program` of PostgreSQL's, as the user that it has to run as.
  std::vector<std::string> CommandOf(const std::string& program,
                                     const std::vector<std::string>& arguments) const;

  TemporaryDirectory directory_;
  const std::optional<Machine> machine_;
  std::string programs_;  // Their directory.
  pid_t server_ = 0;      // 0: stopped.
  int databases_ = 0;
};

}  // namespace perseus
