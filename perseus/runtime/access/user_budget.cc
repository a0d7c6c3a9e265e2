#include "perseus/runtime/access/user_budget.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

#include "perseus/base/number.h"

namespace perseus::agent {
namespace {

// A directory service may give users more ids than the agent knows, and each id needs a bucket.
constexpr Nanoseconds kForgetEvery = 10 * kSecond;

constexpr uid_t kHighestUser = std::numeric_limits<uid_t>::max();

}  // namespace

Nanoseconds UserBudget::Take(uid_t user, double cost, Nanoseconds now) {
  if (user == 0) return 0;
  if (now >= next_forget_) ForgetFull(now);
  const auto [place, is_new] = buckets_.try_emplace(user);
  Bucket& bucket = place->second;
  if (!is_new) {
    const double earned = ToSeconds(std::max<Nanoseconds>(now - bucket.at, 0)) * kUnitsPerSecond;
    bucket.units = std::min(bucket.units + earned, kBurst);
  }
  bucket.at = now;
  if (bucket.units < cost) {
    return static_cast<Nanoseconds>(
        std::ceil((cost - bucket.units) / kUnitsPerSecond * kNanosecondsPerSecond));
  }
  bucket.units -= cost;
  return 0;
}

void UserBudget::ForgetFull(Nanoseconds now) {
  next_forget_ = now + kForgetEvery;
  std::erase_if(buckets_, [now](const auto& entry) {
    const Bucket& bucket = entry.second;
    return bucket.units + ToSeconds(now - bucket.at) * kUnitsPerSecond >= kBurst;
  });
}

SubordinateUsers SubordinateUsers::Parse(std::string_view text) {
  SubordinateUsers users;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t count_at = line.rfind(':');
    if (count_at == std::string_view::npos || count_at == 0) continue;
    const std::size_t first_at = line.rfind(':', count_at - 1);
    if (first_at == std::string_view::npos) continue;
    const auto first =
        ParseNumber<std::uint64_t>(line.substr(first_at + 1, count_at - first_at - 1));
    const auto count = ParseNumber<std::uint64_t>(line.substr(count_at + 1));
    // Root's account has no limit, so no range may begin with root.
    if (!first || !count || *first == 0 || *first > kHighestUser || *count == 0) continue;
    uid_t begin = static_cast<uid_t>(*first);
    uid_t last =
        *count - 1 > kHighestUser - begin ? kHighestUser : static_cast<uid_t>(begin + *count - 1);
    for (auto next = users.last_of_.upper_bound(last); next != users.last_of_.begin();) {
      const auto before = std::prev(next);
      if (before->second < begin) break;
      begin = std::min(begin, before->first);
      last = std::max(last, before->second);
      next = users.last_of_.erase(before);
    }
    users.last_of_[begin] = last;
  }
  return users;
}

uid_t SubordinateUsers::AccountOf(uid_t uid) const {
  const auto after = last_of_.upper_bound(uid);
  if (after == last_of_.begin()) return uid;
  const auto [first, last] = *std::prev(after);
  return uid <= last ? first : uid;
}

}  // namespace perseus::agent
