// The messages between a client and the agent, over the agent's socket. Each datagram is one JSON
// object (SOCK_SEQPACKET keeps datagrams separate). A client sends a request, and the agent sends
// its reply. Messages are rare, so they use JSON, which an operator can read. Clock requests use
// clock_channel.h instead.
//
//   {"perseus":1,"acquire":{"gpus":["GPU-1f…"],"job":"llama-7b","heartbeat_s":30}}
//   {"perseus":1,"lease":{"id":"7","gpus":[…],"sm_clocks_mhz":[[210,…,1410]]}}   + descriptors
//
//   {"perseus":1,"error":{"code":"held","message":"GPU-1f… is held by …"}}
//
// `perseus` is the protocol version. The other key names the message. docs/agent.md has an example
// of each message.
//
// Both sides check everything. Unknown keys, wrong types, and values that are too long or too deep
// are errors that name the place. A datagram has at most kLongestMessage bytes. Texts are UTF-8
// without control characters, so that a program can print them unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"

namespace perseus::protocol {

inline constexpr std::size_t kLongestMessage = 65'536;
inline constexpr int kMostGpus = 64;                 // In one request.
inline constexpr std::size_t kLongestName = 200;     // For all texts except the next two kinds.
inline constexpr std::size_t kLongestCgroup = 1000;  // Paths of containers are long.
inline constexpr std::size_t kLongestText = 1000;    // For the message of a refusal.
inline constexpr int kMostClocks = 1000;             // For one GPU.
// The highest whole number up to which JSON is exact.
inline constexpr std::uint64_t kMostSwitches = std::uint64_t{1} << 53;
inline constexpr double kMostChangesPerSecond = 1e6;  // The highest limit of an agent.

// ---- Requests ----

// Leases GPUs to the process of this connection. The lease ends with the connection, on Release, or
// when the heartbeat does not change for `heartbeat_s`.
struct Acquire {
  std::vector<std::string> gpus;  // UUIDs, 1 to kMostGpus, each once.
  std::string job;          // The holder's name for other users. 1 to kLongestName, printable.
  double heartbeat_s = 30;  // 1 to 3,600.
  friend bool operator==(const Acquire&, const Acquire&) = default;
};
// Ends a lease of this connection. Because of the id, a late request cannot end the next lease.
struct Release {
  std::string lease;
  friend bool operator==(const Release&, const Release&) = default;
};
// Renews a lease, for clients that do not use the channel.
struct Renew {
  std::string lease;
  friend bool operator==(const Renew&, const Renew&) = default;
};
// Declares by how much the plan in force makes an iteration slower on purpose, compared with
// maximum clocks: 1.02 is 2 %. Metrics show this value, so that nobody takes the plan for a fault.
struct DeclareSlowdown {
  std::string lease;
  double slowdown = 1;  // 1 to 100.
  friend bool operator==(const DeclareSlowdown&, const DeclareSlowdown&) = default;
};
// Lists the GPUs and their holders.
struct List {
  friend bool operator==(const List&, const List&) = default;
};
// Ends the lease that holds the GPU. Only the owner of the lease and root may do so.
struct ReleaseGpu {
  std::string gpu;
  friend bool operator==(const ReleaseGpu&, const ReleaseGpu&) = default;
};
// Lets a user, or the processes of a cgroup, lease these GPUs (root only). The grant survives
// restarts.
struct Grant {
  std::vector<std::string> gpus;
  std::optional<std::uint32_t> uid;  // Set, unless cgroup is set.
  // Such as "/slurm/job_17", for this cgroup and all below it. Absolute, without ".", ".."
  // or a slash at the end.
  std::optional<std::string> cgroup;
  friend bool operator==(const Grant&, const Grant&) = default;
};
// Withdraws a grant (root only). It has the same fields as Grant.
struct Revoke {
  Grant grant;
  friend bool operator==(const Revoke&, const Revoke&) = default;
};
using Request =
    std::variant<Acquire, Release, Renew, DeclareSlowdown, List, ReleaseGpu, Grant, Revoke>;

// ---- Replies ----

struct Done {
  friend bool operator==(const Done&, const Done&) = default;
};
// The reply to Acquire. The channel's descriptors are in the same datagram, in the order of `gpus`.
struct Lease {
  std::string id;
  std::vector<std::string> gpus;
  std::vector<std::vector<int>> sm_clocks_mhz;  // Index: the GPU. Ascending.
  friend bool operator==(const Lease&, const Lease&) = default;
};
// One GPU of the reply to List.
struct GpuStatus {
  int index = -1;  // The number that nvidia-smi or rocm-smi shows. -1: unknown.
  std::string uuid;
  std::string name;
  std::string measure_only;  // Why the GPU's clocks cannot be set. Empty if they can be set.
  std::string trouble;       // A current problem ("the driver is gone"). Empty if there is none.
  // The lease that holds the GPU. `lease` is empty if no lease holds it.
  std::string lease;
  std::string job;
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  double held_s = 0;
  double slowdown = 1;
  // The last setting that the agent requested, and the setting before the lease ("1410 MHz").
  std::string setting;
  std::string before;
  bool is_restoring = false;  // The lease has ended, and the agent still tries to restore the GPU.
  // Absent: the driver does not report it.
  std::optional<int> sm_clock_mhz;
  std::optional<double> power_w;
  std::optional<int> temperature_c;
  std::uint64_t switches = 0;
  // The number of requests of a lower clock that have waited because of the agent's limit on
  // changes.
  std::uint64_t postponed = 0;
  // The GPU's share of this limit, in changes per second. 0: no lease, or no limit.
  double most_changes_per_s = 0;
  // Why the GPU runs below its highest clock ("plan, temperature"). Empty if the GPU does not.
  std::string slow_by;
  // What another program did to the GPU's clock. Empty if no other program changed it.
  std::string overridden;
  friend bool operator==(const GpuStatus&, const GpuStatus&) = default;
};
struct Listing {
  std::vector<GpuStatus> gpus;
  friend bool operator==(const Listing&, const Listing&) = default;
};
enum class Refusal {
  kMalformed,   // The request is not valid.
  kHeld,        // Another client has a lease. The message names that client.
  kNotAllowed,  // The caller does not own the GPU, or is not root.
  kNoSuchGpu,   // Also for a GPU that can be measured, but whose clocks cannot be set.
  kNoSuchLease,
  kUnavailable,  // At the moment: the driver is gone, the disk is full, or the agent is stopping.
};
struct Refused {
  Refusal code = Refusal::kMalformed;
  std::string message;  // Cause and remedy.
  friend bool operator==(const Refused&, const Refused&) = default;
};
using Reply = std::variant<Done, Lease, Listing, Refused>;

// Both functions fail with kInput and the place within the message, such as "request:
// acquire.gpus[3] is not a string …".
Result<Request> ParseRequest(std::string_view text);
Result<Reply> ParseReply(std::string_view text);
// If a parsed message is formatted again, it parses to an equal message. Values from a driver or
// from a failure may exceed the limits above: texts and numbers of a listing, and the message of a
// refusal. Format() cuts such values, and replaces unprintable characters by "?". All other values
// have to keep the limits. Otherwise the other side refuses the message.
std::string Format(const Request& request);
std::string Format(const Reply& reply);

// Such as "held" or "not-allowed".
std::string_view NameOf(Refusal refusal);

}  // namespace perseus::protocol
