#include "perseus/runtime/agent/lease_table.h"

#include <algorithm>
#include <set>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/units.h"

namespace perseus::agent {
namespace {

using protocol::Refusal;

constexpr double kMostSlowdown = 100;

std::string WhyNotFree(std::string_view gpu, const GpuHold& hold, Nanoseconds now) {
  const std::string who = fmt::format("job {} (user {}, process {})", Excerpt(hold.owner.job),
                                      hold.owner.uid, hold.owner.process.pid);
  const std::string duration = DescribeDuration(now - hold.since);
  if (hold.is_restoring) {
    return fmt::format(
        "{} is being restored after {}, for {} now (try again in a moment; if this lasts, its "
        "driver does not accept the setting: see the agent's log)",
        gpu, who, duration);
  }
  return fmt::format("{} is held by {} for {} (wait for it, or have its user or root release it)",
                     gpu, who, duration);
}

}  // namespace

std::string EpochOf(std::string_view boot_id, Nanoseconds started_at) {
  // 8 of 32 digits. Two boots of one machine will almost never have the same 8 digits.
  constexpr std::size_t kDigits = 8;
  // The socket allows one agent at a time, and no agent starts and ends within a millisecond.
  return fmt::format("{}-{:x}", boot_id.substr(0, kDigits), started_at / kMillisecond);
}

std::string DescribeDuration(Nanoseconds duration) {
  const std::int64_t seconds = std::max<Nanoseconds>(duration, 0) / kSecond;
  const std::int64_t minutes = seconds / 60;
  const std::int64_t hours = minutes / 60;
  if (hours >= 48) return fmt::format("{} days {} h", hours / 24, hours % 24);
  if (hours >= 1) return fmt::format("{} h {} min", hours, minutes % 60);
  if (minutes >= 1) return fmt::format("{} min {} s", minutes, seconds % 60);
  return fmt::format("{} s", seconds);
}

LeaseTable::LeaseTable(std::string epoch) : epoch_(std::move(epoch)) {}

Answer<Lease> LeaseTable::Acquire(const Wish& wish, Nanoseconds now) {
  if (wish.gpus.empty()) return Refuse(Refusal::kMalformed, "no GPU is requested (name some)");
  if (wish.heartbeat_period <= 0) {
    return Refuse(Refusal::kMalformed, "the heartbeat's period is not above 0 (30 s is usual)");
  }
  std::set<std::string_view> asked;
  for (const std::string& gpu : wish.gpus) {
    if (!asked.insert(gpu).second) {
      return Refuse(Refusal::kMalformed, "{} is requested twice (name each GPU once)", gpu);
    }
    if (const GpuHold* hold = HoldOf(gpu)) {
      return Refuse(Refusal::kHeld, "{}", WhyNotFree(gpu, *hold, now));
    }
  }
  Lease lease;
  lease.id = fmt::format("{}-{}", epoch_, ++last_number_);
  lease.owner = wish.owner;
  lease.connection = wish.connection;
  lease.gpus = wish.gpus;
  lease.held_since = now;
  lease.heartbeat_period = wish.heartbeat_period;
  lease.heartbeat_moved_at = now;
  for (const std::string& gpu : lease.gpus) {
    holds_.emplace(gpu, GpuHold{lease.id, lease.owner, now, false});
  }
  return leases_.emplace(lease.id, lease).first->second;
}

bool LeaseTable::Cancel(std::string_view id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return false;
  for (const std::string& gpu : found->second.gpus) holds_.erase(gpu);
  leases_.erase(found);
  return true;
}

Answer<void> LeaseTable::Renew(std::string_view id, ConnectionId connection, Nanoseconds now) {
  Lease* lease = FindOf(id, connection);
  if (lease == nullptr) return NoSuchLease(id);
  lease->heartbeat_moved_at = std::max(lease->heartbeat_moved_at, now);
  lease->unwatched = 0;
  return {};
}

void LeaseTable::Beat(std::string_view id, std::uint64_t heartbeat, Nanoseconds now) {
  const auto found = leases_.find(id);
  if (found == leases_.end() || found->second.heartbeat == heartbeat) return;
  Lease& lease = found->second;
  lease.heartbeat = heartbeat;
  lease.heartbeat_moved_at = std::max(lease.heartbeat_moved_at, now);
  lease.unwatched = 0;
}

Answer<void> LeaseTable::DeclareSlowdown(std::string_view id, ConnectionId connection,
                                         double slowdown) {
  if (!(slowdown >= 1 && slowdown <= kMostSlowdown)) {
    return Refuse(Refusal::kMalformed, "slowdown {} is not from 1 to {} (1.02 is 2 % slower)",
                  slowdown, kMostSlowdown);
  }
  Lease* lease = FindOf(id, connection);
  if (lease == nullptr) return NoSuchLease(id);
  lease->slowdown = slowdown;
  return {};
}

Answer<Lease> LeaseTable::Release(std::string_view id, ConnectionId connection, Nanoseconds now) {
  if (FindOf(id, connection) == nullptr) return NoSuchLease(id);
  return End(id, now);
}

Answer<Lease> LeaseTable::ReleaseGpu(std::string_view gpu, const Requester& requester,
                                     Nanoseconds now) {
  const GpuHold* hold = HoldOf(gpu);
  if (hold == nullptr || hold->is_restoring) {
    return Refuse(Refusal::kNoSuchLease, "no lease holds {}{} (nothing to release)", Excerpt(gpu),
                  hold == nullptr ? "" : ", which is already being restored");
  }
  if (!requester.is_administrator && requester.uid != hold->owner.uid) {
    return Refuse(Refusal::kNotAllowed, "{} (user {} may not end it)", WhyNotFree(gpu, *hold, now),
                  requester.uid);
  }
  return End(std::string(hold->lease), now);
}

std::vector<Lease> LeaseTable::EndOfConnection(ConnectionId connection, Nanoseconds now) {
  return EndAll(now, [&](const Lease& lease) { return lease.connection == connection; });
}

std::vector<Lease> LeaseTable::EndOfProcess(const ProcessId& process, Nanoseconds now) {
  return EndAll(now, [&](const Lease& lease) { return lease.owner.process == process; });
}

std::vector<Lease> LeaseTable::Expire(Nanoseconds now) {
  for (auto& [id, lease] : leases_) {
    const Nanoseconds watched_since =
        std::max(last_look_.value_or(lease.heartbeat_moved_at), lease.heartbeat_moved_at);
    lease.unwatched += std::max<Nanoseconds>(now - watched_since - kLongestGap, 0);
  }
  last_look_ = std::max(last_look_.value_or(now), now);
  return EndAll(now, [&](const Lease& lease) {
    return now - lease.heartbeat_moved_at - lease.unwatched >= lease.heartbeat_period;
  });
}

void LeaseTable::StartRestoring(std::string_view gpu, std::string_view former_lease,
                                const Owner& former_owner, Nanoseconds now) {
  holds_.emplace(gpu, GpuHold{std::string(former_lease), former_owner, now, true});
}

bool LeaseTable::Restored(std::string_view gpu, std::string_view lease) {
  const auto hold = holds_.find(gpu);
  if (hold == holds_.end() || !hold->second.is_restoring || hold->second.lease != lease) {
    return false;
  }
  holds_.erase(hold);
  return true;
}

const Lease* LeaseTable::Find(std::string_view id) const {
  const auto found = leases_.find(id);
  return found == leases_.end() ? nullptr : &found->second;
}

const GpuHold* LeaseTable::HoldOf(std::string_view gpu) const {
  const auto found = holds_.find(gpu);
  return found == holds_.end() ? nullptr : &found->second;
}

Lease* LeaseTable::FindOf(std::string_view id, ConnectionId connection) {
  const auto found = leases_.find(id);
  const bool is_ours = found != leases_.end() && found->second.connection == connection;
  return is_ours ? &found->second : nullptr;
}

tl::unexpected<protocol::Refused> LeaseTable::NoSuchLease(std::string_view id) const {
  const bool is_of_this_agent = id.starts_with(epoch_) && id.substr(epoch_.size()).starts_with('-');
  return Refuse(Refusal::kNoSuchLease,
                "this connection has no lease {}: {} (acquire the GPUs again)", Excerpt(id),
                is_of_this_agent
                    ? "it was released, its heartbeat stopped, or it belongs to another connection"
                    : "it does not belong to this agent, which may have restarted");
}

Lease LeaseTable::End(std::string_view id, Nanoseconds now) {
  const auto found = leases_.find(id);
  Lease ended = std::move(found->second);
  leases_.erase(found);
  for (const std::string& gpu : ended.gpus) {
    GpuHold& hold = holds_.find(gpu)->second;
    hold.is_restoring = true;
    hold.since = now;
  }
  return ended;
}

template <typename Predicate>
std::vector<Lease> LeaseTable::EndAll(Nanoseconds now, Predicate ends) {
  std::vector<std::string> ids;
  for (const auto& [id, lease] : leases_) {
    if (ends(lease)) ids.push_back(id);
  }
  std::vector<Lease> ended;
  ended.reserve(ids.size());
  for (const std::string& id : ids) ended.push_back(End(id, now));
  return ended;
}

}  // namespace perseus::agent
