// Limits the number of connections, in total and from one address, and the requests per second from
// one address.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace perseus::http {

// Returns the key for limits of one address. For IPv4, it is the address. For IPv6, it is the /64
// network, because one customer has the whole network.
std::string AddressGroup(const std::string& address);

// Not thread safe.
class ConnectionCounter {
 public:
  struct Most {
    int all = 0;
    int of_one_address = 0;
  };
  explicit ConnectionCounter(Most most);

  // A connection counts while its ticket exists. A ticket may outlive the counter.
  using Ticket = std::shared_ptr<void>;
  // Returns a ticket for a new connection, or null if there are too many connections.
  Ticket Enter(const std::string& address);
  int count() const;

 private:
  struct Counts;
  Most most_;
  std::shared_ptr<Counts> counts_;
};

// Limits requests with token buckets. Each address (or other key) has a bucket, which receives
// `per_second` tokens per second and holds at most `at_once` tokens. If `at_once` is 0, the bucket
// holds the tokens of one second. The limiter remembers the 20,000 addresses that sent requests
// last. Other addresses start with a full bucket. Not thread safe.
class RateLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  // If `per_second` is 0, there is no limit.
  explicit RateLimiter(double per_second, double at_once = 0);

  // Spends tokens. If the bucket has too few tokens, returns how long the address has to wait. If
  // the bucket is full, one call may spend more than `at_once`.
  std::optional<std::chrono::milliseconds> TimeToWait(const std::string& address,
                                                      Clock::time_point now, double tokens = 1);
  std::size_t remembered() const { return buckets_.size(); }

 private:
  struct Bucket {
    std::string address;
    double tokens = 0;
    Clock::time_point filled;
  };
  Bucket& Find(const std::string& address, Clock::time_point now);

  double per_second_;
  double at_once_;
  std::list<Bucket> recent_;  // The last used address is first.
  std::unordered_map<std::string, std::list<Bucket>::iterator> buckets_;
};

}  // namespace perseus::http
