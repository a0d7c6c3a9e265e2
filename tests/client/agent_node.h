// For tests: a node of virtual GPUs. The real agent runs as a process. Tests can read the clocks of
// the GPUs.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "perseus.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"
#include "tests/support/temporary_directory.h"

namespace perseus {

class AgentNodeTest : public testing::Test {
 protected:
  static constexpr int kGpus = 8;

  AgentNodeTest();
  ~AgentNodeTest() override;

  // Starts the agent with these flags, and with the flags that the agent always needs.
  void StartAgent(const std::vector<std::string>& flags = {});
  void KillAgent();  // Sends SIGKILL.

  std::string socket() const { return (directory_ / "agent.sock").string(); }
  std::string devices() const { return "virtual:" + (directory_ / "node.toml").string(); }
  static std::string Uuid(int gpu) { return "GPU-virtual-box-" + std::to_string(gpu); }
  // The locked clock of the GPU (MHz). nullopt if the driver chooses the clock.
  std::optional<int> Lock(int gpu) const;
  testing::AssertionResult LockBecomes(int gpu, std::optional<int> clock_mhz) const;

  void Write(const std::string& name, const std::string& text) const;
  std::string Read(const std::string& name) const;
  // Runs `perseus WORDS...` and returns its output.
  std::string RunProgram(std::vector<std::string> words) const;

  TemporaryDirectory directory_;
  pid_t agent_ = 0;
};

// Waits up to 20 s for the condition. Returns whether it became true.
bool Comes(const std::function<bool()>& condition);

// Forks a child that runs `body`. The child exits with the result of `body`, without exit handlers.
// WaitFor returns the child's wait status.
pid_t StartChild(const std::function<int()>& body);
int WaitFor(pid_t child);

// A session on GPU `rank` that keeps its warnings.
class RankSession {
 public:
  struct Place {
    std::string socket;
    std::string devices;
    std::string gpu;
    int pp_rank = 0;
    std::string plan;
    std::string job_directory;
    std::int64_t plan_expires_at = 0;
    int dp_rank = 0;
    unsigned flags = PERSEUS_QUIET;
  };
  explicit RankSession(const Place& place);
  ~RankSession() { Close(); }
  RankSession(const RankSession&) = delete;
  RankSession& operator=(const RankSession&) = delete;

  perseus_session* get() { return session_; }
  void Close();
  void Begin(int kind, int microbatch) { perseus_instruction_begin(session_, kind, microbatch, 0); }
  void End() { perseus_instruction_end(session_); }
  void Run(int kind, int microbatch) {
    Begin(kind, microbatch);
    End();
  }
  // Runs one step: all microbatches forward, then all backward.
  void RunStep(int microbatches);
  perseus_counters Counters() const;
  // Takes all warnings, one per line.
  std::string Warnings();

 private:
  perseus_session* session_ = nullptr;
};

// Returns a plan of a GPipe schedule: each rank runs all microbatches forward, then all backward.
// The clocks of the plan are clocks of an A100.
plan_file::PlanFile PlanGpipe(int ranks, int microbatches);

}  // namespace perseus
