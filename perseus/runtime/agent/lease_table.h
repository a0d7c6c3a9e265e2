// Which lease may change which GPU. A lease gives whole GPUs to one process, as long as its
// connection exists, its process lives, and its heartbeat moves. Then the GPUs are restored.
//
// A GPU is in one of three states:
//
//          Acquire                      the lease ends, for any reason
//   free ----------> held by one lease ------------------------------------> being restored
//     ^                                                                            |
//     +------------------------------- Restored -----------------------------------+
//
// "Being restored" lasts until the GPU has its old settings again. No client gets the GPU before
// that: the next lease would take the agent's own lock for the original setting.
//
// The table decides and remembers. It touches no GPU, no clock and no file. The caller checks
// before that the GPU exists, and that the process has the right to it (caller.h). saved_state.h
// has what must survive the agent. If a lease cannot be saved, Cancel() undoes it.
//
// Thread safety: none. The event loop of the agent owns it.
//
// Invariants:
//  1. At most one lease holds a GPU, and a GPU that is being restored is not free.
//  2. A lease gets all the GPUs that it requested, or no lease exists.
//  3. The id of a lease that has ended is never used again, also not by a later agent. So a late
//     message cannot reach the next lease.
//  4. However a lease ends, each of its GPUs is being restored afterwards.
//  5. Only the connection that acquired a lease acts on it; ReleaseGpu requires rights instead.
//  6. Time is CLOCK_MONOTONIC, and is passed in. No lease ends when somebody sets the wall clock,
//  and
//     the time that the machine slept does not count.
//  7. Time in which nobody checked the heartbeats does not count against them: an agent that was
//     stopped must not mistake that for the silence of its clients.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/runtime/agent/answer.h"
#include "perseus/runtime/agent/owner.h"

namespace perseus::agent {

// The event loop's count of connections accepted. Not a descriptor's number: the kernel gives that
// to the next connection.
using ConnectionId = std::uint64_t;

struct Lease {
  std::string id;
  Owner owner;
  ConnectionId connection = 0;
  std::vector<std::string> gpus;  // UUIDs, as asked for.
  Nanoseconds held_since = 0;
  // How much slower the plan makes an iteration on purpose.
  double slowdown = 1;
  Nanoseconds heartbeat_period = 0;
  std::uint64_t heartbeat = 0;  // The last value seen.
  Nanoseconds heartbeat_moved_at = 0;
  Nanoseconds unwatched = 0;  // Since it moved: time that does not count.
  friend bool operator==(const Lease&, const Lease&) = default;
};

// Where a GPU stands that is not free.
struct GpuHold {
  std::string lease;  // That holds it, or that held it last.
  Owner owner;
  Nanoseconds since = 0;  // Held; or, being restored, since when.
  bool is_restoring = false;
  friend bool operator==(const GpuHold&, const GpuHold&) = default;
};

// What tells this agent's leases from those of every other agent on this machine, before and after
// a boot: pass the boot's id and the steady clock's time at which the agent started.
std::string EpochOf(std::string_view boot_id, Nanoseconds started_at);

// "3 h 20 min", "12 s".
std::string DescribeDuration(Nanoseconds duration);

class LeaseTable {
 public:
  // Heartbeats are to be looked at (Beat for each lease, then Expire) at least this often; longer
  // gaps count as so much only.
  static constexpr Nanoseconds kLongestGap = 500'000'000;

  // `epoch`: see EpochOf.
  explicit LeaseTable(std::string epoch);

  // ---- A lease begins ----

  struct Wish {
    Owner owner;
    ConnectionId connection = 0;
    std::vector<std::string> gpus;     // UUIDs, each once.
    Nanoseconds heartbeat_period = 0;  // Above 0.
  };
  // Refuses with kHeld and the holder's name if one of the GPUs is not free, and with kMalformed
  // what is no wish at all.
  Answer<Lease> Acquire(const Wish& wish, Nanoseconds now);
  // Takes an Acquire back as if it had not been: its GPUs, which nobody can have touched yet, are
  // free. For a lease that could not be saved (see SavedStateFile::Save), before the client learns
  // of it. False if there is no such lease.
  bool Cancel(std::string_view id);

  // ---- A lease lives ----

  // "Still here", by message.
  Answer<void> Renew(std::string_view id, ConnectionId connection, Nanoseconds now);
  // The heartbeat in the lease's channel reads `heartbeat` now. A lease that is not there is passed
  // over.
  void Beat(std::string_view id, std::uint64_t heartbeat, Nanoseconds now);
  Answer<void> DeclareSlowdown(std::string_view id, ConnectionId connection, double slowdown);

  // ---- A lease ends. All return the leases that did, whose GPUs are to be restored now. ----

  Answer<Lease> Release(std::string_view id, ConnectionId connection, Nanoseconds now);
  // The lease that holds `gpu`, for its owner's user and for administrators (caller.h).
  struct Requester {
    uid_t uid = 0;
    bool is_administrator = false;
  };
  Answer<Lease> ReleaseGpu(std::string_view gpu, const Requester& requester, Nanoseconds now);
  std::vector<Lease> EndOfConnection(ConnectionId connection, Nanoseconds now);
  // Of the process that acquired it, though a child of it may keep the connection open.
  std::vector<Lease> EndOfProcess(const ProcessId& process, Nanoseconds now);
  // Those whose heartbeat stood still for their period. Read all messages and Beat() all leases
  // first: what came in time but was not looked at must count.
  std::vector<Lease> Expire(Nanoseconds now);

  // ---- A GPU is given back ----

  // After a start: an earlier agent left `gpu` changed; nobody gets it until it is restored.
  // Passed over if the GPU is not free.
  void StartRestoring(std::string_view gpu, std::string_view former_lease,
                      const Owner& former_owner, Nanoseconds now);
  // The GPU was seen to be what it was before `lease`: free again. False, and nothing happens,
  // unless it is being restored after just that lease.
  bool Restored(std::string_view gpu, std::string_view lease);

  // ---- What there is ----

  const Lease* Find(std::string_view id) const;
  // Nothing for a GPU that is free.
  const GpuHold* HoldOf(std::string_view gpu) const;
  const std::map<std::string, Lease, std::less<>>& leases() const { return leases_; }

 private:
  Lease* FindOf(std::string_view id, ConnectionId connection);
  tl::unexpected<protocol::Refused> NoSuchLease(std::string_view id) const;
  Lease End(std::string_view id, Nanoseconds now);
  template <typename Predicate>
  std::vector<Lease> EndAll(Nanoseconds now, Predicate ends);

  std::string epoch_;
  std::uint64_t last_number_ = 0;
  std::optional<Nanoseconds> last_look_;  // Expire() was called last.
  std::map<std::string, Lease, std::less<>> leases_;
  std::map<std::string, GpuHold, std::less<>> holds_;
};

}  // namespace perseus::agent
