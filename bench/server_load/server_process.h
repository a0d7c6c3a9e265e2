// Runs the measured server, a process of `perseus serve` with its own SQLite file. Also measures
// the process's use of resources.
#pragma once

#include <sys/types.h>

#include <boost/asio/ip/tcp.hpp>
#include <filesystem>
#include <string>

namespace perseus::load {

// The current use of resources, from /proc.
struct Usage {
  double rss_mb = 0;
  double peak_rss_mb = 0;
  double cpu_s = 0;
  int threads = 0;
  int descriptors = 0;
  double database_mb = 0;  // The size of the database, with the write-ahead log.
};

class ServerProcess {
 public:
  // Starts the server (`program` serve) in a new directory, on a free port. Waits until the server
  // listens. `keep_ended` is the value of --keep-ended. `database` is the address of the database,
  // or empty for SQLite in the new directory. Throws if the server does not start.
  ServerProcess(const std::string& program, const std::string& keep_ended, std::string database);
  ~ServerProcess();  // Ends the server and removes its directory.
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const boost::asio::ip::tcp::endpoint& endpoint() const { return endpoint_; }
  pid_t pid() const { return pid_; }
  Usage Measure() const;

 private:
  std::filesystem::path directory_;
  pid_t pid_ = -1;
  boost::asio::ip::tcp::endpoint endpoint_;
};

// Formats the usage: "rss 120 MB (peak 130), 3.1 s of CPU, 14 threads, 5012 descriptors, database
// 3.0 MB".
std::string Describe(const Usage& usage);
// Returns the load average of the machine over the last minute. It includes other programs on the
// machine.
double LoadAverage();

}  // namespace perseus::load
