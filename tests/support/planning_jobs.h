// Planning problems for tests: small random ones, an exhaustive search of them, and a synthetic
// job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perseus/planning/plan/planner.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus {

// How a random graph is laid out.
enum class JobShape {
  kPipeline,  // 1F1B over two ranks: a stage's instructions of one kind share their options.
  kAnyOrder,  // Instructions on up to three ranks, each with its own options; each may wait for any
              // earlier one.
};

struct JobSpec {
  JobShape shape = JobShape::kAnyOrder;
  int instructions = 7;  // At most; kPipeline: 4 for each microbatch.
  int options = 4;       // At most, per option set; at least 2. Each lies on the Pareto front.
  enum class Times {
    kAny,           // Milliseconds, to the nanosecond.
    kMilliseconds,  // A few whole milliseconds, which gives many ties.
    kNanoseconds,   // A few thousand, options hundreds apart, so that rounding errors show.
  } times = Times::kAny;
};

// Option sets are "set 0", "set 1", ...; kind kGeneric. Some dependencies have delays. The same
// seed gives the same problem everywhere. Its blocking power is RandomBlockingPower(seed).
schedule::InstructionGraph RandomJob(const JobSpec& spec, std::uint64_t seed);
double RandomBlockingPower(std::uint64_t seed);

// The combination of options with the least energy that meets the deadline; nothing if none meets
// it.
struct Exhaustive {
  std::vector<int> options;
  double energy_j = 0;
};
std::optional<Exhaustive> SearchAll(const schedule::InstructionGraph& graph,
                                    const plan::ExecutionModel& model, Nanoseconds deadline);

// Stages of a synthetic A100 that differ only by the imbalance. The blocking power is 84 W. Each
// pp_rank has as many chunks, and the profile has the instructions, as the schedule needs.
struct SyntheticJob {
  std::string schedule = "1f1b";
  int stages = 4;  // One on each pp_rank.
  int microbatches = 8;
  double noise = 0.001;
  schedule::FixedInstructions fixed = {};
};
schedule::InstructionGraph MakeSyntheticJob(const SyntheticJob& job);
inline constexpr double kSyntheticBlockingPowerW = 84;

// Requires a job that has a planner.
plan::Planner MakePlanner(schedule::InstructionGraph graph,
                          const plan::ExecutionModel& model = {
                              .blocking_power_w = kSyntheticBlockingPowerW});

// Instructions on one pp_rank, one after the other. Instruction i has option set i.
schedule::InstructionGraph MakeChain(std::vector<schedule::OptionSet> sets);

// A pp_rank whose two instructions share no clock: it cannot run without changes. Each takes 10 or
// 20 ns, and the least energy is 14 J.
schedule::InstructionGraph MakeJobWithoutSharedClock();

}  // namespace perseus
