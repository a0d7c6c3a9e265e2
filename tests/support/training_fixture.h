// What tests of whole jobs share: virtual nodes with an agent each, and programs that run beside
// the test, all of them real processes; and what the virtual GPUs themselves say of a job's steps.
//
// Nodes, agents, ranks and whoever follows the job directory live in one virtual time
// (perseus/simulation/virtual_gpu/shared_clock.h). The test itself and the server do not.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "perseus/simulation/virtual_gpu/virtual_node.h"
#include "tests/cli/program.h"

namespace perseus {

// A step by the virtual GPUs' own time and counters.
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

struct Promise {
  double saving = 0;
  double time_s = 0;
  double baseline_time_s = 0;
};
struct Steps {
  std::size_t begin = 0;
  std::size_t end = 0;
};
// Of energy: what the issue of the closed loop asks for.
inline constexpr double kOnePoint = 0.01;
// That the steps `after` draw as much less than those `before` as was promised, and are as fast,
// but for the noise of the virtual GPUs. Prints both.
void ExpectPromiseKept(const Promise& promise, const std::vector<TrueStep>& steps,
                       const Steps& before, const Steps& after);

class TrainingFixture : public ProgramTest {
 protected:
  // Ends what was started and still runs, the last first.
  ~TrainingFixture() override;

  // `perseus COMMAND` in the background; redirections go with it. `in_front` runs it in its stead
  // ("ip netns exec NAME").
  pid_t Start(const std::string& command, const std::string& in_front = "");
  static void Kill(pid_t process, int signal);
  // Until `perseus serve` says in that log where it listens: "127.0.0.1:41234".
  std::string AwaitAddress(const std::string& log) const;
  // True once `condition` is, within five minutes: on a machine that does much else, too.
  static bool Comes(const std::function<bool()>& condition);
  static bool HasEnded(pid_t process);

  static constexpr const char* kClock = "job.clock";
  // NAME.toml, of GPUs that take and draw what `profile` says, and its agent at NAME.sock.
  struct NodeSpec {
    std::string name;
    int gpus = 4;
    std::string profile = "truth.csv";
    int seed = 1;
  };
  void StartAgent(const NodeSpec& spec);
  void AwaitAgent(const std::string& name) const;
  virtual_gpu::VirtualNode OpenNode(const std::string& name) const;

  // Of a trainer's --record.
  std::vector<TrueStep> TrueStepsOf(const std::string& record) const;

 private:
  std::vector<pid_t> started_;
};

}  // namespace perseus
