// The nodes of one job, as many as a rack or a building has: attached, with an event stream each.
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
// Of a sorted list.
double Quantile(const std::vector<double>& sorted, double part);

struct JobShape {
  int pipelines = 2;
  int stages = 8;
  int microbatches = 96;
};
// Of POST /v1/jobs: 1F1B, tensor parallel over the eight GPUs of a node.
std::string JobBody(const std::string& key, const JobShape& shape);
// A profile of `clocks` clocks for each computation of each stage.
std::string SyntheticCsv(int stages, int clocks, std::uint64_t seed);
// The value of "id" or of whatever `key` names, of an answer.
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
    std::int64_t version = 0;   // Of the newest assignment,
    std::string assignment;     // as they came,
    Clock::time_point came_at;  // and when.
    bool has_ended = false;     // Says the server of the job.
  };

  // Registers the job, uploads its profile. Its id.
  asio::awaitable<std::string> Register(const std::string& key, int clocks, std::uint64_t seed);
  asio::awaitable<void> Attach();
  void OpenStreams();
  void CloseStreams();
  asio::awaitable<void> UntilStreamsEnded();  // Before the fleet goes.
  // Until every node has assignment of that version or a later one.
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
  std::size_t have_ = 0;  // What is wanted.
  asio::steady_timer all_have_;
  int open_streams_ = 0;
  std::int64_t events_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace perseus::load
