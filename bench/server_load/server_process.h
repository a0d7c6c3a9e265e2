// The measured server: a process of `perseus serve` with its own SQLite file, and its use of
// resources.
#pragma once

#include <sys/types.h>

#include <boost/asio/ip/tcp.hpp>
#include <filesystem>
#include <string>

namespace perseus::load {

// The present use of resources, from /proc.
struct Usage {
  double rss_mb = 0;
  double peak_rss_mb = 0;
  double cpu_s = 0;
  int threads = 0;
  int descriptors = 0;
  double database_mb = 0;  // With the write-ahead log.
};

class ServerProcess {
 public:
  // Starts `program` serve in a new directory, on a free port, and waits until it listens.
  // `keep_ended` is the value of --keep-ended. `database`: its address, or empty for SQLite in the
  // new directory. Throws if the server does not start.
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

// "rss 120 MB (peak 130), 3.1 s of CPU, 14 threads, 5012 descriptors, database 3.0 MB"
std::string Describe(const Usage& usage);
// The load average of the machine over the last minute. Other programs may run on it.
double LoadAverage();

}  // namespace perseus::load
