// Planning problems for tests: small random problems, an exhaustive search of such problems, and a
// synthetic job.
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
  int instructions = 7;  // At most. For kPipeline: 4 for each microbatch.
  // The number of options in each option set: at least 2, and at most this. Each option is on the
  // Pareto front.
  int options = 4;
  enum class Times {
    kAny,           // Milliseconds, to the nanosecond.
    kMilliseconds,  // A few whole milliseconds, which gives many ties.
    // A few thousand ns. Options are hundreds of ns apart, so that rounding errors show.
    kNanoseconds,
  } times = Times::kAny;
};

// Option sets are "set 0", "set 1", and so on. The kind is kGeneric. Some dependencies have delays.
// The same seed gives the same problem everywhere. The blocking power of the problem is
// RandomBlockingPower(seed).
schedule::InstructionGraph RandomJob(const JobSpec& spec, std::uint64_t seed);
double RandomBlockingPower(std::uint64_t seed);

// Returns the combination of options with the least energy that meets the deadline. nullopt if no
// combination meets it.
struct Exhaustive {
  std::vector<int> options;
  double energy_j = 0;
};
std::optional<Exhaustive> SearchAll(const schedule::InstructionGraph& graph,
                                    const plan::ExecutionModel& model, Nanoseconds deadline);

// Stages of a synthetic A100. The stages differ only by the imbalance. The blocking power is 84 W.
// Each pp_rank has as many chunks as the schedule needs, and the profile has the instructions that
// the schedule needs.
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

// Returns instructions on one pp_rank, one after the other. Instruction i has option set i.
schedule::InstructionGraph MakeChain(std::vector<schedule::OptionSet> sets);

// A pp_rank whose two instructions share no clock, so it cannot run without clock changes. Each
// instruction takes 10 or 20 ns, and the least energy is 14 J.
schedule::InstructionGraph MakeJobWithoutSharedClock();

}  // namespace perseus
