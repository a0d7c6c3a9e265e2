// A `perseus serve`, or three over one PostgreSQL, that tests ask and do things to.
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
  // One, of a SQLite file, on a free port.
  void StartServer();

  static constexpr int kReplicas = 3;
  // They listen at `addresses`, each ("127.0.0.1:0") a free port's; `in_front` (of each) runs it
  // elsewhere ("ip netns exec NAME").
  void StartReplicas(const std::vector<std::string>& addresses,
                     const std::vector<std::string>& in_front = {},
                     const std::optional<PostgresServer::Machine>& database = {});
  void StartReplica(int replica);
  // Each on a machine of that network.
  void StartReplicasIn(const Network& network);
  const std::string& url(int replica) const { return urls_.at(static_cast<std::size_t>(replica)); }
  int ReplicaAt(const std::string& url) const;  // -1: none of these.
  pid_t pid(int replica) const { return pids_.at(static_cast<std::size_t>(replica)); }
  PostgresServer& postgres() { return *postgres_; }
  // The replica that a `perseus node` with this log is connected to; -1: to none just now.
  int ReplicaHeardBy(const std::string& node_log) const;

  int servers() const { return static_cast<int>(urls_.size()); }
  // With commas in between, from a replica on.
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
