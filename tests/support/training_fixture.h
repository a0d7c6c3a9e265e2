// Shared code of tests that run whole jobs. Virtual nodes, their agents and other programs are real
// processes. The virtual GPUs' own counters give the time and energy of a job's steps.
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

// A step's time and energy, from the virtual GPUs' own clock and counters.
struct TrueStep {
  double time_s = 0;
  double energy_j = 0;
};
struct TrueMean {
  double time_s = 0;
  double time_error_s = 0;  // The standard error of the mean.
  double energy_j = 0;
};
TrueMean MeanOf(const std::vector<TrueStep>& steps, std::size_t begin, std::size_t end);

// One percentage point of energy: the usual tolerance for the difference of a promised and a
// measured saving.
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
// Expects that the steps `after`, compared with the steps `before`, save the promised energy and
// are as fast, within the noise of the virtual GPUs. Prints promised and measured values.
void ExpectPromiseKept(const Promise& promise, const std::vector<TrueStep>& steps,
                       const Steps& before, const Steps& after);

// How virtual GPUs behave.
struct GpuType {
  const char* synth;  // The flags with which `perseus synth` makes their profile.
  double blocking_power_w;
  double switch_latency_ms;  // The median.
  const char* keys;          // More keys of [gpu] in the description of a node.
  double power_limit_w = 0;  // 0: none that matters.
};
inline constexpr GpuType kQuietA100{"--gpu a100", 84, 2,
                                    "time_noise = 0.002\npower_noise = 0.005\n"};
// A large training on an H100 (docs/hardware.md): with launches of the host that are late, with
// slow clock changes, and with a clock that wanders at the power limit.
inline constexpr GpuType kH100{"--model llama3-8b --gpu h100-sxm --sequence-length 2048", 123, 15,
                               "time_noise = 0.011\npower_noise = 0.005\nlate_launches = 0.04\n"
                               "power_limit_wander = 0.018\n"};
constexpr GpuType AtPowerLimit(GpuType type, double power_limit_w) {
  type.power_limit_w = power_limit_w;
  return type;
}

class TrainingFixture : public ProgramTest {
 protected:
  // Ends all started processes that still run. Begins with the last one.
  ~TrainingFixture() override;

  // Runs `perseus COMMAND` in the background. The command may contain redirections. `in_front` is a
  // prefix ("ip netns exec NAME").
  pid_t Start(const std::string& command, const std::string& in_front = "");
  static void Kill(pid_t process, int signal);
  // Waits until `perseus serve` logs its address. Returns this address: "127.0.0.1:41234".
  std::string AwaitAddress(const std::string& log) const;
  // Waits until `condition` is true, for at most twenty minutes, which is enough for a busy
  // machine. Returns whether it became true.
  static bool Comes(const std::function<bool()>& condition);
  static bool HasEnded(pid_t process);

  static constexpr const char* kClock = "job.clock";
  struct NodeSpec {
    std::string name;
    int gpus = 4;
    std::string profile = "truth.csv";
    int seed = 1;
    GpuType type = kQuietA100;
    std::string keys = {};  // More keys of [gpu] of this node.
  };
  // Writes NAME.toml. The GPUs in this file have the time and power of `profile`. Then starts the
  // agent of the node at NAME.sock.
  void StartAgent(const NodeSpec& spec);
  void AwaitAgent(const std::string& name) const;
  virtual_gpu::VirtualNode OpenNode(const std::string& name) const;

  // Reads the file that a trainer wrote with --record.
  std::vector<TrueStep> TrueStepsOf(const std::string& record) const;

 private:
  std::vector<pid_t> started_;
};

}  // namespace perseus
