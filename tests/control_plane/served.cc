#include "tests/control_plane/served.h"

#include <fmt/format.h>

#include <algorithm>

namespace perseus {

void Served::StartServer() {
  Start("serve --listen 127.0.0.1:0 --database sqlite:perseus.db 2>serve.log");
  urls_ = {"http://" + AwaitAddress("serve.log")};
}

void Served::StartReplicas(const std::vector<std::string>& addresses,
                           const std::vector<std::string>& in_front,
                           const std::optional<PostgresServer::Machine>& database) {
  postgres_ = std::make_unique<PostgresServer>(database);
  database_ = postgres_->MakeDatabase();
  addresses_ = addresses;
  in_front_ = in_front;
  urls_.resize(kReplicas);
  pids_.resize(kReplicas);
  for (int replica = 0; replica < kReplicas; ++replica) StartReplica(replica);
}

void Served::StartReplicasIn(const Network& network) {
  std::vector<std::string> addresses;
  std::vector<std::string> in_front;
  for (int replica = 0; replica < kReplicas; ++replica) {
    addresses.push_back(network.Address(replica) + ":7410");
    in_front.push_back(network.Inside(replica));
  }
  StartReplicas(addresses, in_front);
}

void Served::StartReplica(int replica) {
  const auto index = static_cast<std::size_t>(replica);
  std::string& address = addresses_.at(index);
  const std::string log = fmt::format("serve{}.log", replica);
  const bool is_local = address.starts_with("127.");
  pids_[index] = Start(fmt::format("serve --listen {} --database '{}' --replica r{} {} 2>{}",
                                   address, database_, replica, is_local ? "" : "--insecure", log),
                       in_front_.empty() ? "" : in_front_[index]);
  // A restarted replica uses the same port.
  address = AwaitAddress(log);
  urls_[index] = "http://" + address;
}

std::string Served::urls(int first) const {
  std::vector<std::string> from_first = urls_;
  std::rotate(from_first.begin(), from_first.begin() + first, from_first.end());
  return fmt::format("{}", fmt::join(from_first, ","));
}

int Served::ReplicaAt(const std::string& url) const {
  const auto found = std::ranges::find(urls_, url);
  return found == urls_.end() ? -1 : static_cast<int>(found - urls_.begin());
}

int Served::ReplicaOfLog(const std::string& node_log) const {
  const std::string log = Read(node_log);
  const std::string connected = "connected to ";
  const std::size_t last = log.rfind(connected);
  const std::size_t lost = log.rfind(" lost http");
  if (last == std::string::npos || (lost != std::string::npos && lost > last)) return -1;
  const std::size_t begin = last + connected.size();
  return ReplicaAt(log.substr(begin, log.find('\n', begin) - begin));
}

}  // namespace perseus
