#include "perseus/cluster/http/admission.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cmath>

#include "perseus/base/units.h"

namespace perseus::http {
namespace {

constexpr std::size_t kMostAddresses = 20'000;

}  // namespace

std::string AddressGroup(const std::string& address) {
  boost::system::error_code error;
  const auto ip = boost::asio::ip::make_address_v6(address, error);
  if (error) return address;
  auto bytes = ip.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), static_cast<unsigned char>(0));
  return boost::asio::ip::address_v6(bytes).to_string() + "/64";
}

struct ConnectionCounter::Counts {
  int all = 0;
  std::unordered_map<std::string, int> of_address;
};

ConnectionCounter::ConnectionCounter(Most most)
    : most_(most), counts_(std::make_shared<Counts>()) {}

int ConnectionCounter::count() const { return counts_->all; }

ConnectionCounter::Ticket ConnectionCounter::Enter(const std::string& address) {
  const std::string group = AddressGroup(address);
  const auto known = counts_->of_address.find(group);
  const int of_address = known == counts_->of_address.end() ? 0 : known->second;
  if (counts_->all >= most_.all || of_address >= most_.of_one_address) return nullptr;
  ++counts_->all;
  ++counts_->of_address[group];
  return Ticket(counts_.get(), [counts = counts_, group](void*) {
    --counts->all;
    const auto mine = counts->of_address.find(group);
    if (--mine->second == 0) counts->of_address.erase(mine);
  });
}

RateLimiter::RateLimiter(double per_second, double at_once)
    : per_second_(per_second), at_once_(std::max(at_once > 0 ? at_once : per_second, 1.0)) {}

RateLimiter::Bucket& RateLimiter::Find(const std::string& address, Clock::time_point now) {
  const auto known = buckets_.find(address);
  if (known != buckets_.end()) {
    recent_.splice(recent_.begin(), recent_, known->second);
    return recent_.front();
  }
  if (buckets_.size() == kMostAddresses) {
    buckets_.erase(recent_.back().address);
    recent_.pop_back();
  }
  recent_.push_front({address, at_once_, now});
  buckets_.emplace(address, recent_.begin());
  return recent_.front();
}

std::optional<std::chrono::milliseconds> RateLimiter::TimeToWait(const std::string& address,
                                                                 Clock::time_point now,
                                                                 double tokens) {
  if (per_second_ <= 0) return std::nullopt;
  Bucket& bucket = Find(AddressGroup(address), now);
  const std::chrono::duration<double> passed = now - bucket.filled;
  bucket.tokens = std::min(bucket.tokens + passed.count() * per_second_, at_once_);
  bucket.filled = now;
  const double wanted = std::min(tokens, at_once_);
  if (bucket.tokens >= wanted) {
    bucket.tokens -= tokens;
    return std::nullopt;
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(
      std::ceil((wanted - bucket.tokens) / per_second_ * kMillisecondsPerSecond)));
}

}  // namespace perseus::http
