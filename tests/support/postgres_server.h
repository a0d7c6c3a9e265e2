// A PostgreSQL server for one test. Its data and its socket are in a temporary directory, so tests
// run side by side, and the machine's own server stays untouched. The server ends with the object,
// and also with the test process, however that ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace perseus {

class PostgresServer {
 public:
  // Why this machine cannot run one; empty if it can.
  static std::string WhyNot();

  // A simulated other machine (tests/control_plane/network.h). The server runs there and listens at
  // the address.
  struct Machine {
    std::vector<std::string> in_front;  // The prefix that makes a command run there.
    std::string address;
  };
  // Starts the server, which takes about 2 s. Throws std::runtime_error.
  explicit PostgresServer(std::optional<Machine> machine = {});
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  void Start();  // Returns once the server answers.
  // Stops as in a crash: connections break, and the next start runs a recovery.
  void Stop();
  void Restart();

  // The address of the database `postgres`, which always exists.
  std::string address() const { return AddressOf("postgres"); }
  // Makes a new database and returns its address.
  std::string MakeDatabase();

 private:
  std::string AddressOf(const std::string& database) const;
  // The command that runs this program of PostgreSQL as a user that PostgreSQL accepts.
  std::vector<std::string> CommandOf(const std::string& program,
                                     const std::vector<std::string>& arguments) const;

  TemporaryDirectory directory_;
  const std::optional<Machine> machine_;
  std::string programs_;  // The directory of PostgreSQL's programs.
  pid_t server_ = 0;      // 0 while it is stopped.
  int databases_ = 0;
};

}  // namespace perseus
