// A node under test: fake GPUs with settings of an administrator, and the real agent. The agent is
// a process that tests kill and start again.
#pragma once

#include <sys/resource.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "perseus/runtime/protocol/messages/messages.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"
#include "tests/fake_nvml/fake_nvml.h"
#include "tests/faults/clients.h"
#include "tests/faults/process.h"
#include "tests/support/temporary_directory.h"

namespace perseus::faults {

// A requirement is violated.
class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
void Require(bool holds, const std::string& what);

// The settings of a GPU.
struct Hardware {
  std::optional<fake_nvml::ClockRange> sm_lock;
  std::optional<fake_nvml::ClockRange> memory_lock;
  int power_limit_mw = 0;
  friend bool operator==(const Hardware&, const Hardware&) = default;
};

struct AgentEnvironment {
  bool has_clock_shim = false;                      // Preloads clock_shim.cc into the agent.
  std::optional<rlim_t> open_files = std::nullopt;  // The soft and the hard limit.
  // Puts the agent's state on a disk of 64 KiB. Works only in RunIsolated().
  bool has_small_disk = false;
  // Uses virtual GPUs instead of fake NVIDIA GPUs. Only root and kGpuGroup may open their device
  // files. Every user may connect to the agent.
  bool has_device_files = false;
  // Preloads old_kernel_shim.cc into the agent. The agent's sockets then accept descriptors, as on
  // every Linux before 6.16.
  bool has_old_kernel = false;
};

inline constexpr gid_t kGpuGroup = 54'323;

class Node {
 public:
  // `seed` chooses which settings of the administrator each GPU has. All kinds of settings occur.
  Node(int gpus, std::uint64_t seed, AgentEnvironment environment);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // ---- The agent ----
  void LaunchAgent();  // Returns at once.
  void StartAgent();   // Returns when the agent answers.
  void KillAgent();    // Sends SIGKILL.
  void StopAgent();    // Sends SIGTERM. The agent must exit with status 0 within 30 s.
  pid_t agent_pid() const { return agent_.pid(); }
  const AgentEnvironment& environment() const { return environment_; }

  // ---- The node ----
  fake_nvml::FakeNvml& fake() { return fake_; }
  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path socket() const { return directory_ / "agent.sock"; }
  std::filesystem::path state() const { return directory_ / "state" / "agent.json"; }
  std::filesystem::path log() const { return directory_ / "agent.log"; }
  std::vector<std::string> uuids() const;
  // The file that decides who may use the GPU. Requires has_device_files.
  std::filesystem::path device_file(int gpu) const;
  Hardware Now(int gpu) const;
  Hardware& Expected(int gpu) { return expected_[static_cast<std::size_t>(gpu)]; }
  // Applies the administrator's settings to all GPUs, as after a driver reload.
  void SetAsAdministrator();
  // Whether a client's clock is set on any GPU now.
  bool IsChanged() const;
  protocol::Listing List() const;
  // Shifts the wall clock that the agent sees.
  void ShiftWallClock(std::int64_t seconds);

  // ---- Requirements when no lease exists ----
  // Waits until the agent and the node are at rest: every GPU has its expected settings, no lease
  // exists, the agent has saved no GPU's settings, the agent has no more descriptors than after its
  // start, and no unexpected file exists. If this takes longer than all retries of the agent,
  // throws Violation with the first problem. `connections` is the number of connections that
  // clients still have open.
  void Settle(std::size_t connections = 0);
  // Checks the same requirements without the agent, which has ended.
  void RequireAllRestored();
  // The agent's anonymous memory in kB, without the mapped file of the fake GPUs.
  long OwnMemory() const;

 private:
  [[noreturn]] void ExecAgent() const;
  void MakeVirtualGpus();
  void Set(int gpu, const Hardware& hardware);
  std::string HardwareProblem() const;
  std::string StateProblem() const;
  std::string FileProblem() const;
  std::string AgentProblem(std::size_t connections);
  std::string FirstProblem(std::size_t connections);
  std::size_t Descriptors() const;

  TemporaryDirectory directory_;
  fake_nvml::FakeNvml fake_;
  std::optional<virtual_gpu::VirtualNode> virtual_;
  AgentEnvironment environment_;
  std::vector<Hardware> administrators_;
  std::vector<Hardware> expected_;
  Process agent_;
  std::size_t descriptors_when_new_ = 0;
};

}  // namespace perseus::faults
