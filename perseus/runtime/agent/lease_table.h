// Which lease may change which GPU. A lease gives whole GPUs to one process. It lasts as long as
// its connection exists, its process lives, and its heartbeat changes. After that, the GPUs are
// restored.
//
// A GPU is in one of three states:
//
//          Acquire                      the lease ends, for any reason
//   free ----------> held by one lease ------------------------------------> being restored
//     ^                                                                            |
//     +------------------------------- Restored -----------------------------------+
//
// "Being restored" lasts until the GPU has its old settings again. No client gets the GPU before
// that time. Otherwise the next lease would save the agent's own lock as the original setting.
//
// The table only stores leases and decides about them. It touches no GPU, no clock and no file. The
// caller first checks that the GPU exists, and that the process has the right to the GPU
// (caller.h). saved_state_file.h keeps what must survive the agent. If a lease cannot be saved,
// Cancel() undoes the lease.
//
// Not thread-safe. The event loop of the agent owns it.
//
// Invariants:
//  1. At most one lease holds a GPU, and a GPU that is being restored is not free.
//  2. A lease gets all the GPUs that it requested. Otherwise no lease exists.
//  3. The id of a lease that has ended is never used again, also not by a later agent. So a late
//     message cannot affect the next lease.
//  4. When a lease ends, each of its GPUs is being restored afterwards. Exception: Cancel() frees
//     the GPUs at once, because nothing was changed yet.
//  5. Only the connection that acquired a lease acts on it. ReleaseGpu requires rights instead.
//  6. Time is CLOCK_MONOTONIC, and the caller passes it. A change of the wall clock ends no lease.
//     The time during which the machine slept does not count.
//  7. If heartbeats were not checked for some time, this time does not count against the clients.
//     An agent that was suspended must not take the time of its suspension for silence of its
//     clients.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/runtime/access/answer.h"
#include "perseus/runtime/access/owner.h"

namespace perseus::agent {

// The number of a connection. The event loop counts connections. The number of a descriptor would
// not work, because the kernel reuses it.
using ConnectionId = std::uint64_t;

struct Lease {
  std::string id;
  Owner owner;
  ConnectionId connection = 0;
  std::vector<std::string> gpus;  // UUIDs, in the order of the request.
  Nanoseconds held_since = 0;
  // The ratio by which the plan makes an iteration slower on purpose.
  double slowdown = 1;
  Nanoseconds heartbeat_period = 0;
  std::uint64_t heartbeat = 0;  // The last value that the agent read.
  Nanoseconds heartbeat_moved_at = 0;
  // The time since `heartbeat_moved_at` in which nobody checked the heartbeat.
  Nanoseconds unwatched = 0;
  friend bool operator==(const Lease&, const Lease&) = default;
};

// The state of a GPU that is not free.
struct GpuHold {
  std::string lease;  // The lease that holds it, or that held it last.
  Owner owner;
  Nanoseconds since = 0;  // The time at which the current state began.
  bool is_restoring = false;
  friend bool operator==(const GpuHold&, const GpuHold&) = default;
};

// A text that differs between all agents that ever run on this machine. Lease ids start with this
// text. Pass the boot id, and the time of the steady clock at which the agent started.
std::string EpochOf(std::string_view boot_id, Nanoseconds started_at);

// Such as "3 h 20 min" or "12 s".
std::string DescribeDuration(Nanoseconds duration);

class LeaseTable {
 public:
  // The longest gap between two checks of the heartbeats (Beat for each lease, then Expire). If a
  // gap is longer, only this much of the gap counts as silence.
  static constexpr Nanoseconds kLongestGap = 500'000'000;

  // `epoch` comes from EpochOf.
  explicit LeaseTable(std::string epoch);

  // ---- A lease begins ----

  struct Wish {
    Owner owner;
    ConnectionId connection = 0;
    std::vector<std::string> gpus;     // UUIDs, each once.
    Nanoseconds heartbeat_period = 0;  // Above 0.
  };
  // Refuses (kHeld), with the holder's name, if one of the GPUs is not free. Refuses (kMalformed)
  // an invalid request.
  Answer<Lease> Acquire(const Wish& wish, Nanoseconds now);
  // Undoes an Acquire. The GPUs of the lease are free again, because nobody can have changed them
  // yet. Use this function for a lease that could not be saved (SavedStateFile::Save), before the
  // client receives the lease. Returns false if the lease does not exist.
  bool Cancel(std::string_view id);

  // ---- A lease lives ----

  // A message of the client renews the lease.
  Answer<void> Renew(std::string_view id, ConnectionId connection, Nanoseconds now);
  // Records that the heartbeat in the lease's channel is `heartbeat` now. If the lease does not
  // exist, does nothing.
  void Beat(std::string_view id, std::uint64_t heartbeat, Nanoseconds now);
  Answer<void> DeclareSlowdown(std::string_view id, ConnectionId connection, double slowdown);

  // ---- A lease ends. All functions return the leases that ended. Restore their GPUs now. ----

  Answer<Lease> Release(std::string_view id, ConnectionId connection, Nanoseconds now);
  // Ends the lease that holds `gpu`. Only its owner's user and administrators (caller.h) may do so.
  struct Requester {
    uid_t uid = 0;
    bool is_administrator = false;
  };
  Answer<Lease> ReleaseGpu(std::string_view gpu, const Requester& requester, Nanoseconds now);
  std::vector<Lease> EndOfConnection(ConnectionId connection, Nanoseconds now);
  // Ends the leases that the process acquired. Needed because a child of the process may keep the
  // connection open.
  std::vector<Lease> EndOfProcess(const ProcessId& process, Nanoseconds now);
  // Ends each lease whose heartbeat has not changed for its period. Before this call, read all
  // messages and call Beat() for all leases, so that a heartbeat that came in time counts.
  std::vector<Lease> Expire(Nanoseconds now);

  // ---- A GPU is restored ----

  // Call it after a start, if an earlier agent left `gpu` changed. No client gets the GPU until it
  // is restored. If the GPU is not free, does nothing.
  void StartRestoring(std::string_view gpu, std::string_view former_lease,
                      const Owner& former_owner, Nanoseconds now);
  // Call it when the GPU again has its settings from before `lease`. Frees the GPU. If the GPU is
  // not being restored after exactly that lease, does nothing and returns false.
  bool Restored(std::string_view gpu, std::string_view lease);

  // ---- Queries ----

  const Lease* Find(std::string_view id) const;
  // Returns null if the GPU is free.
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
  std::optional<Nanoseconds> last_look_;  // When Expire() was called last.
  std::map<std::string, Lease, std::less<>> leases_;
  std::map<std::string, GpuHold, std::less<>> holds_;
};

}  // namespace perseus::agent
