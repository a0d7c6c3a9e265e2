// A job on two nodes of virtual GPUs, with an agent each and the trainer's ranks, all of them
// processes.
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perseus/device/virtual_node.h"
#include "program.h"

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

class ClosedLoopJob : public ProgramTest {
 protected:
  static constexpr int kGpusOfANode = 4;

  ClosedLoopJob();
  ~ClosedLoopJob() override;

  // truth.csv, of which a.toml and b.toml are made, job.toml, and the agents of the two nodes.
  void SetUpNodes(const std::string& schedule, int microbatches, const std::string& synth_flags);
  // Leaves it running; what it prints goes to trainer.out and trainer.err, its steps to record.csv.
  void StartTrainer(const std::string& flags);
  // SIGTERM, or nothing if it ends by itself; waits for its end.
  void EndTrainer();
  void AwaitTrainer();

  std::vector<TrueStep> TrueSteps() const;
  nlohmann::json Summary() const { return nlohmann::json::parse(Read("trainer.out")); }
  VirtualNode OpenNode(const std::string& name) const;
  // Whether both agents list all GPUs as free, and no GPU has a lock in truth.
  bool IsAllRestored() const;

  // True once `condition` is, within a minute.
  static bool Comes(const std::function<bool()>& condition);

  pid_t trainer_ = 0;
  std::vector<pid_t> agents_;

 private:
  pid_t StartInBackground(const std::string& command) const;
  static bool HasEnded(pid_t process);
};

}  // namespace perseus
