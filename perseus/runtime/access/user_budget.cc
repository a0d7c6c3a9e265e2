#include "perseus/runtime/access/user_budget.h"

#include <algorithm>
#include <cmath>

namespace perseus::agent {
namespace {

// A directory service may give users more ids than the agent knows of, and each needs a bucket.
constexpr Nanoseconds kForgetEvery = 10 * kSecond;

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
    return static_cast<Nanoseconds>(std::ceil((cost - bucket.units) / kUnitsPerSecond * 1e9));
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

}  // namespace perseus::agent
