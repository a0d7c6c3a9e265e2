// Limits: connections in all and from one address, and requests per second from one address.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace perseus::http {

// The key for limits of one address: an IPv4 address as it is; of an IPv6 address the /64 network,
// because one customer has the whole network.
std::string AddressGroup(const std::string& address);

// Not thread safe.
class ConnectionCounter {
 public:
  struct Most {
    int all = 0;
    int of_one_address = 0;
  };
  explicit ConnectionCounter(Most most);

  // Counts as a connection while it lives. It may outlive the counter.
  using Ticket = std::shared_ptr<void>;
  // Null if there are too many connections.
  Ticket Enter(const std::string& address);
  int count() const;

 private:
  struct Counts;
  class Entry;
  Most most_;
  std::shared_ptr<Counts> counts_;
};

// Token buckets: each address may send `per_second` requests per second, and as many at once after
// a pause. Remembers the 10,000 addresses that sent requests last. Others start with a full bucket.
// Not thread safe.
class RateLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  explicit RateLimiter(double per_second) : per_second_(per_second) {}  // 0: no limit.

  // Takes a token. If the bucket is empty, returns how long the address has to wait.
  std::optional<std::chrono::milliseconds> TimeToWait(const std::string& address,
                                                      Clock::time_point now);
  std::size_t remembered() const { return buckets_.size(); }

 private:
  struct Bucket {
    std::string address;
    double tokens = 0;
    Clock::time_point filled;
  };
  Bucket& Find(const std::string& address, Clock::time_point now);

  double per_second_;
  std::list<Bucket> recent_;  // The newest is first.
  std::unordered_map<std::string, std::list<Bucket>::iterator> buckets_;
};

}  // namespace perseus::http
