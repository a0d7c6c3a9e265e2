// A PostgreSQL server for one test. Its data and its socket are in a temporary directory. So tests
// run side by side, and the machine's own server is not changed. The server ends when the object is
// destroyed. It also ends when the test process ends for any reason.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace perseus {

class PostgresServer {
 public:
  // The reason why this machine cannot run a PostgreSQL server. Empty if it can.
  static std::string WhyNot();

  // A simulated other machine (tests/control_plane/network.h). The server runs on this machine and
  // listens at its address.
  struct Machine {
    std::vector<std::string> in_front;  // The prefix that makes a command run there.
    std::string address;
  };
  // Starts the server. This takes about 2 s. Throws std::runtime_error.
  explicit PostgresServer(std::optional<Machine> machine = {});
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  void Start();  // Returns when the server answers.
  // Stops the server as in a crash: connections break, and the next start runs a recovery.
  void Stop();
  void Restart();

  // The address of the database `postgres`, which always exists.
  std::string address() const { return AddressOf("postgres"); }
  // Makes a new database and returns its address.
  std::string MakeDatabase();

 private:
  std::string AddressOf(const std::string& database) const;
  // The command that runs this program of PostgreSQL, as a user that PostgreSQL accepts.
  std::vector<std::string> CommandOf(const std::string& program,
                                     const std::vector<std::string>& arguments) const;

  TemporaryDirectory directory_;
  const std::optional<Machine> machine_;
  std::string programs_;  // The directory of PostgreSQL's programs.
  pid_t server_ = 0;      // 0: the server is stopped.
  int databases_ = 0;
};

}  // namespace perseus
