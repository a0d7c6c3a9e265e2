// The messages between a client and the agent, over the agent's socket: one JSON object in each
// datagram (SOCK_SEQPACKET keeps their borders), a request and then its reply. They are rare, so
// they are JSON, which an operator can read. Clock requests go through clock_channel.h.
//
//   {"perseus":1,"acquire":{"gpus":["GPU-1f…"],"job":"llama-7b","heartbeat_s":30}}
//   {"perseus":1,"lease":{"id":"7","gpus":[…],"sm_clocks_mhz":[[210,…,1410]]}}   + descriptors
//
//   {"perseus":1,"error":{"code":"held","message":"GPU-1f… is held by …"}}
//
// `perseus` is the protocol version, and the other key names the message. docs/agent.md has an
// example of each.
//
// Both sides check everything: unknown keys, wrong types, and values that are too long or too deep
// are errors that name the place. A datagram has at most kLongestMessage bytes. Texts are UTF-8
// without control characters, so that a program can print them as they are.
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
inline constexpr int kMostGpus = 64;                 // Of one request.
inline constexpr std::size_t kLongestName = 200;     // Of every text but these:
inline constexpr std::size_t kLongestCgroup = 1000;  // Those of containers are long.
inline constexpr std::size_t kLongestText = 1000;    // What a refusal says.
inline constexpr int kMostClocks = 1000;             // Of one GPU.
inline constexpr std::uint64_t kMostSwitches = std::uint64_t{1} << 53;  // As far as JSON is exact.

// ---- Requests ----

// GPUs for this connection's process. The lease ends with the connection, on Release, or when the
// heartbeat stands still for `heartbeat_s`.
struct Acquire {
  std::vector<std::string> gpus;  // UUIDs; 1 to kMostGpus, each once.
  std::string job;          // The holder's name for other users; 1 to kLongestName, printable.
  double heartbeat_s = 30;  // 1 to 3,600.
  friend bool operator==(const Acquire&, const Acquire&) = default;
};
// Ends a lease of this connection. It has the id so that a late request cannot end the next lease.
struct Release {
  std::string lease;
  friend bool operator==(const Release&, const Release&) = default;
};
// Renews a lease, for clients that do not use the channel.
struct Renew {
  std::string lease;
  friend bool operator==(const Renew&, const Renew&) = default;
};
// By how much the plan in force makes an iteration slower on purpose, against maximum clocks: 1.02
// is 2 %. Metrics show it, so that nobody mistakes the plan for a fault.
struct DeclareSlowdown {
  std::string lease;
  double slowdown = 1;  // 1 to 100.
  friend bool operator==(const DeclareSlowdown&, const DeclareSlowdown&) = default;
};
// Lists the GPUs and their holders.
struct List {
  friend bool operator==(const List&, const List&) = default;
};
// Ends the lease that holds the GPU. For the owner of the lease, or root.
struct ReleaseGpu {
  std::string gpu;
  friend bool operator==(const ReleaseGpu&, const ReleaseGpu&) = default;
};
// Lets a user, or the processes of a cgroup, lease these GPUs (root only). Kept over restarts.
struct Grant {
  std::vector<std::string> gpus;
  std::optional<std::uint32_t> uid;  // One of the two.
  // "/slurm/job_17": it and all below it. Absolute, without a slash at the end, "." or "..".
  std::optional<std::string> cgroup;
  friend bool operator==(const Grant&, const Grant&) = default;
};
// Withdraws a grant (root only). It has the same fields.
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
// The reply to Acquire. The channel's descriptors come with it, in the order of `gpus`.
struct Lease {
  std::string id;
  std::vector<std::string> gpus;
  std::vector<std::vector<int>> sm_clocks_mhz;  // [gpu]: ascending.
  friend bool operator==(const Lease&, const Lease&) = default;
};
// One GPU of the reply to List.
struct GpuStatus {
  std::string uuid;
  std::string name;
  std::string measure_only;  // Why its clocks cannot be set; empty if they can.
  std::string trouble;       // What is wrong now ("the driver is gone"); empty if nothing.
  // The lease that holds it; `lease` empty for none.
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
  int sm_clock_mhz = 0;
  double power_w = 0;
  int temperature_c = 0;
  std::uint64_t switches = 0;
  friend bool operator==(const GpuStatus&, const GpuStatus&) = default;
};
struct Listing {
  std::vector<GpuStatus> gpus;
  friend bool operator==(const Listing&, const Listing&) = default;
};
enum class Refusal {
  kMalformed,   // The request is not valid.
  kHeld,        // Another client has a lease; the message names it.
  kNotAllowed,  // Not the caller's GPU, or not root.
  kNoSuchGpu,   // Or a GPU that can only be measured.
  kNoSuchLease,
  kUnavailable,  // Not now: the driver is gone, the disk is full, or the agent is stopping.
};
struct Refused {
  Refusal code = Refusal::kMalformed;
  std::string message;  // Cause and remedy.
  friend bool operator==(const Refused&, const Refused&) = default;
};
using Reply = std::variant<Done, Lease, Listing, Refused>;

// Fail with kInput and the place within the message: "request: acquire.gpus[3] is not a string …".
Result<Request> ParseRequest(std::string_view text);
Result<Reply> ParseReply(std::string_view text);
// What parses is formatted so that it parses back equal. What comes from a driver or from a failure
// (a listing's texts and numbers, a refusal's message) need not keep the limits: it is cut, and
// what cannot be shown becomes "?". All else must keep them, or the other side refuses it.
std::string Format(const Request& request);
std::string Format(const Reply& reply);

// "held", "not-allowed", …
std::string_view NameOf(Refusal refusal);

}  // namespace perseus::protocol
