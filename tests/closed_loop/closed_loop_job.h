// A job on two nodes of virtual GPUs. Each node has an agent. The agents and the trainer's ranks
// are processes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/training_fixture.h"

namespace perseus {

class ClosedLoopJob : public TrainingFixture {
 protected:
  static constexpr int kGpusOfANode = 4;

  // Writes truth.csv, the node descriptions a.toml and b.toml that refer to truth.csv, and
  // job.toml. Then starts the agents of the two nodes. `keys_of_b`: more keys of [gpu] in b.toml.
  void SetUpNodes(const std::string& schedule, int microbatches, const std::string& synth_flags,
                  const GpuType& type = kQuietA100, const std::string& keys_of_b = "");
  // Starts the trainer in the background. Its output goes to trainer.out and trainer.err. Its steps
  // go to record.csv.
  void StartTrainer(const std::string& flags);
  // Sends SIGTERM and waits for the end.
  void EndTrainer();
  // Waits until the trainer ends by itself.
  void AwaitTrainer();

  std::vector<TrueStep> TrueSteps() const { return TrueStepsOf("record.csv"); }
  nlohmann::json Summary() const { return nlohmann::json::parse(Read("trainer.out")); }
  // Whether both agents list all GPUs as free, and no virtual GPU has a lock.
  bool IsAllRestored() const;

  pid_t trainer_ = 0;
};

}  // namespace perseus
