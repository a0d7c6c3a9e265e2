// Who is let in: connections in all and of one address, and requests a second of one address.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace perseus::http {

// "192.0.2.7" as it is; of an IPv6 address the network that one customer has all of (/64).
std::string AddressGroup(const std::string& address);

// Not thread safe.
class ConnectionCounter {
 public:
  struct Most {
    int all = 0;
    int of_one_address = 0;
  };
  explicit ConnectionCounter(Most most);

  // Counts for as long as it lives, also beyond the counter.
  using Ticket = std::shared_ptr<void>;
  // Null: too many.
  Ticket Enter(const std::string& address);
  int count() const;

 private:
  struct Counts;
  class Entry;
  Most most_;
  std::shared_ptr<Counts> counts_;
};

// Token buckets: each address may ask `per_second` times a second, and as often at once after it
// was quiet. Remembers the 10,000 addresses that asked last; another begins with a full bucket.
// Not thread safe.
class RateLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  explicit RateLimiter(double per_second) : per_second_(per_second) {}  // 0: as often as it likes.

  // Nothing: go on. Else how long until it may.
  std::optional<std::chrono::milliseconds> Ask(const std::string& address, Clock::time_point now);
  std::size_t remembered() const { return buckets_.size(); }

 private:
  struct Bucket {
    std::string address;
    double tokens = 0;
    Clock::time_point filled;
  };
  Bucket& Find(const std::string& address, Clock::time_point now);

  double per_second_;
  std::list<Bucket> recent_;  // The last to ask is first.
  std::unordered_map<std::string, std::list<Bucket>::iterator> buckets_;
};

}  // namespace perseus::http
