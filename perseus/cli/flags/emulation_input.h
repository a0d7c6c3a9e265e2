// Turns flags and files into the input of the emulator: the plans of pipelines, and the events.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/simulation/baselines/policy.h"
#include "perseus/simulation/emulator/emulation.h"

namespace perseus::cli {

// The names that --policy takes.
std::vector<std::string> PolicyNames();

// Chooses the clocks of all pipelines by a policy: Perseus, or a published baseline. Keeps a
// reference to the planner. Not thread safe.
class Chooser {
 public:
  // `policy` is one of PolicyNames(). `unit` is the unit of time of perseus-published. Fails if the
  // policy has no plan for this job.
  static Result<Chooser> Create(const plan::Planner& planner, const std::string& policy,
                                Nanoseconds unit);

  // The plan without events: with no slowdown, or with the least slowdown of the policy.
  Result<std::vector<int>> NoSlowdown() const;
  // The plan while a straggler's iteration takes that time.
  Result<std::vector<int>> Beside(Nanoseconds straggler) const;
  // The fastest plan with at most this mean power of all pipelines. Fails (kUnreachable) if no plan
  // has it; the message has the least power of all pipelines.
  Result<std::vector<int>> WithinPower(double watts, int pipelines);

  const std::string& name() const { return name_; }
  const std::string& note() const { return offered_.note; }

 private:
  explicit Chooser(const plan::Planner& planner) : planner_(&planner) {}
  Result<double> LeastPower();

  const plan::Planner* planner_;
  std::string name_;
  bool is_ours_ = true;
  baselines::PolicyPoints offered_;         // The plans of a published baseline.
  std::optional<plan::Frontier> frontier_;  // For Perseus; computed when a power cap needs it.
};

// Reads the options of a plan file.
Result<std::vector<int>> ReadOptions(const std::string& path,
                                     const schedule::InstructionGraph& graph);

// Adds the events of a file to `spec`, which has its number of pipelines. Errors have the file and
// the line of the event.
Result<emulator::EmulationSpec> WithEvents(const Streams& streams, emulator::EmulationSpec spec,
                                           const std::string& event_file,
                                           const schedule::InstructionGraph& graph,
                                           Chooser& chooser);

}  // namespace perseus::cli
