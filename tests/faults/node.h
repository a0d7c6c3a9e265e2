// A node under test: fake GPUs, as an administrator has set them, and the real agent as a process
// of its own that may be killed and started again.
#pragma once

#include <sys/resource.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "perseus/runtime/protocol/messages.h"
#include "tests/fake_nvml/fake_nvml.h"
#include "tests/faults/clients.h"
#include "tests/faults/process.h"
#include "tests/support/temporary_directory.h"

namespace perseus::faults {

// Something that must hold does not.
class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
void Require(bool holds, const std::string& what);

// What is set on a GPU.
struct Hardware {
  std::optional<fake_nvml::ClockRange> sm_lock;
  std::optional<fake_nvml::ClockRange> memory_lock;
  int power_limit_mw = 0;
  friend bool operator==(const Hardware&, const Hardware&) = default;
};

struct AgentEnvironment {
  bool has_clock_shim = false;                      // clock_shim.cc, to shift its wall clock.
  std::optional<rlim_t> open_files = std::nullopt;  // Soft and hard.
  // Its state lies on a disk of 64 KiB. Only in RunApart.
  bool has_small_disk = false;
};

class Node {
 public:
  // `seed` decides which GPU an administrator has set how, in all the ways there are.
  Node(int gpus, std::uint64_t seed, AgentEnvironment environment);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // ---- The agent ----
  void LaunchAgent();  // Returns at once.
  void StartAgent();   // Returns when it answers.
  void KillAgent();    // SIGKILL.
  void StopAgent();    // SIGTERM; it must end with 0.
  pid_t agent_pid() const { return agent_.pid(); }

  // ---- What it is about ----
  fake_nvml::FakeNvml& fake() { return fake_; }
  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path socket() const { return directory_ / "agent.sock"; }
  std::filesystem::path state() const { return directory_ / "state" / "agent.json"; }
  std::filesystem::path log() const { return directory_ / "agent.log"; }
  std::vector<std::string> uuids() const;
  // A GPU's number in the fake that an administrator has locked the SM clock of; its lock comes
  // back as what it was declared to rest at.
  int locked_gpu() const { return locked_gpu_; }
  Hardware Now(int gpu) const;
  Hardware& Expected(int gpu) { return expected_[static_cast<std::size_t>(gpu)]; }
  // Sets all GPUs as the administrator has them (after a driver's reload).
  void SetAsAdministrator();
  // Whether a client's clock is set on some GPU now.
  bool IsChanged() const;
  protocol::Listing List() const;
  // The wall clock that the agent sees is off by so much.
  void ShiftWallClock(std::int64_t seconds);

  // ---- What must hold when nobody has a lease ----
  // Waits until every GPU is as expected, no lease is there, nothing is saved of any GPU, the agent
  // has no more descriptors than when it was new, and no file lies about that should not. Throws
  // Violation with what is missing when that takes longer than any retry of the agent's.
  // `connections`: so many are still open, rightly.
  void Settle(std::size_t connections = 0);
  // The same without an agent's word: it is gone.
  void RequireAllBack();
  // kB of memory that are the agent's own (not the fake's file, which it maps).
  long OwnMemory() const;

 private:
  [[noreturn]] void BeAgent() const;
  std::string HardwareTrouble() const;
  std::string StateTrouble() const;
  std::string FileTrouble() const;
  std::string AgentTrouble(std::size_t connections);
  std::string FirstTrouble(std::size_t connections);
  std::size_t Descriptors() const;

  TemporaryDirectory directory_;
  fake_nvml::FakeNvml fake_;
  AgentEnvironment environment_;
  int locked_gpu_ = 0;
  std::vector<Hardware> administrators_;
  std::vector<Hardware> expected_;
  Process agent_;
  std::size_t descriptors_when_new_ = 0;
};

}  // namespace perseus::faults
