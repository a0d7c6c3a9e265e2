// The nodes of one job. All are attached to the server, each with an event stream.
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
// The quantile of a sorted list.
double Quantile(const std::vector<double>& sorted, double part);

struct JobShape {
  int pipelines = 2;
  int stages = 8;
  int microbatches = 96;
};
// The body of POST /v1/jobs: 1F1B, tensor parallel over the eight GPUs of a node.
std::string JobBody(const std::string& key, const JobShape& shape);
// A profile with `clocks` clocks for each kind and stage.
std::string SyntheticCsv(int stages, int clocks, std::uint64_t seed);
// The value of `key` in a response.
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
    std::string assignment;     // Its text.
    Clock::time_point came_at;  // When it arrived.
    bool has_ended = false;     // Whether the server has said that the job has ended.
  };

  // Registers the job and uploads its profile. Returns its id.
  asio::awaitable<std::string> Register(const std::string& key, int clocks, std::uint64_t seed);
  asio::awaitable<void> Attach();
  void OpenStreams();
  void CloseStreams();
  asio::awaitable<void> UntilStreamsEnded();  // Required before the destructor.
  // Waits until every node has an assignment of that version or a later one.
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
