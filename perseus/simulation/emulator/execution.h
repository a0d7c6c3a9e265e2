// One iteration of one pipeline under its disturbances: the options that it really runs, their time
// and their energy.
//
// A disturbance that begins or ends within the iteration affects the computations that begin while
// it is present. The begin of a computation depends only on those before it. So the answer is found
// by iteration: assume when all computations begin, evaluate, and repeat with the result until
// nothing changes. The n-th evaluation has the first n instructions right. Usually two or three are
// enough.
#pragma once

#include <compare>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/emulator/emulation.h"

namespace perseus::emulator {

inline constexpr Nanoseconds kForever = std::numeric_limits<Nanoseconds>::max();
// Nothing may last longer (36 years). This leaves room for sums and differences of times.
inline constexpr Nanoseconds kLongestRun = kForever / 8;

// A disturbance within an iteration. Its times count from the begin of the iteration.
struct Presence {
  int disturbance = 0;  // Its index in EmulationSpec::disturbances.
  Nanoseconds from = 0;
  Nanoseconds until = kForever;

  // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in it.
  auto operator<=>(const Presence&) const = default;
};

struct Execution {
  PipelineRun run;
  std::vector<bool> noticed;  // By presence: whether an instruction begins while it is there.
};

// Keeps references to both parameters of the constructor.
class Executor {
 public:
  Executor(const plan::Planner& planner, const std::vector<Disturbance>& disturbances);

  // `options` are those of a plan, and `noise` is the random variation. Fails (kInput) if the sum
  // of the durations does not fit 64-bit nanoseconds. The message names the disturbances.
  Result<Execution> Execute(const std::vector<int>& options, std::span<const Presence> presences,
                            const plan::Variation& noise = {}) const;

  // Whether a disturbance may slow the instruction. It does not slow fixed ones.
  bool IsComputation(int instruction) const;

 private:
  struct Disturbed {
    std::vector<int> options;
    plan::Variation variation;
    std::vector<bool> noticed;
  };
  Disturbed Apply(const std::vector<int>& options, std::span<const Presence> presences,
                  const plan::Variation& noise, const std::vector<Nanoseconds>& starts) const;
  bool Concerns(const Disturbance& disturbance, int instruction) const;
  int Throttled(int option_set, int option, double frequency_mhz) const;
  Result<void> CheckFits(const plan::Variation& variation,
                         std::span<const Presence> presences) const;
  std::string NamesOf(std::span<const Presence> presences) const;

  const schedule::InstructionGraph& graph_;
  const std::vector<Disturbance>& disturbances_;
  plan::Evaluator evaluator_;
  std::vector<double> longest_;  // By option set, in nanoseconds.
  double delays_ = 0;            // The sum over all dependencies.
};

// Such as "events.toml:3", or "the straggler of dp_rank 2" if `where` is empty.
std::string NameOf(const Disturbance& disturbance);

}  // namespace perseus::emulator
