// From flags and files to what is emulated: which plans pipelines run, and what happens to them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/baselines/policy.h"
#include "perseus/simulation/emulator/emulation.h"

namespace perseus::cli {

// The names that --policy takes.
std::vector<std::string> PolicyNames();

// Whoever chooses the clocks of all pipelines: Perseus, or a rival with what it offers. Keeps a
// reference to the planner.
class Chooser {
 public:
  // `policy` is one of the above. `unit` is of perseus-published.
  static Result<Chooser> Create(const plan::Planner& planner, const std::string& policy,
                                Nanoseconds unit);

  // The plan when nothing happens: no slowdown, or the least that it has.
  Result<std::vector<int>> NoSlowdown() const;
  // Beside a straggler whose iteration takes that time.
  Result<std::vector<int>> Beside(Nanoseconds straggler) const;
  // The fastest of at most so much mean power. Fails (kUnreachable) with the least that it has, of
  // all pipelines.
  Result<std::vector<int>> WithinPower(double watts, int pipelines);

  const std::string& name() const { return name_; }
  const std::string& note() const { return offered_.note; }

 private:
  explicit Chooser(const plan::Planner& planner) : planner_(&planner) {}
  Result<double> LeastPower();

  const plan::Planner* planner_;
  std::string name_;
  bool is_ours_ = true;
  baselines::PolicyPoints offered_;         // A rival's.
  std::optional<plan::Frontier> frontier_;  // Ours, once a power cap needs it.
};

// The options of a plan's file.
Result<std::vector<int>> ReadOptions(const std::string& path,
                                     const schedule::InstructionGraph& graph);

// Adds what the event file says to `spec`, which has its pipelines. Errors name file and line.
Result<emulator::EmulationSpec> WithEvents(emulator::EmulationSpec spec,
                                           const std::string& event_file,
                                           const schedule::InstructionGraph& graph,
                                           Chooser& chooser);

}  // namespace perseus::cli
