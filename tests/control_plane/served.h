// One `perseus serve`, or three replicas that share one PostgreSQL database.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/control_plane/network.h"
#include "tests/support/postgres_server.h"
#include "tests/support/training_fixture.h"

namespace perseus {

class Served : public TrainingFixture {
 protected:
  // Starts one server with a SQLite database, on a free port.
  void StartServer();

  static constexpr int kReplicas = 3;
  // Starts the replicas. They listen at `addresses`. Port 0 ("127.0.0.1:0") is any free port.
  // `in_front` has a command prefix for each replica that runs it on another machine ("ip netns
  // exec NAME").
  void StartReplicas(const std::vector<std::string>& addresses,
                     const std::vector<std::string>& in_front = {},
                     const std::optional<PostgresServer::Machine>& database = {});
  void StartReplica(int replica);
  // Starts each replica on its own machine of that network.
  void StartReplicasIn(const Network& network);
  const std::string& url(int replica) const { return urls_.at(static_cast<std::size_t>(replica)); }
  int ReplicaAt(const std::string& url) const;  // -1: no replica has this URL.
  pid_t pid(int replica) const { return pids_.at(static_cast<std::size_t>(replica)); }
  PostgresServer& postgres() { return *postgres_; }
  // The replica to which the `perseus node` with this log is connected. -1: at the moment, no
  // replica.
  int ReplicaOfLog(const std::string& node_log) const;

  int servers() const { return static_cast<int>(urls_.size()); }
  // All URLs, separated by commas. The first URL is that of replica `first`, and the others follow
  // in turn.
  std::string urls(int first = 0) const;

 private:
  std::unique_ptr<PostgresServer> postgres_;
  std::string database_;
  std::vector<std::string> addresses_;
  std::vector<std::string> in_front_;
  std::vector<std::string> urls_;
  std::vector<pid_t> pids_;
};

}  // namespace perseus
