// Shared code of tests that run whole jobs: virtual nodes, their agents and other programs as real
// processes, and the time and energy of a job's steps by the virtual GPUs' own counters.
//
// Nodes, agents, ranks and the programs that follow the job directory share one virtual time
// (perseus/simulation/virtual_gpu/shared_clock.h). The test itself and the server run in real time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "perseus/simulation/virtual_gpu/virtual_node.h"
#include "tests/cli/program.h"

namespace perseus {

// A step's time and energy by the virtual GPUs' own clock and counters.
struct TrueStep {
  double time_s = 0;
  double energy_j = 0;
};
struct TrueMean {
  double time_s = 0;
  double time_error_s = 0;  // Standard error of the mean.
  double energy_j = 0;
};
TrueMean MeanOf(const std::vector<TrueStep>& steps, std::size_t begin, std::size_t end);

// One percentage point of energy: the usual difference allowed between a promised and a measured
// saving.
inline constexpr double kOnePoint = 0.01;

struct Promise {
  double saving = 0;
  double time_s = 0;
  double baseline_time_s = 0;
  double saving_tolerance = kOnePoint;
};
struct Steps {
  std::size_t begin = 0;
  std::size_t end = 0;
};
// Expects that the steps `after` save the promised energy against the steps `before` and are as
// fast, within the noise of the virtual GPUs. Prints promised and measured values.
void ExpectPromiseKept(const Promise& promise, const std::vector<TrueStep>& steps,
                       const Steps& before, const Steps& after);

class TrainingFixture : public ProgramTest {
 protected:
  // Ends all started processes that still run, the last one first.
  ~TrainingFixture() override;

  // Runs `perseus COMMAND` in the background; the command may contain redirections. `in_front` is a
  // prefix ("ip netns exec NAME").
  pid_t Start(const std::string& command, const std::string& in_front = "");
  static void Kill(pid_t process, int signal);
  // Waits until `perseus serve` logs its address and returns it: "127.0.0.1:41234".
  std::string AwaitAddress(const std::string& log) const;
  // Waits up to twenty minutes, enough for a busy machine, until `condition` is true; returns
  // whether it is.
  static bool Comes(const std::function<bool()>& condition);
  static bool HasEnded(pid_t process);

  static constexpr const char* kClock = "job.clock";
  // Writes NAME.toml, whose GPUs take the time and power of `profile`, and starts its agent at
  // NAME.sock.
  struct NodeSpec {
    std::string name;
    int gpus = 4;
    std::string profile = "truth.csv";
    int seed = 1;
    double power_limit_w = 0;  // 0: that of the profile.
  };
  void StartAgent(const NodeSpec& spec);
  void AwaitAgent(const std::string& name) const;
  virtual_gpu::VirtualNode OpenNode(const std::string& name) const;

  // Reads the file of a trainer's --record.
  std::vector<TrueStep> TrueStepsOf(const std::string& record) const;

 private:
  std::vector<pid_t> started_;
};

}  // namespace perseus
