// A job on two nodes of virtual GPUs, with an agent each and the trainer's ranks, all of them
// processes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/training_fixture.h"

namespace perseus {

class ClosedLoopJob : public TrainingFixture {
 protected:
  static constexpr int kGpusOfANode = 4;

  // truth.csv, of which a.toml and b.toml are made, job.toml, and the agents of the two nodes.
  void SetUpNodes(const std::string& schedule, int microbatches, const std::string& synth_flags);
  // Leaves it running; what it prints goes to trainer.out and trainer.err, its steps to record.csv.
  void StartTrainer(const std::string& flags);
  // SIGTERM, or nothing if it ends by itself; waits for its end.
  void EndTrainer();
  void AwaitTrainer();

  std::vector<TrueStep> TrueSteps() const { return TrueStepsOf("record.csv"); }
  nlohmann::json Summary() const { return nlohmann::json::parse(Read("trainer.out")); }
  // Whether both agents list all GPUs as free, and no GPU has a lock in truth.
  bool IsAllRestored() const;

  pid_t trainer_ = 0;
};

}  // namespace perseus
