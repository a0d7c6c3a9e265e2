// The nodes of one job. All nodes are attached to the server, and each node has an event stream.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bench/server_load/connection.h"

namespace perseus::load {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin);
// Returns the quantile `part` of a sorted list.
double Quantile(const std::vector<double>& sorted, double part);

struct JobShape {
  int pipelines = 2;
  int stages = 8;
  int microbatches = 96;
};
// Returns the body of POST /v1/jobs. The job has the schedule 1F1B, and is tensor parallel over the
// eight GPUs of a node.
std::string JobBody(const std::string& key, const JobShape& shape);
// Returns a profile with `clocks` clocks for each kind and stage.
std::string SyntheticCsv(int stages, int clocks, std::uint64_t seed);
// Returns the value of `key` in a response.
std::string FieldOf(const std::string& json, const std::string& key);

class Fleet {
 public:
  Fleet(asio::io_context& loop, const asio::ip::tcp::endpoint& server, JobShape shape,
        const std::string& name = "node");

  struct Node {
    std::string name;
    int pipeline = 0;
    int rank = 0;
    std::unique_ptr<Connection> stream;
    std::int64_t version = 0;   // The version of the newest assignment.
    std::string assignment;     // The text of the newest assignment.
    Clock::time_point came_at;  // When the newest assignment arrived.
    bool has_ended = false;     // Whether the server has said that the job has ended.
  };

  // Registers the job and uploads its profile. Returns the id of the job.
  asio::awaitable<std::string> Register(const std::string& key, int clocks, std::uint64_t seed);
  asio::awaitable<void> Attach();
  void OpenStreams();
  void CloseStreams();
  asio::awaitable<void> UntilStreamsEnded();  // Must end before the destructor is called.
  // Waits until every node has an assignment of this version or a later version.
  asio::awaitable<void> UntilAllHave(std::int64_t version);
  // Waits until the job has an assignment. Returns its version.
  asio::awaitable<std::int64_t> UntilAssigned();

  const std::string& job() const { return job_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  std::int64_t events() const { return events_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void Heard(Node& node, std::string event);

  asio::io_context& loop_;
  asio::ip::tcp::endpoint server_;
  JobShape shape_;
  std::string job_;
  std::vector<Node> nodes_;
  std::int64_t wanted_ = 0;
  std::size_t have_ = 0;  // The number of nodes that have the wanted version.
  asio::steady_timer all_have_;
  int open_streams_ = 0;
  std::int64_t events_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace perseus::load
